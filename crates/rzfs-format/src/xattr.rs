//! Extended attributes in a system attribute, and how names are stored (spec 05, section 8).
//!
//! The value of `ZPL_DXATTR` is an nvlist in XDR whose pairs are byte arrays. Attributes that do
//! not fit are files in the object's xattr directory, under the same names.

use crate::FormatError;
use crate::nvlist::{Encoding, NvList, NvValue};
use std::borrow::Cow;

const WHAT: &str = "xattr list";
const USER_PREFIX: &[u8] = b"user.";
/// What FreeBSD puts before the names of its system namespace.
const FREEBSD_SYSTEM_PREFIX: &[u8] = b"freebsd:system:";

/// A namespace of Linux that ZFS stores attributes of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Namespace {
    /// `user.`: regular files and directories only.
    User,
    /// `trusted.`: needs privilege.
    Trusted,
    /// `security.`
    Security,
    /// `system.posix_acl_access` and `system.posix_acl_default`.
    PosixAcl,
}

impl Namespace {
    /// The namespace of a full name; `None` for names that ZFS does not store.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        let within = |prefix: &[u8]| name.len() > prefix.len() && name.starts_with(prefix);
        match name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => Some(Self::PosixAcl),
            _ if within(USER_PREFIX) => Some(Self::User),
            _ if within(b"trusted.") => Some(Self::Trusted),
            _ if within(b"security.") => Some(Self::Security),
            _ => None,
        }
    }
}

/// The names under which an attribute may be stored, the one to try first in front.
///
/// Other systems store user attributes without the prefix that Linux has. What is called
/// `trusted.key` there is none of these: whoever may use `user.trusted.key` may not have it.
pub fn stored_names(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bare = name.strip_prefix(USER_PREFIX);
    let bare = bare.filter(|bare| visible_name(bare).as_deref() == Some(name));
    [Some(name), bare].into_iter().flatten()
}

/// The name that Linux shows for a stored one; `None` for those of FreeBSD's system namespace.
#[must_use]
pub fn visible_name(stored: &[u8]) -> Option<Cow<'_, [u8]>> {
    if stored.is_empty() || stored.starts_with(FREEBSD_SYSTEM_PREFIX) {
        None
    } else if Namespace::of(stored).is_some() {
        Some(Cow::Borrowed(stored))
    } else {
        Some(Cow::Owned([USER_PREFIX, stored].concat()))
    }
}

/// The attributes in a `ZPL_DXATTR` value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct XattrList(NvList);

impl XattrList {
    /// Decodes the value. Every pair must be a byte array.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (list, encoding) = NvList::decode_with_encoding(bytes)?;
        if encoding != Encoding::Xdr {
            return Err(FormatError::invalid(WHAT, "not in XDR"));
        }
        if list.iter().any(|pair| !matches!(pair.value(), NvValue::ByteArray(_))) {
            return Err(FormatError::invalid(WHAT, "a value that is no byte array"));
        }
        Ok(Self(list))
    }

    /// The value of the attribute stored under exactly this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        match self.0.get(name) {
            Some(NvValue::ByteArray(value)) => Some(value),
            _ => None,
        }
    }

    /// Stored names and values, in storage order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().filter_map(|pair| match pair.value() {
            NvValue::ByteArray(value) => Some((pair.name().as_bytes(), &**value)),
            _ => None,
        })
    }

    /// Stores an attribute, in the place of one with the same name.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<(), FormatError> {
        self.0.insert(name, NvValue::ByteArray(value.into()))
    }

    /// Removes an attribute; returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.0.remove(name).is_some()
    }

    /// Whether there is no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The value of `ZPL_DXATTR`.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.0.encode(Encoding::Xdr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x20\0\0\0\x28\0\0\0\x08user.foo\
        \0\0\0\x0a\0\0\0\x03bar\0\0\0\0\0\0\0\0\0";

    #[test]
    fn list_of_the_spec_decodes_and_encodes() {
        assert_eq!(ONE.len(), 52);
        let list = XattrList::decode(ONE).unwrap();
        assert_eq!(list.get(b"user.foo"), Some(&b"bar"[..]));
        assert_eq!(list.get(b"foo"), None);
        assert_eq!(list.encode().unwrap(), ONE);
        let mut made = XattrList::default();
        made.insert(b"user.foo", b"bar").unwrap();
        assert_eq!(made.encode().unwrap(), ONE);
        assert!(made.remove(b"user.foo") && !made.remove(b"user.foo") && made.is_empty());
    }

    #[test]
    fn other_types_and_encodings_are_refused() {
        let mut list = NvList::new();
        list.insert("user.foo", 1_u64).unwrap();
        assert!(XattrList::decode(&list.encode(Encoding::Xdr).unwrap()).is_err());
        let native = NvList::new().encode(Encoding::Native(crate::ByteOrder::Little)).unwrap();
        assert!(XattrList::decode(&native).is_err());
        for len in 0..ONE.len() {
            assert!(XattrList::decode(&ONE[..len]).is_err(), "{len} bytes were accepted");
        }
    }

    #[test]
    fn names_follow_the_namespaces_of_linux() {
        let names: Vec<_> = stored_names(b"user.foo").collect();
        assert_eq!(names, [&b"user.foo"[..], b"foo"]);
        for alone in [
            &b"trusted.t"[..],
            b"user.trusted.t",
            b"user.security.capability",
            b"user.system.posix_acl_access",
            b"user.user.foo",
            b"user.freebsd:system:x",
            b"user.",
        ] {
            assert_eq!(stored_names(alone).collect::<Vec<_>>(), [alone]);
        }
        for (stored, visible) in [
            (&b"user.foo"[..], Some(&b"user.foo"[..])),
            (b"foo", Some(b"user.foo")),
            (b"user.", Some(b"user.user.")),
            (b"security.test", Some(b"security.test")),
            (b"system.posix_acl_access", Some(b"system.posix_acl_access")),
            (b"system.other", Some(b"user.system.other")),
            (b"freebsd:system:x", None),
            (b"", None),
        ] {
            assert_eq!(visible_name(stored).as_deref(), visible);
        }
    }

    proptest! {
        #[test]
        fn lists_round_trip(
            pairs in proptest::collection::vec(
                ("[a-z.]{1,12}", proptest::collection::vec(any::<u8>(), 0..80)), 0..8),
        ) {
            let mut list = XattrList::default();
            for (name, value) in &pairs {
                list.insert(name.as_bytes(), value).unwrap();
            }
            prop_assert_eq!(XattrList::decode(&list.encode().unwrap()).unwrap(), list);
        }
    }
}
