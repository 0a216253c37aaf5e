//! The objects of removed vdevs: mappings, births, and the state of a removal
//! (spec 06, section 15).
//!
//! ```text
//! mapping object, bonus              mapping object, entry         births object, entry
//!  0  max_offset                      0  source offset / 512        0  end of the range
//!  8  bytes_mapped                    8  destination, a DVA         8  txg of the copy
//! 16  num_entries                    24
//! 24  counts_object (32-byte form)
//! ```

use crate::endian::{Fields, FieldsMut};
use crate::units::{SECTOR_SHIFT, SECTOR_SIZE};
use crate::{ByteOrder, Dva, FormatError, ObjectId, Txg, VdevId};

/// What the bonus of a mapping object says.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct MappingHeader {
    /// All source offsets below this one have been handled.
    pub max_offset: u64,
    /// Sum of the entries' lengths in bytes.
    pub bytes_mapped: u64,
    /// Number of entries.
    pub entries: u64,
    /// The object with one u32 of obsolete bytes per entry, in pools with `obsolete_counts`.
    pub counts: Option<ObjectId>,
}

impl MappingHeader {
    /// Bytes of the form without counts.
    pub const SIZE_V0: usize = 24;
    /// Bytes of the form with counts.
    pub const SIZE: usize = 32;

    /// Decodes a bonus of either form.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if it is shorter than both.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new("indirect mapping", bonus, order);
        let [max_offset, bytes_mapped, entries] = fields.u64s(0)?;
        let counts =
            if bonus.len() >= Self::SIZE { ObjectId(fields.u64(24)?).non_zero() } else { None };
        Ok(Self { max_offset, bytes_mapped, entries, counts })
    }

    /// The bonus in the form with counts.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let counts = self.counts.unwrap_or_default().get();
        FieldsMut::new(&mut bytes, order)
            .set_u64s(0, &[self.max_offset, self.bytes_mapped, self.entries, counts]);
        bytes
    }
}

/// A range of a removed vdev and where it was copied to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct MappingEntry {
    source: u64,
    /// The new place; its allocated size is the length of the range.
    pub destination: Dva,
}

/// The bit of the source word that tools use as a mark; 0 on disk.
const MARK: u64 = 1 << 63;

impl MappingEntry {
    /// Bytes of an entry.
    pub const SIZE: usize = 24;

    /// The range of `destination.asize()` bytes at byte `source`, a multiple of 512.
    #[must_use]
    pub const fn new(source: u64, destination: Dva) -> Self {
        Self { source, destination }
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`FormatError`] if there are too few bytes, the length is 0, or the range does not fit
    /// into 64 bits.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [source, high, low] = Fields::new("indirect mapping entry", bytes, order).u64s(0)?;
        let bad = |field, value: u64| FormatError::field("indirect mapping entry", field, value);
        let source = (source & !MARK)
            .checked_mul(SECTOR_SIZE)
            .ok_or_else(|| bad("source offset", source))?;
        let entry = Self { source, destination: Dva([high, low]) };
        let length = entry.length();
        if length == 0 || source.checked_add(length).is_none() {
            return Err(bad("length", length));
        }
        Ok(entry)
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let Dva([high, low]) = self.destination;
        FieldsMut::new(&mut bytes, order).set_u64s(0, &[self.source >> SECTOR_SHIFT, high, low]);
        bytes
    }

    /// Byte offset of the range on the removed vdev.
    #[must_use]
    pub const fn source(&self) -> u64 {
        self.source
    }

    /// Bytes of the range.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.destination.asize()
    }

    /// Byte offset of the end of the range; saturates.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.source.saturating_add(self.length())
    }
}

/// When a part of a removed vdev was copied: everything from the previous entry's end on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct BirthEntry {
    /// End of the part, exclusive, in bytes.
    pub end: u64,
    /// Physical birth of the copy.
    pub birth: Txg,
}

impl BirthEntry {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if there are too few bytes.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [end, birth] = Fields::new("indirect births entry", bytes, order).u64s(0)?;
        Ok(Self { end, birth: Txg(birth) })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order).set_u64s(0, &[self.end, self.birth.get()]);
        bytes
    }
}

/// The number of entries that the bonus of a births object states.
///
/// # Errors
/// [`FormatError::Truncated`] if there are too few bytes.
pub fn births_count(bonus: &[u8], order: ByteOrder) -> Result<u64, FormatError> {
    Fields::new("indirect births", bonus, order).u64(0)
}

/// What became of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemovalStatus {
    /// There was none.
    None,
    /// Data is being moved.
    Active,
    /// The vdev is gone.
    Finished,
    /// It was cancelled.
    Cancelled,
}

/// The state of the latest removal: `com.delphix:removing` of the MOS directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemovalState {
    /// What became of it.
    pub status: RemovalStatus,
    /// The vdev that is being removed.
    pub vdev: Option<VdevId>,
    /// The vdev that was removed last: the head of the chain in which mappings are loaded.
    pub previous_indirect: Option<VdevId>,
    /// When it started, in seconds since 1970.
    pub start_time: u64,
    /// When it ended, in seconds since 1970; 0 while it runs.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
}

impl RemovalState {
    /// Words of the MOS directory's entry.
    pub const WORDS: usize = 7;

