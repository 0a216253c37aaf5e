//! The ACL field of a legacy znode (spec 05, section 4.2).
//!
//! ```text
//! 0 external object  8 size (v1) or count (v0)  12 version  14 count (v1)  16 inline entries (72)
//! ```

use super::entry::{Ace, MAX_ENTRIES, OLD_SIZE};
use crate::FormatError;
use crate::endian::{ByteOrder, Fields};
use crate::units::ObjectId;

const WHAT: &str = "znode ACL";
const INLINE_OFFSET: usize = 16;
/// Bytes of the longest list: every entry is an object entry.
const MAX_SIZE: u64 = MAX_ENTRIES * 48;

/// Where the entries are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclStore<'a> {
    /// In the znode.
    Inline(&'a [u8]),
    /// In an object of their own.
    External(ObjectId),
}

/// The decoded ACL field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZnodeAcl<'a> {
    /// 0 or 1: the form of the entries.
    pub version: u16,
    /// Bytes of the entries.
    pub size: u64,
    /// Number of entries.
    pub count: u64,
    /// Where the entries are.
    pub store: AclStore<'a>,
    /// Byte order of inline entries.
    pub order: ByteOrder,
}

impl<'a> ZnodeAcl<'a> {
    /// Bytes of the field.
    pub const SIZE: usize = 88;

    /// Decodes the field.
    pub fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let (version, number) = (fields.u16(12)?, u64::from(fields.u32(8)?));
        let (size, count) = match version {
            0 => (number.saturating_mul(OLD_SIZE as u64), number),
            1 => (number, u64::from(fields.u16(14)?)),
            _ => return Err(FormatError::field(WHAT, "version", version)),
        };
        if count > MAX_ENTRIES || size > MAX_SIZE {
            return Err(FormatError::field(WHAT, "size", size));
        }
        let store = match ObjectId(fields.u64(0)?).non_zero() {
            Some(object) => AclStore::External(object),
            None => AclStore::Inline(
                fields
                    .sub(WHAT, INLINE_OFFSET, Self::SIZE - INLINE_OFFSET)?
                    .bytes(0, size as usize)?,
            ),
        };
        Ok(Self { version, size, count, store, order })
    }

    /// Decodes the entries from their bytes: the inline ones, or those of the external object.
    pub fn entries(&self, bytes: &[u8], order: ByteOrder) -> Result<Vec<Ace>, FormatError> {
        match self.version {
            0 => Ace::decode_old_list(bytes, order, self.count),
            _ => Ace::decode_list(bytes, order, self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_0_of_the_spec_decodes() {
        let mut bytes = [0; ZnodeAcl::SIZE];
        bytes[8] = 3;
        bytes[14] = 0x24;
        bytes[20..26].copy_from_slice(&[0xbf, 0x01, 0x1e, 0x00, 0x00, 0x10]);
        let acl = ZnodeAcl::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!((acl.version, acl.size, acl.count), (0, 36, 3));
        let AclStore::Inline(inline) = acl.store else { panic!("{acl:?}") };
        let entries = acl.entries(inline, acl.order).unwrap();
        assert_eq!((entries.len(), entries[0].mask.0), (3, 0x1e_01bf));
    }

    #[test]
    fn version_1_of_the_spec_decodes() {
        let mut bytes = [0; ZnodeAcl::SIZE];
        bytes[8..16].copy_from_slice(&[0x18, 0, 0, 0, 1, 0, 3, 0]);
        for (entry, who) in [(16, 0x10), (24, 0x20), (32, 0x40)] {
            bytes[entry + 3] = who;
        }
        bytes[26] = 0x40;
        let acl = ZnodeAcl::decode(&bytes, ByteOrder::Little).unwrap();
        let AclStore::Inline(inline) = acl.store else { panic!("{acl:?}") };
        assert_eq!(acl.entries(inline, acl.order).unwrap().len(), 3);
    }

    #[test]
    fn entries_that_do_not_fit_are_refused() {
        let mut bytes = [0; ZnodeAcl::SIZE];
        bytes[8] = 7;
        assert!(ZnodeAcl::decode(&bytes, ByteOrder::Little).is_err());
        bytes[0] = 5;
        let acl = ZnodeAcl::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!(acl.store, AclStore::External(ObjectId(5)));
        bytes[11] = 1;
        assert!(ZnodeAcl::decode(&bytes, ByteOrder::Little).is_err());
        bytes[12] = 2;
        assert!(ZnodeAcl::decode(&bytes, ByteOrder::Little).is_err());
    }
}
