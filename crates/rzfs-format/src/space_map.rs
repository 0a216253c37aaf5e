//! Space maps: append-only logs of allocations and frees (spec 06, section 4).
//!
//! A space map is an object of 64-bit words. Its bonus is the [`SpaceMapHeader`]; its end is the
//! header's length, not the object's. The two top bits of a word say what it starts:
//!
//! ```text
//!          63 62 61 60 59                          24 23     16 15 14            0
//! one word  0 |        offset (47 bits)                        | F |  run - 1    |
//! debug     1  0 | act | pass (10) | txg (50)                                    |
//! two words 1  1 | pad | run - 1 (36)               | vdev (24)                  |
//!           F |        offset (63 bits)                                          |
//! ```
//! F = 1 is a free, 0 an allocation. Offsets and runs count units of `1 << shift` bytes from the
//! map's start; what these are is known only from the map's place in the pool ([`Geometry`]).
//! An entry of two words never crosses a block of the object.

mod encode;

pub use encode::{EntryWriter, SpaceMapVersion, encoded_size_bound};

use crate::endian::{Fields, FieldsMut};
use crate::units::{ObjectId, Txg, VdevId};
use crate::{ByteOrder, FormatError};
use std::ops::Range;

const WHAT: &str = "space map";

/// Buckets of a stored histogram.
pub const HISTOGRAM_BUCKETS: usize = 32;
/// Bytes of a header without histogram.
pub const HEADER_SIZE_V0: usize = 24;
/// Bytes of a header with histogram.
pub const HEADER_SIZE: usize = 320;
/// Bytes of a word.
pub const WORD_SIZE: u64 = 8;
/// Units that the longest entry of one word covers.
pub const ONE_WORD_MAX_RUN: u64 = 1 << 15;
/// Units that the longest entry of two words covers.
pub const TWO_WORD_MAX_RUN: u64 = 1 << 36;
/// One more than the largest offset of an entry of one word, in units.
pub const ONE_WORD_OFFSET_LIMIT: u64 = 1 << 47;
/// The word that fills the last place of a block when an entry of two words does not fit.
pub const PADDING: u64 = 1 << 63;

const HISTOGRAM_OFFSET: usize = 64;
const PREFIX_SHIFT: u32 = 62;
const PREFIX_DEBUG: u64 = 0b10;
const PREFIX_TWO_WORDS: u64 = 0b11;

const fn bits(word: u64, shift: u32, width: u32) -> u64 {
    (word >> shift) & ((1 << width) - 1)
}

/// The bonus of a space map (`space_map_phys`).
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | own object number, set when first written |
/// | 8 | 8 | bytes of the object that are valid, a multiple of 8 |
/// | 16 | 8 | bytes allocated minus bytes freed by the entries, signed |
/// | 24 | 40 | zero (from here on only in headers of 320 bytes) |
/// | 64 | 256 | 32 counts of free segments |
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceMapHeader {
    /// Own object number; 0 in a map that was never written.
    pub object: ObjectId,
    /// Bytes of the object that hold entries.
    pub length: u64,
    /// Bytes allocated minus bytes freed by the entries.
    pub allocated: i64,
    /// Free segments by size: bucket i counts those of `1 << (i + shift)` bytes up to twice that.
    /// Absent in maps from before the feature `spacemap_histogram`.
    pub histogram: Option<[u64; HISTOGRAM_BUCKETS]>,
}

impl SpaceMapHeader {
    /// Decodes a bonus of 24 or 320 bytes.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        if bytes.len() != HEADER_SIZE_V0 && bytes.len() != HEADER_SIZE {
            return Err(FormatError::field(WHAT, "bonus length", bytes.len() as u64));
        }
        let fields = Fields::new(WHAT, bytes, order);
        let length = fields.u64(8)?;
        if !length.is_multiple_of(WORD_SIZE) {
            return Err(FormatError::field(WHAT, "length", length));
        }
        let histogram =
            if bytes.len() == HEADER_SIZE { Some(fields.u64s(HISTOGRAM_OFFSET)?) } else { None };
        Ok(Self {
            object: ObjectId(fields.u64(0)?),
            length,
            allocated: fields.u64(16)?.cast_signed(),
            histogram,
        })
    }

    /// The on-disk bytes: 320 with a histogram, 24 without.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let size = if self.histogram.is_some() { HEADER_SIZE } else { HEADER_SIZE_V0 };
        let mut bytes = vec![0; size];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(0, &[self.object.0, self.length, self.allocated.cast_unsigned()]);
        if let Some(histogram) = &self.histogram {
            fields.set_u64s(HISTOGRAM_OFFSET, histogram);
        }
        bytes
    }
}

/// Whether an entry takes space or gives it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The range became allocated.
    Allocate,
    /// The range became free.
    Free,
}

impl Action {
    const fn bit(self) -> u64 {
        match self {
            Self::Allocate => 0,
            Self::Free => 1,
        }
    }

    const fn from_bit(bit: u64) -> Self {
        if bit == 0 { Self::Allocate } else { Self::Free }
    }
}

/// How an entry is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// One word, without a vdev.
    OneWord,
    /// Two words. The vdev has a meaning in log space maps only; elsewhere it is stored as 0.
    TwoWords {
        /// The top-level vdev.
        vdev: VdevId,
    },
}

/// A range of one map that was allocated or freed, in units of the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// What happened.
    pub action: Action,
    /// First unit, counted from the start of the map.
    pub offset: u64,
    /// Units; at least 1.
    pub length: u64,
    /// How the entry is stored.
    pub form: Form,
}

impl Run {
    /// The vdev that a log space map's entry names.
    #[must_use]
    pub const fn vdev(&self) -> Option<VdevId> {
        match self.form {
            Form::OneWord => None,
            Form::TwoWords { vdev } => Some(vdev),
        }
    }
}

