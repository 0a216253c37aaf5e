//! Input and output of the detector.

use std::ops::Range;

/// The shape of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectShape {
    /// Bytes of a data block; at least 1.
    pub block_size: u64,
    /// Data blocks up to the end of the object.
    pub blocks: u64,
    /// Base-2 logarithm of the pointers in an indirect block.
    pub indirect_shift: u32,
}

/// How an access found its blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessOutcome {
    /// All were cached.
    Cached,
    /// Some were still on their way, because of a prefetch.
    Late,
    /// Some had to be read.
    Missed,
}

/// What to prefetch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prefetch {
    /// Data blocks.
    pub data: Range<u64>,
    /// Indirect blocks of level 1, for data still further ahead.
    pub indirect: Range<u64>,
}

impl Prefetch {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.indirect.is_empty()
    }
}
