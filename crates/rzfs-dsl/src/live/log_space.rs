//! What a txg does to the blocks of a head's intent log besides the log's header: blocks that the
//! header does not lead to any more are given back (spec 05, section 12.4), and blocks of others
//! that a claimed log points to get one reference more (spec 05, section 12.1).
//!
//! A log's blocks belong to the pool, not to the dataset: nobody is charged for them.

use super::LiveDataset;
use parking_lot::Mutex;
use rzfs_dmu::live::Transaction;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, Txg};
use std::collections::BTreeMap;

/// Blocks by the txgs that free or share them.
#[derive(Debug, Default)]
pub(super) struct LogSpace(Mutex<BTreeMap<Txg, LogSpaceChange>>);

/// What a txg does.
#[derive(Debug, Default)]
pub(super) struct LogSpaceChange {
    /// Blocks, and references to shared ones, that are given back.
    pub(super) frees: Vec<BlockPointer>,
    /// Blocks that get one more reference.
    pub(super) shared: Vec<BlockPointer>,
}

impl LogSpace {
    /// What a txg is to do.
    pub(super) fn take(&self, txg: Txg) -> LogSpaceChange {
        self.0.lock().remove(&txg).unwrap_or_default()
    }
}

impl LiveDataset {
    /// Gives the dataset's intent log a new header, and frees blocks that the log had and that
    /// this header does not lead to, both with the transaction's txg.
    pub fn change_log(&self, tx: &dyn Transaction, header: ZilHeader, frees: &[BlockPointer]) {
        let mut changes = self.log_space().0.lock();
        changes.entry(tx.txg()).or_default().frees.extend(frees);
        drop(changes);
        self.objset().set_log_header(tx, header);
    }

    /// Counts references of the intent log, whose header changes in the same txg, to blocks.
    pub(super) fn share_with_log(&self, tx: &dyn Transaction, blocks: &[BlockPointer]) {
        let mut changes = self.log_space().0.lock();
        changes.entry(tx.txg()).or_default().shared.extend(blocks);
    }
}