    /// Decodes the entry's words.
    ///
    /// # Errors
    /// [`FormatError::Field`] if the state is unknown or a vdev id impossible.
    pub fn from_words(words: [u64; Self::WORDS]) -> Result<Self, FormatError> {
        let [status, vdev, previous, start_time, end_time, to_copy, copied] = words;
        let status = match status {
            0 => RemovalStatus::None,
            1 => RemovalStatus::Active,
            2 => RemovalStatus::Finished,
            3 => RemovalStatus::Cancelled,
            _ => return Err(FormatError::field("removal state", "state", status)),
        };
        let id = |field, value: u64| match (value, u32::try_from(value)) {
            (u64::MAX, _) => Ok(None),
            (_, Ok(id)) => Ok(Some(VdevId(id))),
            _ => Err(FormatError::field("removal state", field, value)),
        };
        Ok(Self {
            status,
            vdev: id("vdev", vdev)?,
            previous_indirect: id("previous indirect vdev", previous)?,
            start_time,
            end_time,
            to_copy,
            copied,
        })
    }

    /// The words.
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let id = |id: Option<VdevId>| id.map_or(u64::MAX, |id| u64::from(id.get()));
        [
            self.status as u64,
            id(self.vdev),
            id(self.previous_indirect),
            self.start_time,
            self.end_time,
            self.to_copy,
            self.copied,
        ]
    }
}

/// The state of a mapping that is being condensed: `com.delphix:condensing_indirect` of the MOS
/// directory (spec 06, section 15.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CondensingState {
    /// The indirect vdev.
    pub vdev: VdevId,
    /// The obsolete space map that is being applied.
    pub obsolete_map: ObjectId,
    /// The mapping that is being written.
    pub next_mapping: ObjectId,
}

impl CondensingState {
    /// Words of the MOS directory's entry.
    pub const WORDS: usize = 3;

    /// Decodes the entry's words.
    ///
    /// # Errors
    /// [`FormatError::Field`] if the vdev id is impossible.
    pub fn from_words(words: [u64; Self::WORDS]) -> Result<Self, FormatError> {
        let [vdev, obsolete_map, next_mapping] = words;
        let vdev = u32::try_from(vdev)
            .map_err(|_| FormatError::field("condensing state", "vdev", vdev))?;
        Ok(Self {
            vdev: VdevId(vdev),
            obsolete_map: ObjectId(obsolete_map),
            next_mapping: ObjectId(next_mapping),
        })
    }

    /// The words.
    #[must_use]
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        [self.vdev.0 as u64, self.obsolete_map.0, self.next_mapping.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words of a real pool (spec 07, section 25.5).
    #[test]
    fn entries_of_a_real_mapping() {
        let words = [
            ([0x10, 0x10, 0x10020], (0x2000, 0x2000, 0x200_4000)),
            ([0x80, 0x78, 0x10030], (0x10000, 0xf000, 0x200_6000)),
            ([0x268, 0x328, 0x100c0], (0x4d000, 0x65000, 0x201_8000)),
        ];
        for (words, (source, length, offset)) in words {
            let mut bytes = [0; MappingEntry::SIZE];
            FieldsMut::new(&mut bytes, ByteOrder::Little).set_u64s(0, &words);
            let entry = MappingEntry::decode(&bytes, ByteOrder::Little).unwrap();
            assert_eq!((entry.source(), entry.length()), (source, length));
            assert_eq!(entry.destination.offset(), offset);
            assert_eq!(entry.destination.vdev(), VdevId(0));
            assert_eq!(entry.encode(ByteOrder::Little), bytes);
        }
    }

    #[test]
    fn headers_of_both_forms() {
        let header = MappingHeader {
            max_offset: 0x100_7000,
            bytes_mapped: 0x30_3000,
            entries: 9,
            counts: Some(ObjectId(0x8e)),
        };
        let bytes = header.encode(ByteOrder::Big);
        assert_eq!(MappingHeader::decode(&bytes, ByteOrder::Big), Ok(header));
        let short = MappingHeader::decode(&bytes[..MappingHeader::SIZE_V0], ByteOrder::Big);
        assert_eq!(short, Ok(MappingHeader { counts: None, ..header }));
        assert!(MappingHeader::decode(&bytes[..23], ByteOrder::Big).is_err());
    }

    #[test]
    fn removal_state_of_a_real_pool() {
        let words = [2, 1, 1, 1_795_230_054, 1_795_230_054, 3_092_480, 3_092_480];
        let state = RemovalState::from_words(words).unwrap();
        assert_eq!(state.status, RemovalStatus::Finished);
        assert_eq!(state.previous_indirect, Some(VdevId(1)));
        assert_eq!(state.to_words(), words);
        let none = [0, u64::MAX, u64::MAX, 0, 0, 0, 0];
        assert_eq!(RemovalState::from_words(none).unwrap().vdev, None);
        assert!(RemovalState::from_words([4, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(RemovalState::from_words([1, 1 << 40, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn condensing_state_round_trips() {
        let words = [1, 50, 60];
        assert_eq!(CondensingState::from_words(words).unwrap().to_words(), words);
        assert!(CondensingState::from_words([1 << 40, 0, 0]).is_err());
    }

    #[test]
    fn impossible_entries_are_refused() {
        for words in [[1 << 55, 1, 0], [0, 0, 0], [(1 << 55) - 1, 0xff_ffff, 0]] {
            let mut bytes = [0; MappingEntry::SIZE];
            FieldsMut::new(&mut bytes, ByteOrder::Little).set_u64s(0, &words);
            assert!(MappingEntry::decode(&bytes, ByteOrder::Little).is_err(), "{words:x?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                if let Ok(entry) = MappingEntry::decode(&bytes, order) {
                    prop_assert!(entry.source() < entry.end());
                }
                let _ = MappingHeader::decode(&bytes, order);
                if let Ok(entry) = BirthEntry::decode(&bytes, order) {
                    prop_assert_eq!(&entry.encode(order)[..], &bytes[..BirthEntry::SIZE]);
                }
            }
        }
    }
}
