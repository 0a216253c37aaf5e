//! POSIX access control lists: the values of `system.posix_acl_access` and
//! `system.posix_acl_default` (spec 05, section 7.4).
//!
//! ```text
//! 0 version = 2 | 4 tag  6 permissions  8 id | 12 ...      little-endian on every machine
//! ```

use crate::FormatError;
use crate::endian::{ByteOrder, Fields};

const WHAT: &str = "POSIX ACL";
const VERSION: u32 = 2;
const HEADER_SIZE: usize = 4;
const ENTRY_SIZE: usize = 8;
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PosixTag {
    /// The owner.
    UserObj,
    /// A user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group.
    Group(u32),
    /// The most that users, groups and the owning group get.
    Mask,
    /// Everyone else.
    Other,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PosixEntry {
    /// Whom it is about.
    pub tag: PosixTag,
    /// Permissions: 4 read, 2 write, 1 execute.
    pub permissions: u16,
}

/// A POSIX access control list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PosixAcl(pub Vec<PosixEntry>);

impl PosixAcl {
    /// Decodes the attribute's value.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, ByteOrder::Little);
        let version = fields.u32(0)?;
        if version != VERSION {
            return Err(FormatError::field(WHAT, "version", version));
        }
        let entries = fields.bytes(HEADER_SIZE, bytes.len().saturating_sub(HEADER_SIZE))?;
        if entries.len() % ENTRY_SIZE != 0 {
            return Err(FormatError::field(WHAT, "size", bytes.len() as u64));
        }
        entries
            .chunks_exact(ENTRY_SIZE)
            .map(|entry| {
                let fields = Fields::new(WHAT, entry, ByteOrder::Little);
                let (tag, id) = (fields.u16(0)?, fields.u32(4)?);
                let tag = match tag {
                    0x01 => PosixTag::UserObj,
                    0x02 => PosixTag::User(id),
                    0x04 => PosixTag::GroupObj,
                    0x08 => PosixTag::Group(id),
                    0x10 => PosixTag::Mask,
                    0x20 => PosixTag::Other,
                    _ => return Err(FormatError::field(WHAT, "tag", tag)),
                };
                Ok(PosixEntry { tag, permissions: fields.u16(2)? })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Checks that it is a list that a file can have: entries in order of their tags, users and
    /// groups once each and in order of their ids, the owner's, the owning group's and everyone
    /// else's there, and a mask where there are users or groups.
    pub fn validate(&self) -> Result<(), FormatError> {
        let bad = |problem| Err(FormatError::invalid(WHAT, problem));
        if self.0.iter().any(|entry| entry.permissions & !7 != 0) {
            return bad("unknown permissions");
        }
        if !self.0.iter().zip(self.0.iter().skip(1)).all(|(one, next)| one.tag < next.tag) {
            return bad("entries that repeat or are out of order");
        }
        let has = |tag| self.permissions(tag).is_some();
        if ![PosixTag::UserObj, PosixTag::GroupObj, PosixTag::Other].into_iter().all(has) {
            return bad("an entry is missing");
        }
        if self.is_extended() && !has(PosixTag::Mask) {
            return bad("the mask is missing");
        }
        Ok(())
    }

    /// Whether it says more than a mode can.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        let named = |entry: &PosixEntry| {
            matches!(entry.tag, PosixTag::User(_) | PosixTag::Group(_) | PosixTag::Mask)
        };
        self.0.iter().any(named)
    }

    fn permissions(&self, tag: PosixTag) -> Option<u32> {
        let entry = self.0.iter().find(|entry| entry.tag == tag)?;
        Some(u32::from(entry.permissions))
    }

    /// Whose permissions are the group's in the mode.
    fn group_class(&self) -> PosixTag {
        let mask = self.permissions(PosixTag::Mask).map(|_| PosixTag::Mask);
        mask.unwrap_or(PosixTag::GroupObj)
    }

    /// The nine permission bits of the mode that goes with the list.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        of(PosixTag::UserObj) << 6 | of(self.group_class()) << 3 | of(PosixTag::Other)
    }

    /// Makes the list go with a mode.
    pub fn set_mode(&mut self, mode: u32) {
        self.change_mode(|_, bits| bits, mode);
    }

    /// Takes away what a mode does not permit: so a new file gets the default list of its
    /// directory.
    pub fn restrict_to_mode(&mut self, mode: u32) {
        self.change_mode(|old, bits| old & bits, mode);
    }

    fn change_mode(&mut self, new: impl Fn(u16, u16) -> u16, mode: u32) {
        let group = self.group_class();
        for entry in &mut self.0 {
            let shift = match entry.tag {
                PosixTag::UserObj => 6,
                PosixTag::Other => 0,
                tag if tag == group => 3,
                _ => continue,
            };
            entry.permissions = new(entry.permissions, (mode >> shift & 7) as u16);
        }
    }

    /// The attribute's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id): (u16, u32) = match entry.tag {
                PosixTag::UserObj => (0x01, NO_ID),
                PosixTag::User(id) => (0x02, id),
                PosixTag::GroupObj => (0x04, NO_ID),
                PosixTag::Group(id) => (0x08, id),
                PosixTag::Mask => (0x10, NO_ID),
                PosixTag::Other => (0x20, NO_ID),
            };
            out.extend(tag.to_le_bytes());
            out.extend(entry.permissions.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_the_spec_decodes() {
        let bytes = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 255,
            255, 255, 255, 0x10, 0, 6, 0, 255, 255, 255, 255, 0x20, 0, 4, 0, 255, 255, 255, 255,
        ];
        let acl = PosixAcl::decode(&bytes).unwrap();
        let entry = |tag, permissions| PosixEntry { tag, permissions };
        let expected = [
            entry(PosixTag::UserObj, 6),
            entry(PosixTag::User(1000), 6),
            entry(PosixTag::GroupObj, 4),
            entry(PosixTag::Mask, 6),
            entry(PosixTag::Other, 4),
        ];
        assert_eq!(acl.0, expected);
        assert_eq!(acl.encode(), bytes);
        acl.validate().unwrap();
        assert!(acl.is_extended());
        assert_eq!(acl.mode(), 0o664);
        for len in [0, 3, 5, 43] {
            assert!(PosixAcl::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn lists_follow_modes() {
        let acl = |entries: &[(PosixTag, u16)]| {
            let entry = |&(tag, permissions)| PosixEntry { tag, permissions };
            PosixAcl(entries.iter().map(entry).collect())
        };
        let (owner, group, other) = (PosixTag::UserObj, PosixTag::GroupObj, PosixTag::Other);
        let mut minimal = acl(&[(owner, 7), (group, 5), (other, 5)]);
        minimal.restrict_to_mode(0o660);
        assert_eq!((minimal.mode(), minimal.is_extended()), (0o640, false));
        let mut extended =
            acl(&[(owner, 7), (PosixTag::User(5), 7), (group, 5), (PosixTag::Mask, 7), (other, 5)]);
        extended.set_mode(0o604);
        assert_eq!(extended.mode(), 0o604);
        assert_eq!(extended.permissions(group), Some(5));
        extended.validate().unwrap();
        for bad in [
            acl(&[(owner, 7), (group, 5)]),
            acl(&[(owner, 7), (other, 5), (group, 5)]),
            acl(&[(owner, 7), (PosixTag::User(5), 7), (group, 5), (other, 5)]),
            acl(&[(owner, 7), (owner, 7), (group, 5), (other, 5)]),
            acl(&[(owner, 8), (group, 5), (other, 5)]),
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
