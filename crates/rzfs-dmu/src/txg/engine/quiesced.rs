//! Groups being synced, for the syncing thread.

use super::{Torn, TxgEngine, open_span, slot};
use crate::txg::history::{TxgIo, TxgState};
use rzfs_format::Txg;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The work of the syncing thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// The open group is to be synced.
    Sync,
    /// Nothing yet.
    Nothing,
    /// Nothing ever again.
    Finished,
}

impl TxgEngine {
    /// For the syncing thread: waits for work, for `longest` at most.
    ///
    /// A group is synced when it is old enough, large enough, or requested. A [`Torn`] one is not,
    /// which [`TxgEngine::quiesce`] reports.
    pub fn wait_for_work(&self, longest: Duration) -> Work {
        let deadline = self.clock.now().saturating_add(longest);
        let mut state = self.state.lock();
        loop {
            let due = state.opened.saturating_add(self.options.timeout);
            let now = self.clock.now();
            if state.wanted >= state.open || state.torn.is_some() {
                return Work::Sync;
            }
            if state.is_finished {
                // Later waiters would wait for ever.
                state.is_over = true;
                self.changed.notify_all();
                return Work::Finished;
            }
            if now >= due {
                return Work::Sync;
            }
            if now >= deadline {
                return Work::Nothing;
            }
            self.clock.wait_until(&self.changed, &mut state, due.min(deadline));
        }
    }

    /// For the syncing thread: opens the next group and waits until the transactions of this one
    /// have ended.
    ///
    /// # Errors
    /// A transaction of this group or an older one was aborted.
    pub fn quiesce(self: &Arc<Self>) -> Result<QuiescedTxg, Torn> {
        let mut entries: Vec<_> = self.shards.iter().map(|shard| shard.entry.lock()).collect();
        let mut state = self.state.lock();
        let txg = state.open;
        let now = self.clock.now();
        state.open = txg.next();
        state.opened = now;
        let was_open = std::mem::replace(&mut state.open_span, open_span(txg.next()));
        state.history.enter(txg, TxgState::Quiescing, now);
        state.history.open(txg.next(), now);
        for entry in &mut entries {
            entry.open = state.open;
        }
        drop(entries);
        // A leaving transaction releases the shard's lock before it takes that of the state.
        let is_held = || self.shards.iter().any(|shard| shard.entry.lock().held[slot(txg)] != 0);
        let quiescing = tracing::debug_span!("quiesce", %txg).entered();
        while is_held() {
            self.changed.wait(&mut state);
        }
        // A younger group may be torn as well, which does not concern this one.
        if let Some(torn) = state.torn.filter(|torn| torn.txg <= txg) {
            return Err(torn);
        }
        state.history.note_dirty(txg, self.dirty[slot(txg)].load(Ordering::Relaxed));
        state.history.enter(txg, TxgState::Waiting, self.clock.now());
        drop(state);
        // An observer of the spans may delay others, but not while locks are held.
        drop((was_open, quiescing));
        Ok(QuiescedTxg { engine: Arc::clone(self), txg })
    }
}

/// A group without transactions, ready to be synced.
#[derive(Debug)]
pub struct QuiescedTxg {
    engine: Arc<TxgEngine>,
    txg: Txg,
}

impl QuiescedTxg {
    /// The group.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) const fn engine(&self) -> &Arc<TxgEngine> {
        &self.engine
    }

    /// Its dirty bytes.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.engine.dirty[slot(self.txg)].load(Ordering::Relaxed)
    }

    /// Marks the group as being synced.
    pub fn begin_sync(&self) {
        let mut state = self.engine.state.lock();
        state.history.enter(self.txg, TxgState::Syncing, self.engine.clock.now());
    }

    /// Records the device I/O since then.
    pub fn note_io(&self, io: TxgIo) {
        self.engine.state.lock().history.note_io(self.txg, io);
    }

    /// Marks the group as committed: its uberblock is durable, or it had no changes.
    pub fn committed(self) {
        self.engine.dirty[slot(self.txg)].store(0, Ordering::Relaxed);
        self.engine.frees[slot(self.txg)].store(0, Ordering::Relaxed);
        let mut state = self.engine.state.lock();
        state.synced = self.txg;
        state.history.enter(self.txg, TxgState::Committed, self.engine.clock.now());
        drop(state);
        self.engine.changed.notify_all();
    }
}
