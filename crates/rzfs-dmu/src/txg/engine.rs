//! Assigning transactions to groups, and counting their dirty data.

pub(super) mod quiesced;
mod room;
pub(super) mod transaction;
mod waiting;

use super::DirtyLimits;
use super::counters::{DmuTxCounters, DmuTxStats};
use super::history::{History, TxgRecord};
use parking_lot::{Condvar, Mutex};
use rzfs_clock::Clock;
use rzfs_format::Txg;
use rzfs_tunables::Tunables;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tracing::Span;

/// Number of distinguishable groups; more than can exist at one time.
const SLOTS: usize = 4;

/// The options of an engine.
#[derive(Clone, Copy, Debug)]
pub struct TxgOptions {
    /// The limits of dirty data.
    pub limits: DirtyLimits,
    /// Maximum time that a group stays open (`zfs_txg_timeout`).
    pub timeout: Duration,
    /// Maximum blocks on disk freed by files in one group.
    pub max_frees: u64,
    /// Number of groups in the history (`zfs_txg_history`).
    pub history: usize,
}

impl TxgOptions {
    /// Unset tunables default to a fraction of `memory`, in bytes.
    #[must_use]
    pub fn new(tunables: &Tunables, memory: u64) -> Self {
        Self {
            limits: DirtyLimits::new(tunables, memory),
            timeout: tunables.zfs_txg_timeout,
            max_frees: tunables.rzfs_per_txg_frees_max,
            history: tunables.zfs_txg_history,
        }
    }
}

/// What happens to new transactions while the pool is suspended (property `failmode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuspendedPolicy {
    /// They wait until it resumes.
    Wait,
    /// They are refused.
    Refuse,
}

/// What a caller does that would have to wait for a suspended pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// It waits.
    Wait,
    /// It gets an error: it holds locks that others need.
    Leave,
}

/// The pool no longer accepts transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the pool is being exported or is suspended")]
pub struct Stopped;

/// A transaction was aborted by a panic: its changes are incomplete, so its group is never synced,
/// nor any after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a change in txg {txg} was broken off by a mistake in this software")]
pub struct Torn {
    /// The group.
    pub txg: Txg,
}

/// Why a transaction does not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BeginError {
    /// It never will.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// It may start when the pool is no longer suspended ([`TxgEngine::wait_while_suspended`]).
    #[error("the pool is suspended")]
    Suspended,
}

/// The transaction groups of one pool.
#[derive(Debug)]
pub struct TxgEngine {
    options: TxgOptions,
    clock: Clock,
    /// Transaction counts. A transaction locks only one shard.
    shards: Box<[Shard]>,
    next_shard: AtomicUsize,
    dirty: [AtomicU64; SLOTS],
    /// Blocks on disk freed by files.
    frees: [AtomicU64; SLOTS],
    state: Mutex<State>,
    /// The state has changed.
    changed: Condvar,
    /// Except for started transactions, which the shards count.
    counters: DmuTxCounters,
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    entry: Mutex<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    open: Txg,
    held: [u32; SLOTS],
    /// Transactions that started.
    begun: u64,
    is_stopped: bool,
}

#[derive(Debug)]
struct State {
    open: Txg,
    opened: Duration,
    /// The time the group is open.
    open_span: Span,
    synced: Txg,
    /// The youngest group with waiters.
    wanted: Txg,
    /// When the last delayed transaction may proceed.
    last_wakeup: Duration,
    /// The syncing group waits for its devices.
    suspended: Option<SuspendedPolicy>,
    /// The oldest group with an aborted transaction.
    torn: Option<Torn>,
    /// No further group will be synced.
    is_over: bool,
    /// The syncing thread is to stop.
    is_finished: bool,
    history: History,
}

/// A span that lasts as long as a group is open.
fn open_span(txg: Txg) -> Span {
    tracing::debug_span!(parent: None, "open", %txg)
}

const fn slot(txg: Txg) -> usize {
    (txg.get() % SLOTS as u64) as usize
}

