//! The result of checking that an object is readable.

use rzfs_format::{ObjectId, Txg};
use std::ops::Range;

/// Blocks of an object whose parents on disk were readable at the time of the check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedBlocks {
    object: ObjectId,
    blocks: Range<u64>,
    /// The birth of the newest block on disk.
    newest: Txg,
}

impl CheckedBlocks {
    /// No blocks.
    pub(super) const NONE: Self =
        Self { object: ObjectId(0), blocks: Range { start: 0, end: 0 }, newest: Txg(0) };

    pub(super) const fn new(object: ObjectId, blocks: Range<u64>, newest: Txg) -> Self {
        Self { object, blocks, newest }
    }

    /// The txg up to which parents of these blocks need no second check.
    pub(super) fn known_until(&self, object: ObjectId, blocks: &Range<u64>) -> Txg {
        let has_all = self.blocks.start <= blocks.start && blocks.end <= self.blocks.end;
        if self.object == object && has_all { self.newest } else { Txg(0) }
    }
}
