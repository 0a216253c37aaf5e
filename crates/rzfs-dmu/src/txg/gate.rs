//! The order of transactions on one object.

use parking_lot::{Condvar, Mutex};
use rzfs_format::Txg;
use std::sync::Arc;

/// Admits transactions of one group at a time to an object: those of a later group wait until the
/// earlier ones have ended.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    txg: Txg,
    inside: u32,
}

/// A transaction inside the gate; leaves on drop.
#[derive(Debug)]
pub(crate) struct Entered {
    gate: Arc<Gate>,
}

impl Gate {
    /// Enters with a transaction of group `txg`, unless transactions of an older group are
    /// inside. The caller keeps the group open meanwhile, so no younger one can be inside.
    pub(super) fn try_enter(self: &Arc<Self>, txg: Txg) -> Option<Entered> {
        let mut state = self.state.lock();
        if state.inside > 0 && state.txg < txg {
            return None;
        }
        state.txg = txg;
        state.inside += 1;
        Some(Entered { gate: Arc::clone(self) })
    }

    /// Waits until the transactions of groups older than `txg` have ended.
    pub(super) fn wait_for_older(&self, txg: Txg) {
        let mut state = self.state.lock();
        while state.inside > 0 && state.txg < txg {
            self.left.wait(&mut state);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.inside -= 1;
        if state.inside == 0 {
            self.gate.left.notify_all();
        }
    }
}
