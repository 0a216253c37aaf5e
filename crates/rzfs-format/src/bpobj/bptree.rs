//! The list of datasets that are being destroyed in the background (spec 04, section 4.5).

use crate::endian::{Fields, FieldsMut};
use crate::units::{BlockId, Bookmark, Level, ObjectId, ObjsetId, Txg};
use crate::{BlockPointer, ByteOrder, FormatError};

const WHAT: &str = "bptree";

/// The bonus of a bptree: five words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BptreeHeader {
    /// First entry that is still to be freed.
    pub begin: u64,
    /// One after the last entry.
    pub end: u64,
    /// Allocated bytes, deflated.
    pub bytes: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes (physical ones of metadata).
    pub uncompressed: u64,
}

impl BptreeHeader {
    /// On-disk size in bytes.
    pub const SIZE: usize = 40;

    /// Decodes the bonus.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [begin, end, bytes, compressed, uncompressed] =
            Fields::new(WHAT, bytes, order).u64s(0)?;
        if begin > end {
            return Err(FormatError::field(WHAT, "first entry", begin));
        }
        Ok(Self { begin, end, bytes, compressed, uncompressed })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order)
            .set_u64s(0, &[self.begin, self.end, self.bytes, self.compressed, self.uncompressed]);
        bytes
    }

    /// Checks that `extent` bytes of the object can hold the entries.
    pub fn check_extent(&self, extent: u64) -> Result<(), FormatError> {
        match self.end.checked_mul(BptreeEntry::SIZE as u64) {
            Some(bytes) if bytes <= extent => Ok(()),
            _ => Err(FormatError::field(WHAT, "end", self.end)),
        }
    }
}

/// A destroyed objset and how far its blocks were freed.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 128 | the objset's root pointer |
/// | 128 | 8 | only blocks born after this txg are freed |
/// | 136 | 32 | objset, object, level, block where to resume |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BptreeEntry {
    /// The objset's root pointer.
    pub root: BlockPointer,
    /// Blocks born in this txg or before belong to a snapshot and stay.
    pub birth: Txg,
    /// Everything before this place is freed; all zero when nothing is.
    pub resume: Bookmark,
}

impl BptreeEntry {
    /// On-disk size in bytes; entries cross the borders of blocks.
    pub const SIZE: usize = 168;

    /// The block to free next; `None` when none was freed yet.
    #[must_use]
    pub fn next(&self) -> Option<Bookmark> {
        (self.resume != Bookmark::default()).then_some(self.resume)
    }

    /// Decodes the entry at the start of `bytes`.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let [birth, objset, object, level, block] = fields.u64s(128)?;
        let level = i8::try_from(level.cast_signed())
            .map_err(|_| FormatError::field(WHAT, "level", level))?;
        Ok(Self {
            root: BlockPointer::decode(fields.bytes(0, BlockPointer::SIZE)?, order)?,
            birth: Txg(birth),
            resume: Bookmark {
                objset: ObjsetId(objset),
                object: ObjectId(object),
                level: Level(level),
                block: BlockId(block),
            },
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_bytes(0, &self.root.encode(order));
        fields.set_u64s(
            128,
            &[
                self.birth.0,
                self.resume.objset.0,
                self.resume.object.0,
                i64::from(self.resume.level.0).cast_unsigned(),
                self.resume.block.0,
            ],
        );
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_header_round_trip_in_both_orders() {
        let mut root = BlockPointer::HOLE;
        root.words_mut()[10] = 77;
        let entry = BptreeEntry {
            root,
            birth: Txg(12),
            resume: Bookmark {
                objset: ObjsetId(54),
                object: ObjectId(2),
                level: Level(-1),
                block: BlockId(u64::MAX - 1),
            },
        };
        let header = BptreeHeader { begin: 3, end: 9, bytes: 1, compressed: 2, uncompressed: 3 };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(BptreeEntry::decode(&entry.encode(order), order).unwrap(), entry);
            assert_eq!(BptreeHeader::decode(&header.encode(order), order).unwrap(), header);
        }
        header.check_extent(9 * 168).unwrap();
        assert!(header.check_extent(9 * 168 - 1).is_err());
    }

    #[test]
    fn hostile_fields_are_refused() {
        let mut bytes = [0; BptreeEntry::SIZE];
        bytes[155] = 1;
        assert!(BptreeEntry::decode(&bytes, ByteOrder::Little).is_err());
        let mut bytes = [0; BptreeHeader::SIZE];
        bytes[0] = 1;
        assert!(BptreeHeader::decode(&bytes, ByteOrder::Little).is_err());
    }
}