/// One entry of a space map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// A note about the entries that follow; without effect.
    Debug {
        /// The stored action: 0 = allocations follow, 1 = frees.
        action: u8,
        /// Sync pass, low 10 bits.
        pass: u16,
        /// Transaction group, low 50 bits.
        txg: Txg,
    },
    /// Filler before the end of a block.
    Padding,
    /// A range that was allocated or freed.
    Run(Run),
}

impl Entry {
    /// Words that the entry takes.
    #[must_use]
    pub const fn words(&self) -> u64 {
        match self {
            Self::Run(Run { form: Form::TwoWords { .. }, .. }) => 2,
            _ => 1,
        }
    }

    /// The entry that starts with `first`; `second` is the word after it in the same block.
    pub fn from_words(first: u64, second: Option<u64>) -> Result<Self, FormatError> {
        Ok(match first >> PREFIX_SHIFT {
            PREFIX_DEBUG if first == PADDING => Self::Padding,
            PREFIX_DEBUG => Self::Debug {
                action: bits(first, 60, 2) as u8,
                pass: bits(first, 50, 10) as u16,
                txg: Txg(bits(first, 0, 50)),
            },
            PREFIX_TWO_WORDS => {
                let second = second.ok_or(FormatError::invalid(
                    WHAT,
                    "an entry of two words crosses the end of the map or of a block",
                ))?;
                Self::Run(Run {
                    action: Action::from_bit(second >> 63),
                    offset: bits(second, 0, 63),
                    length: bits(first, 24, 36) + 1,
                    form: Form::TwoWords { vdev: VdevId(bits(first, 0, 24) as u32) },
                })
            }
            _ => Self::Run(Run {
                action: Action::from_bit(bits(first, 15, 1)),
                offset: bits(first, 16, 47),
                length: bits(first, 0, 15) + 1,
                form: Form::OneWord,
            }),
        })
    }

    /// The words of the entry; the second one is absent where the form has one.
    ///
    /// Fields wider than the form are cut to its width; [`EntryWriter`] never passes such.
    #[must_use]
    pub const fn to_words(&self) -> (u64, Option<u64>) {
        match *self {
            Self::Padding => (PADDING, None),
            Self::Debug { action, pass, txg } => {
                let word = PREFIX_DEBUG << PREFIX_SHIFT
                    | bits(action as u64, 0, 2) << 60
                    | bits(pass as u64, 0, 10) << 50
                    | bits(txg.0, 0, 50);
                (word, None)
            }
            Self::Run(Run { action, offset, length, form }) => match form {
                Form::OneWord => {
                    let word = bits(offset, 0, 47) << 16
                        | action.bit() << 15
                        | bits(length.wrapping_sub(1), 0, 15);
                    (word, None)
                }
                Form::TwoWords { vdev } => {
                    let first = PREFIX_TWO_WORDS << PREFIX_SHIFT
                        | bits(length.wrapping_sub(1), 0, 36) << 24
                        | bits(vdev.0 as u64, 0, 24);
                    (first, Some(action.bit() << 63 | bits(offset, 0, 63)))
                }
            },
        }
    }
}

/// The entries of the valid part of one block of a space map, with the index of each one's
/// first word.
///
/// `block` ends at the map's length if that lies inside of the block. After an error the
/// iteration ends: what follows an entry of unknown size cannot be told apart.
pub fn entries(
    block: &[u8],
    order: ByteOrder,
) -> impl Iterator<Item = Result<(u64, Entry), FormatError>> + '_ {
    let mut words = block.chunks_exact(8).map(move |chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        order.u64(word)
    });
    let mut index = 0;
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let first = words.next()?;
        let second = if first >> PREFIX_SHIFT == PREFIX_TWO_WORDS { words.next() } else { None };
        let at = index;
        match Entry::from_words(first, second) {
            Ok(entry) => {
                index += entry.words();
                Some(Ok((at, entry)))
            }
            Err(error) => {
                failed = true;
                Some(Err(error))
            }
        }
    })
}

/// What the numbers in a space map mean (spec 06, section 4.3): the area it describes and the
/// size of its unit. Nothing of this is in the map itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// First byte of the area.
    pub start: u64,
    /// Bytes of the area.
    pub size: u64,
    /// log2 of the unit in bytes; below 64.
    pub shift: u32,
}

impl Geometry {
    /// Of every log space map: all offsets, in units of 512 bytes.
    pub const LOG: Self = Self { start: 0, size: u64::MAX, shift: 9 };
    /// Of every dirty-time log: all txgs, in units of one txg.
    pub const DTL: Self = Self { start: 0, size: u64::MAX, shift: 0 };

    /// Of the obsolete space map of an indirect vdev: bytes.
    #[must_use]
    pub const fn obsolete(asize: u64) -> Self {
        Self { start: 0, size: asize, shift: 0 }
    }

    /// Of the checkpoint space map of a vdev.
    #[must_use]
    pub const fn checkpoint(asize: u64, ashift: u32) -> Self {
        Self { start: 0, size: asize, shift: ashift }
    }

    /// The bytes that a run covers; an error if they are not inside of the area.
    pub fn range(&self, run: &Run) -> Result<Range<u64>, FormatError> {
        let scale =
            |units: u64| units.checked_shl(self.shift).filter(|bytes| bytes >> self.shift == units);
        let range = || {
            let start = scale(run.offset)?.checked_add(self.start)?;
            let end = start.checked_add(scale(run.length)?)?;
            let limit = self.start.saturating_add(self.size);
            (run.length > 0 && end <= limit).then_some(start..end)
        };
        range().ok_or(FormatError::field(WHAT, "offset of an entry outside of the map", run.offset))
    }
}

#[cfg(test)]
mod tests;
