//! Transactions: joining the open group, and leaving it.

use super::{BeginError, Stopped, TxgEngine, slot};
use crate::txg::gate::{Entered, Gate};
use rzfs_format::Txg;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory used by a group for each block that dies in it, in bytes: its pointer in the dead list,
/// and its space among pending frees.
pub(super) const DEAD_BLOCK: u64 = 400;

impl TxgEngine {
    /// Joins the open group, once no transaction of an older group is in these gates.
    pub(crate) fn enter<'a>(
        self: &Arc<Self>,
        gates: impl ExactSizeIterator<Item = &'a Arc<Gate>> + Clone,
    ) -> Result<OpenTx, Stopped> {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        loop {
            let mut entry = self.shards[shard].entry.lock();
            if entry.is_stopped {
                return Err(Stopped);
            }
            // The group stays open while the shard is locked.
            let txg = entry.open;
            let mut held = Vec::with_capacity(gates.len());
            let busy = gates.clone().find(|gate| {
                let entered = gate.try_enter(txg);
                let is_busy = entered.is_none();
                held.extend(entered);
                is_busy
            });
            if let Some(gate) = busy {
                drop((entry, held));
                gate.wait_for_older(txg);
                continue;
            }
            entry.held[slot(txg)] += 1;
            entry.begun = entry.begun.wrapping_add(1);
            let began_unwinding = std::thread::panicking();
            return Ok(OpenTx { engine: Arc::clone(self), txg, shard, held, began_unwinding });
        }
    }

    fn leave(&self, txg: Txg, shard: usize) {
        let mut entry = self.shards[shard].entry.lock();
        let held = &mut entry.held[slot(txg)];
        *held -= 1;
        let may_be_last = *held == 0 && entry.open != txg;
        drop(entry);
        if may_be_last {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Counts a transaction that fails to start.
    pub(crate) fn counted<T, E: Copy + Into<BeginError>>(
        &self,
        begun: Result<T, E>,
    ) -> Result<T, E> {
        begun.inspect_err(|reason| match (*reason).into() {
            BeginError::Stopped(_) => self.counters.count_error(),
            BeginError::Suspended => self.counters.count_suspended(),
        })
    }
}

/// A transaction: a guard that keeps its group from being synced. It ends on drop; if a panic drops
/// it, the group is [`Torn`](super::Torn).
#[derive(Debug)]
pub struct OpenTx {
    engine: Arc<TxgEngine>,
    txg: Txg,
    shard: usize,
    /// The objects it may change.
    held: Vec<Entered>,
    /// Whether a panic was already in progress, which is unrelated to this transaction.
    began_unwinding: bool,
}

impl OpenTx {
    /// Its group.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) const fn engine(&self) -> &Arc<TxgEngine> {
        &self.engine
    }

    /// Reserves this many frees of blocks on disk in its group, in addition to earlier ones;
    /// returns whether there was room. Indivisible frees may exceed a group's limit, but only
    /// alone.
    #[must_use]
    pub fn claim_frees(&self, blocks: u64) -> bool {
        let max = self.engine.options.max_frees;
        let more = |freed: u64| {
            let sum = freed.saturating_add(blocks);
            (blocks == 0 || freed == 0 || sum <= max).then_some(sum)
        };
        let frees = &self.engine.frees[slot(self.txg)];
        let is_counted = frees.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if is_counted {
            self.engine.add_dirty(self.txg, blocks.saturating_mul(DEAD_BLOCK));
        } else {
            self.engine.counters.count_put_off();
        }
        is_counted
    }
}

impl Drop for OpenTx {
    fn drop(&mut self) {
        // Before the group can quiesce, or others see the incomplete changes.
        if std::thread::panicking() && !self.began_unwinding {
            self.engine.tear(self.txg);
        }
        self.held.clear();
        self.engine.leave(self.txg, self.shard);
    }
}
