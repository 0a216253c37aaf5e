//! Blocks of a head's intent log that are given back in the txg whose log header does not lead to
//! them any more (spec 05, section 12.4).
//!
//! A log's blocks belong to the pool, not to the dataset: nobody is charged for them.

use super::LiveDataset;
use parking_lot::Mutex;
use rzfs_dmu::live::Transaction;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, Txg};
use std::collections::BTreeMap;

/// Blocks by the txgs that free them.
#[derive(Debug, Default)]
pub(super) struct LogFrees(Mutex<BTreeMap<Txg, Vec<BlockPointer>>>);

impl LogFrees {
    fn add(&self, txg: Txg, blocks: &[BlockPointer]) {
        self.0.lock().entry(txg).or_default().extend(blocks);
    }

    /// The blocks that a txg is to free.
    pub(super) fn take(&self, txg: Txg) -> Vec<BlockPointer> {
        self.0.lock().remove(&txg).unwrap_or_default()
    }
}

impl LiveDataset {
    /// Gives the dataset's intent log a new header, and frees blocks that the log had and that
    /// this header does not lead to, both with the transaction's txg.
    pub fn change_log(&self, tx: &dyn Transaction, header: ZilHeader, frees: &[BlockPointer]) {
        self.log_frees().add(tx.txg(), frees);
        self.objset().set_log_header(tx, header);
    }
}
