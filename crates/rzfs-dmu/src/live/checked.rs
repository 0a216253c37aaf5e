//! What a check of an object has found to be readable.

use rzfs_format::{ObjectId, Txg};
use std::ops::Range;

/// Blocks of an object above which all could be read that was on disk a moment ago.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedBlocks {
    object: ObjectId,
    blocks: Range<u64>,
    /// When the newest block was born that was on disk.
    newest: Txg,
}

impl CheckedBlocks {
    /// No blocks.
    pub(super) const NONE: Self =
        Self { object: ObjectId(0), blocks: Range { start: 0, end: 0 }, newest: Txg(0) };

    pub(super) const fn new(object: ObjectId, blocks: Range<u64>, newest: Txg) -> Self {
        Self { object, blocks, newest }
    }

    /// What needs no second look above these blocks: what was born up to this txg.
    pub(super) fn known_until(&self, object: ObjectId, blocks: &Range<u64>) -> Txg {
        let has_all = self.blocks.start <= blocks.start && blocks.end <= self.blocks.end;
        if self.object == object && has_all { self.newest } else { Txg(0) }
    }
}
