//! Holding older txgs: readers of the pool's earlier state may still need blocks that were freed
//! since.

use parking_lot::Mutex;
use rzfs_format::Txg;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The held txgs, with hold counts.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<BTreeMap<Txg, usize>>);

impl Holds {
    /// Adds a hold on a txg.
    pub(crate) fn hold(self: &Arc<Self>, txg: Txg) -> TxgHold {
        *self.0.lock().entry(txg).or_default() += 1;
        TxgHold { holds: Arc::clone(self), txg }
    }

    /// The oldest held txg.
    pub(crate) fn oldest(&self) -> Option<Txg> {
        self.0.lock().keys().next().copied()
    }
}

/// Keeps the blocks of a txg on disk from being reused, until it is dropped or the pool is short of
/// space.
#[derive(Debug)]
pub struct TxgHold {
    holds: Arc<Holds>,
    txg: Txg,
}

impl Drop for TxgHold {
    fn drop(&mut self) {
        let mut holds = self.holds.0.lock();
        if let Some(count) = holds.get_mut(&self.txg) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.txg);
            }
        }
    }
}
