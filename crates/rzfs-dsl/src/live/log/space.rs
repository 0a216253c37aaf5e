//! What a txg does to the blocks of a head's intent log besides the log's header: blocks that the
//! header does not lead to any more are given back (spec 05, section 12.4), and blocks of others
//! that a claimed log points to get one reference more (spec 05, section 12.1).
//!
//! A log's blocks belong to the pool, not to the dataset: nobody is charged for them.

use parking_lot::Mutex;
use rzfs_format::{BlockPointer, Txg};
use std::collections::BTreeMap;

/// Blocks by the txgs that free or share them.
#[derive(Debug, Default)]
pub(crate) struct LogSpace(Mutex<BTreeMap<Txg, LogSpaceChange>>);

/// What a txg does.
#[derive(Debug, Default)]
pub(crate) struct LogSpaceChange {
    /// Blocks, and references to shared ones, that are given back.
    pub(crate) frees: Vec<BlockPointer>,
    /// Blocks that get one more reference.
    pub(crate) shared: Vec<BlockPointer>,
}

impl LogSpace {
    /// What a txg is to do.
    pub(crate) fn take(&self, txg: Txg) -> LogSpaceChange {
        self.0.lock().remove(&txg).unwrap_or_default()
    }

    /// Gives blocks back with a txg.
    pub(crate) fn free(&self, txg: Txg, blocks: &[BlockPointer]) {
        self.0.lock().entry(txg).or_default().frees.extend(blocks);
    }

    /// Counts one reference more to blocks with a txg.
    pub(crate) fn share(&self, txg: Txg, blocks: &[BlockPointer]) {
        self.0.lock().entry(txg).or_default().shared.extend(blocks);
    }
}