impl TxgEngine {
    /// An engine of a pool whose last group on disk is `synced`.
    #[must_use]
    pub fn new(synced: Txg, options: TxgOptions, clock: Clock) -> Arc<Self> {
        let open = synced.next();
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let entry = Entry { open, held: [0; SLOTS], begun: 0, is_stopped: false };
        let now = clock.now();
        Arc::new(Self {
            options,
            clock,
            shards: (0..shards).map(|_| Shard { entry: Mutex::new(entry) }).collect(),
            next_shard: AtomicUsize::new(0),
            dirty: Default::default(),
            frees: Default::default(),
            state: Mutex::new(State {
                open,
                opened: now,
                open_span: open_span(open),
                synced,
                wanted: synced,
                last_wakeup: now,
                suspended: None,
                torn: None,
                is_over: false,
                is_finished: false,
                history: History::new(options.history, open, now),
            }),
            changed: Condvar::new(),
            counters: DmuTxCounters::default(),
        })
    }

    /// Counts a transaction refused because of a quota of its dataset.
    pub fn count_over_quota(&self) {
        self.counters.count_over_quota();
    }

    /// The transaction counters.
    #[must_use]
    pub fn stats(&self) -> DmuTxStats {
        let begun = self.shards.iter().map(|shard| shard.entry.lock().begun);
        DmuTxStats { dmu_tx_assigned: begun.fold(0, u64::wrapping_add), ..self.counters.read() }
    }

    /// The history of the last groups, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<TxgRecord> {
        self.state.lock().history.records()
    }

    /// Dirty bytes of all groups.
    #[must_use]
    pub fn dirty_total(&self) -> u64 {
        self.dirty.iter().map(|dirty| dirty.load(Ordering::Relaxed)).sum()
    }

    /// Adds `bytes` of dirty data to a group.
    pub(crate) fn add_dirty(&self, txg: Txg, bytes: u64) {
        let before = self.dirty[slot(txg)].fetch_add(bytes, Ordering::Relaxed);
        let threshold = self.options.limits.sync_threshold();
        if before < threshold && before.saturating_add(bytes) >= threshold {
            self.request(txg);
        }
    }

    /// Removes `bytes` of dirty data from a group: they are written, or dropped.
    pub(crate) fn remove_dirty(&self, txg: Txg, bytes: u64) {
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let _ = self.dirty[slot(txg)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// The open group, and the number of blocks that files may still free in it.
    #[must_use]
    pub fn room_for_frees(&self) -> (Txg, u64) {
        let open = self.open_txg();
        let freed = self.frees[slot(open)].load(Ordering::Relaxed);
        (open, self.options.max_frees.max(1).saturating_sub(freed))
    }

    /// Maximum blocks on disk freed by files in one group.
    #[must_use]
    pub const fn max_frees(&self) -> u64 {
        self.options.max_frees
    }

    /// The open group.
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        self.state.lock().open
    }

    /// The last group on disk.
    #[must_use]
    pub fn synced_txg(&self) -> Txg {
        self.state.lock().synced
    }

    /// Requests a sync of a group soon, without waiting for it.
    pub fn request(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(txg);
        self.changed.notify_all();
    }

    /// Requests a sync of the open group at once, unless syncing has ended: for work that spans
    /// several groups.
    pub fn request_more(&self) {
        let mut state = self.state.lock();
        if !state.is_finished {
            state.wanted = state.wanted.max(state.open);
            self.changed.notify_all();
        }
    }

    /// Refuses new transactions. Those already started continue.
    pub fn stop(&self) {
        for shard in &self.shards {
            shard.entry.lock().is_stopped = true;
        }
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Ends syncing for good: transactions are refused, and waiters are notified.
    pub fn fail(&self) {
        self.stop();
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Records that a transaction of a group that has not quiesced was aborted.
    fn tear(&self, txg: Txg) {
        let mut state = self.state.lock();
        if state.torn.is_none_or(|torn| torn.txg > txg) {
            state.torn = Some(Torn { txg });
        }
        drop(state);
        self.fail();
    }

    /// Ends syncing and refuses transactions. Requested groups are synced first.
    pub fn finish(&self) {
        self.stop();
        self.state.lock().is_finished = true;
        self.changed.notify_all();
    }

    /// The clock for opening groups and for delays.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }
}

#[cfg(test)]
mod tests;
