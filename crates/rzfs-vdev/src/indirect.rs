//! Removed top-level vdevs: the current location of their contents (spec 07, section 13; spec 06,
//! section 15).
//!
//! Block pointers still refer to the removed vdev. Its mapping has the new location of every range;
//! a block can span several ranges, and a destination can have been removed in turn.

use rzfs_format::indirect::{BirthEntry, MappingEntry};
use rzfs_format::{Dva, Txg, VdevId};

/// The mapping of a removed vdev, sorted by source offset and free of overlaps.
#[derive(Clone, Default, Debug)]
pub struct IndirectMapping {
    entries: Vec<MappingEntry>,
    births: Vec<BirthEntry>,
}

/// Why entries are not a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingError {
    /// An entry starts before its predecessor ends.
    #[error("entry {index} of the mapping overlaps its predecessor or is out of order")]
    Order {
        /// Index of the entry.
        index: usize,
    },
    /// Offsets or txgs of the births do not ascend.
    #[error("entry {index} of the births is out of order")]
    Births {
        /// Index of the entry.
        index: usize,
    },
    /// The vdev is not a removed one, or its mapping is already set.
    #[error("vdev {0} takes no mapping")]
    NotIndirect(VdevId),
}

/// A part of a block and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Offset in the block.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// The vdev it is on.
    pub(crate) vdev: VdevId,
    /// Offset on that vdev.
    pub(crate) offset: u64,
    /// When it was copied there, if known.
    pub(crate) birth: Option<Txg>,
}

impl IndirectMapping {
    /// The mapping with these entries; `births` may be empty if not loaded.
    ///
    /// # Errors
    /// [`MappingError`] if they are unsorted or overlap.
    pub fn new(entries: Vec<MappingEntry>, births: Vec<BirthEntry>) -> Result<Self, MappingError> {
        let pairs = entries.iter().zip(entries.iter().skip(1));
        if let Some(index) = pairs.clone().position(|(a, b)| a.end() > b.source()) {
            return Err(MappingError::Order { index: index.saturating_add(1) });
        }
        let pairs = births.iter().zip(births.iter().skip(1));
        if let Some(index) = pairs.clone().position(|(a, b)| a.end >= b.end || a.birth > b.birth) {
            return Err(MappingError::Births { index: index.saturating_add(1) });
        }
        Ok(Self { entries, births })
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[MappingEntry] {
        &self.entries
    }

    /// When its parts were copied, by their ends; empty if not loaded.
    #[must_use]
    pub fn births(&self) -> &[BirthEntry] {
        &self.births
    }

    /// When the byte at `offset` was copied to its new place.
    #[must_use]
    pub fn birth(&self, offset: u64) -> Option<Txg> {
        let index = self.births.partition_point(|entry| entry.end <= offset);
        self.births.get(index).map(|entry| entry.birth)
    }

    /// The current address of the byte at `offset`, and the contiguous bytes from there.
    #[must_use]
    pub fn lookup(&self, offset: u64) -> Option<(Dva, u64)> {
        let after = self.entries.partition_point(|entry| entry.source() <= offset);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        let skip = offset.checked_sub(entry.source())?;
        let len = entry.length().checked_sub(skip).filter(|len| *len > 0)?;
        let to = entry.destination;
        Some((Dva::new(to.vdev(), to.offset().checked_add(skip)?, len, false), len))
    }

    /// The pieces of `len` bytes at `offset`; `None` if a part of them is not mapped.
    pub(crate) fn pieces(&self, offset: u64, len: u64) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < len {
            let source = offset.checked_add(start)?;
            let (to, available) = self.lookup(source)?;
            let piece = Piece {
                start,
                len: available.min(len - start),
                vdev: to.vdev(),
                offset: to.offset(),
                birth: self.birth(source),
            };
            start += piece.len;
            pieces.push(piece);
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(source: u64, len: u64, vdev: u32, offset: u64) -> MappingEntry {
        MappingEntry::new(source, Dva::new(VdevId(vdev), offset, len, false))
    }

    #[test]
    fn blocks_are_split_where_the_mapping_is() {
        let entries = vec![
            entry(0x2000, 0x2000, 0, 0x200_4000),
            entry(0x1_0000, 0xf000, 0, 0x200_6000),
            entry(0x1_f000, 0x1000, 2, 0x7000),
        ];
        let births = vec![
            BirthEntry { end: 0x1_1000, birth: Txg(31) },
            BirthEntry { end: 0x2_0000, birth: Txg(33) },
        ];
        let mapping = IndirectMapping::new(entries, births).unwrap();
        let piece = |start, len, vdev, offset, birth| Piece {
            start,
            len,
            vdev: VdevId(vdev),
            offset,
            birth: Some(Txg(birth)),
        };
        assert_eq!(mapping.pieces(0x3000, 0x1000), Some(vec![piece(0, 0x1000, 0, 0x200_5000, 31)]));
        assert_eq!(
            mapping.pieces(0x1_e000, 0x2000),
            Some(vec![piece(0, 0x1000, 0, 0x201_4000, 33), piece(0x1000, 0x1000, 2, 0x7000, 33)])
        );
        assert_eq!(mapping.pieces(0x3000, 0x2000), None);
        assert_eq!(mapping.pieces(0x1000, 0x1000), None);
        assert_eq!(mapping.pieces(0x1_f000, 0x2000), None);
    }

    #[test]
    fn unsorted_entries_are_no_mapping() {
        let overlap = vec![entry(0, 0x2000, 0, 0), entry(0x1000, 0x1000, 0, 0)];
        assert_eq!(
            IndirectMapping::new(overlap, vec![]).unwrap_err(),
            MappingError::Order { index: 1 }
        );
        let births =
            vec![BirthEntry { end: 8, birth: Txg(5) }, BirthEntry { end: 8, birth: Txg(6) }];
        assert_eq!(
            IndirectMapping::new(vec![], births).unwrap_err(),
            MappingError::Births { index: 1 }
        );
    }

    proptest! {
        #[test]
        fn pieces_follow_each_other(
            lengths in prop::collection::vec((0u64..3, 1u64..5), 1..20),
            offset in 0u64..80,
            len in 1u64..40,
        ) {
            let mut source = 0;
            let entries: Vec<MappingEntry> = lengths
                .iter()
                .map(|(gap, len)| {
                    source += (gap + len) * 512;
                    entry(source - len * 512, len * 512, 1, source * 3)
                })
                .collect();
            let mapping = IndirectMapping::new(entries.clone(), vec![]).unwrap();
            let (offset, len) = (offset * 512, len * 512);
            let covered = |at: u64| entries.iter().any(|e| e.source() <= at && at < e.end());
            let whole = (offset..offset + len).step_by(512).all(covered);
            let pieces = mapping.pieces(offset, len);
            prop_assert_eq!(pieces.is_some(), whole);
            let mut at = 0;
            for piece in pieces.unwrap_or_default() {
                prop_assert_eq!(piece.start, at);
                at += piece.len;
            }
            prop_assert!(!whole || at == len);
        }
    }
}
