//! Keeping what older txgs have: whoever reads the pool as it was then may still need blocks that
//! were freed since.

use parking_lot::Mutex;
use rzfs_format::Txg;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The txgs that are held, with how often.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<BTreeMap<Txg, usize>>);

impl Holds {
    /// Holds a txg once more.
    pub(crate) fn hold(self: &Arc<Self>, txg: Txg) -> TxgHold {
        *self.0.lock().entry(txg).or_default() += 1;
        TxgHold { holds: Arc::clone(self), txg }
    }

    /// The oldest txg that somebody holds.
    pub(crate) fn oldest(&self) -> Option<Txg> {
        self.0.lock().keys().next().copied()
    }
}

/// Keeps the blocks of a txg that is on disk from being used again, until it is dropped or the
/// pool is short of space.
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
