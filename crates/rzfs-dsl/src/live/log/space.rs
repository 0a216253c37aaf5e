//! What a txg does to the blocks of a head's intent log besides the log's header: frees blocks that
//! the header no longer leads to (spec 05, section 12.4), and adds references to blocks that a
//! claimed log shares (spec 05, section 12.1).
//!
//! A log's blocks belong to the pool, not to the dataset: they are not charged.

use parking_lot::Mutex;
use rzfs_format::{BlockPointer, Txg};
use std::collections::BTreeMap;

/// Blocks by the txgs that free or share them.
#[derive(Debug, Default)]
pub(crate) struct LogSpace(Mutex<BTreeMap<Txg, LogSpaceChange>>);

/// The changes of a txg.
#[derive(Debug, Default)]
pub(crate) struct LogSpaceChange {
    /// Blocks, and references to shared ones, to free.
    pub(crate) frees: Vec<BlockPointer>,
    /// Blocks that gain a reference.
    pub(crate) shared: Vec<BlockPointer>,
}

impl LogSpace {
    /// Takes the changes of a txg.
    pub(crate) fn take(&self, txg: Txg) -> LogSpaceChange {
        self.0.lock().remove(&txg).unwrap_or_default()
    }

    /// Frees blocks with a txg.
    pub(crate) fn free(&self, txg: Txg, blocks: &[BlockPointer]) {
        self.0.lock().entry(txg).or_default().frees.extend(blocks);
    }

    /// Adds references to blocks with a txg.
    pub(crate) fn share(&self, txg: Txg, blocks: &[BlockPointer]) {
        self.0.lock().entry(txg).or_default().shared.extend(blocks);
    }
}
