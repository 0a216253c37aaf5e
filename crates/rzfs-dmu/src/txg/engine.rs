//! Counting transactions into groups.

use super::DirtyLimits;
use super::gate::{Entered, Gate};
use parking_lot::{Condvar, Mutex};
use rzfs_format::Txg;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Groups that can be told apart at one time; more than can exist at one time.
const SLOTS: usize = 4;

/// What an engine is made with.
#[derive(Clone, Copy, Debug)]
pub struct TxgOptions {
    /// The limits of dirty data.
    pub limits: DirtyLimits,
    /// Longest time that a group stays open (`zfs_txg_timeout`).
    pub timeout: Duration,
    /// Most blocks on disk that files give up in one group
    /// (`zfs_per_txg_dirty_frees_percent` bounds the same in another way).
    pub max_frees: u64,
}

impl TxgOptions {
    /// About 40 MB of memory for each group.
    pub const MAX_FREES: u64 = 100_000;
}

/// Bytes of memory that a group takes for each block that dies in it: its pointer in the list of
/// the dead, and its space among what becomes free.
const DEAD_BLOCK: u64 = 400;

/// What the thread that syncs has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// The open group is to be synced.
    Sync,
    /// Nothing yet.
    Nothing,
    /// Nothing ever again.
    Finished,
}

/// What becomes of new transactions while the pool is suspended (property `failmode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhileSuspended {
    /// They wait until it goes on.
    Wait,
    /// They are refused.
    Refuse,
}

/// What becomes of somebody who would have to wait until a suspended pool goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// It waits.
    Wait,
    /// It is told so: it has locked what others need.
    Leave,
}

/// The pool does not take transactions any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the pool is being exported or is suspended")]
pub struct Stopped;

/// Why a transaction does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotNow {
    /// It never will.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// It may when the pool is not suspended any more ([`TxgEngine::wait_while_suspended`]).
    #[error("the pool is suspended")]
    Suspended,
}

/// The transaction groups of one pool.
#[derive(Debug)]
pub struct TxgEngine {
    options: TxgOptions,
    /// Counts of transactions. A transaction takes the lock of one shard only.
    shards: Box<[Shard]>,
    next_shard: AtomicUsize,
    dirty: [AtomicU64; SLOTS],
    /// Blocks on disk that files give up.
    frees: [AtomicU64; SLOTS],
    state: Mutex<State>,
    /// Something of the state has changed.
    changed: Condvar,
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
    is_stopped: bool,
}

#[derive(Debug)]
struct State {
    open: Txg,
    opened: Instant,
    synced: Txg,
    /// The youngest group that somebody waits for.
    wanted: Txg,
    /// When the last transaction that was delayed may go.
    last_wakeup: Instant,
    /// The group that syncs waits for its devices.
    suspended: Option<WhileSuspended>,
    /// No further group will be synced.
    has_failed: bool,
    /// The thread that syncs is to end.
    is_finished: bool,
}

const fn slot(txg: Txg) -> usize {
    (txg.get() % SLOTS as u64) as usize
}

impl TxgEngine {
    /// An engine of a pool whose last group on disk is `synced`.
    #[must_use]
    pub fn new(synced: Txg, options: TxgOptions) -> Arc<Self> {
        let open = synced.next();
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let entry = Entry { open, held: [0; SLOTS], is_stopped: false };
        let now = Instant::now();
        Arc::new(Self {
            options,
            shards: (0..shards).map(|_| Shard { entry: Mutex::new(entry) }).collect(),
            next_shard: AtomicUsize::new(0),
            dirty: Default::default(),
            frees: Default::default(),
            state: Mutex::new(State {
                open,
                opened: now,
                synced,
                wanted: synced,
                last_wakeup: now,
                suspended: None,
                has_failed: false,
                is_finished: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// Waits until somebody who frees space may begin: only while as much is dirty as may be.
    pub(crate) fn wait_to_free(&self, patience: Patience) -> Result<(), NotNow> {
        let limits = self.options.limits;
        let mut state = self.state.lock();
        loop {
            let dirty = self.dirty_total();
            match (state.suspended, patience) {
                _ if state.has_failed => return Err(Stopped.into()),
                (None, _) if dirty < limits.max => break,
                (Some(WhileSuspended::Refuse), _) => return Err(Stopped.into()),
                (Some(WhileSuspended::Wait), _) if dirty < limits.max_while_suspended() => break,
                (Some(WhileSuspended::Wait), Patience::Leave) => return Err(NotNow::Suspended),
                (None, _) | (Some(WhileSuspended::Wait), Patience::Wait) => {}
            }
            state.wanted = state.wanted.max(state.open);
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        Ok(())
    }

    /// Enters the open group, once no transaction of an older group is in these gates.
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
            return Ok(OpenTx { engine: Arc::clone(self), txg, shard, held });
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

    /// Waits as the delay curve says.
    pub(crate) fn throttle(&self, patience: Patience) -> Result<(), NotNow> {
        let limits = self.options.limits;
        let DirtyLimits { max, delay, .. } = limits;
        let mut state = self.state.lock();
        loop {
            let dirty = self.dirty_total();
            match (state.suspended, patience) {
                _ if state.has_failed => return Err(Stopped.into()),
                (None, _) if dirty < max => break,
                (Some(WhileSuspended::Refuse), _) => return Err(Stopped.into()),
                (Some(WhileSuspended::Wait), Patience::Leave) => {
                    let has_room = dirty < limits.max_while_suspended();
                    return if has_room { Ok(()) } else { Err(NotNow::Suspended) };
                }
                (None, _) | (Some(WhileSuspended::Wait), Patience::Wait) => {}
            }
            state.wanted = state.wanted.max(state.open);
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        let wait = delay.delay(self.dirty_total(), max);
        if wait.is_zero() {
            return Ok(());
        }
        // One after the other, so that the delay is the time between two transactions.
        let now = Instant::now();
        let at = (now + wait).max(state.last_wakeup + wait);
        state.last_wakeup = at;
        drop(state);
        std::thread::sleep(at.saturating_duration_since(now).min(delay.max));
        Ok(())
    }

    /// Dirty bytes of all groups.
    #[must_use]
    pub fn dirty_total(&self) -> u64 {
        self.dirty.iter().map(|dirty| dirty.load(Ordering::Relaxed)).sum()
    }

    /// Says that `bytes` more of a group are dirty.
    pub(crate) fn add_dirty(&self, txg: Txg, bytes: u64) {
        let before = self.dirty[slot(txg)].fetch_add(bytes, Ordering::Relaxed);
        let threshold = self.options.limits.sync_threshold();
        if before < threshold && before.saturating_add(bytes) >= threshold {
            self.request(txg);
        }
    }

    /// Says that `bytes` of a group are not dirty any more: they are written, or given up.
    pub(crate) fn remove_dirty(&self, txg: Txg, bytes: u64) {
        let less = |dirty: u64| Some(dirty.saturating_sub(bytes));
        let _ = self.dirty[slot(txg)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// The open group, and how many blocks on disk files may still give up in it.
    #[must_use]
    pub fn room_for_frees(&self) -> (Txg, u64) {
        let open = self.open_txg();
        let freed = self.frees[slot(open)].load(Ordering::Relaxed);
        (open, self.options.max_frees.max(1).saturating_sub(freed))
    }

    /// Most blocks on disk that files give up in one group.
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

    /// Asks for a group to be synced soon, without waiting for that.
    pub fn request(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(txg);
        self.changed.notify_all();
    }

    /// Asks for the open group to be synced at once, unless nothing is to be synced any more: for
    /// work that goes on from group to group.
    pub fn request_more(&self) {
        let mut state = self.state.lock();
        if !state.is_finished {
            state.wanted = state.wanted.max(state.open);
            self.changed.notify_all();
        }
    }

    /// Waits until a group is on disk, also while the pool is suspended if transactions wait then.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be, or who asks is not to wait while the pool is suspended.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |suspended| (suspended == WhileSuspended::Refuse).then_some(Stopped))
    }

    /// Waits until a group is on disk, also while the pool is suspended, whatever becomes of others
    /// meanwhile: for work in the background, which nobody waits for.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be.
    pub fn wait_synced_in_background(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |_| None)
    }

    /// As [`TxgEngine::wait_synced`], for a transaction that begins afterwards.
    ///
    /// # Errors
    /// [`NotNow`].
    pub fn wait_synced_with(&self, txg: Txg, patience: Patience) -> Result<(), NotNow> {
        self.wait(txg, |suspended| match (suspended, patience) {
            (WhileSuspended::Refuse, _) => Some(Stopped.into()),
            (WhileSuspended::Wait, Patience::Leave) => Some(NotNow::Suspended),
            (WhileSuspended::Wait, Patience::Wait) => None,
        })
    }

    /// Waits until a group is on disk, but not while the pool is suspended: for administrators, who
    /// have to be told.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be, or the pool is suspended.
    pub fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |_| Some(Stopped))
    }

    fn wait<E: From<Stopped>>(
        &self,
        txg: Txg,
        give_up: impl Fn(WhileSuspended) -> Option<E>,
    ) -> Result<(), E> {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(txg);
        self.changed.notify_all();
        while state.synced < txg {
            if state.has_failed {
                return Err(Stopped.into());
            }
            if let Some(error) = state.suspended.and_then(&give_up) {
                return Err(error);
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }

    /// Says that the group that syncs cannot go on before [`TxgEngine::resume`].
    pub fn suspend(&self, meanwhile: WhileSuspended) {
        self.state.lock().suspended = Some(meanwhile);
        self.changed.notify_all();
    }

    /// Says that the group that syncs goes on.
    pub fn resume(&self) {
        self.state.lock().suspended = None;
        self.changed.notify_all();
    }

    /// Whether the group that syncs waits for its devices.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.lock().suspended.is_some()
    }

    /// Whether the pool is suspended and lets transactions wait until it goes on.
    #[must_use]
    pub fn lets_wait(&self) -> bool {
        let state = self.state.lock();
        state.suspended == Some(WhileSuspended::Wait) && !state.has_failed
    }

    /// Waits as long as [`TxgEngine::lets_wait`].
    pub fn wait_while_suspended(&self) {
        let mut state = self.state.lock();
        while state.suspended == Some(WhileSuspended::Wait) && !state.has_failed {
            self.changed.wait(&mut state);
        }
    }

    /// Refuses further transactions. Those that have begun go on.
    pub fn stop(&self) {
        for shard in &self.shards {
            shard.entry.lock().is_stopped = true;
        }
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Says that no group will be synced any more: transactions are refused, and whoever waits is
    /// told.
    pub fn fail(&self) {
        self.stop();
        self.state.lock().has_failed = true;
        self.changed.notify_all();
    }

    /// Says that nothing is to be synced any more, and refuses transactions. What is wanted
    /// already is synced first.
    pub fn finish(&self) {
        self.stop();
        self.state.lock().is_finished = true;
        self.changed.notify_all();
    }

    /// For the thread that syncs: waits until there is something to do, or `deadline` has passed.
    ///
    /// A group is to be synced when it is old enough, large enough, or wanted.
    pub fn wait_for_work(&self, deadline: Instant) -> Work {
        let mut state = self.state.lock();
        loop {
            let due = state.opened + self.options.timeout;
            let now = Instant::now();
            if state.wanted >= state.open {
                return Work::Sync;
            }
            if state.is_finished {
                return Work::Finished;
            }
            if now >= due {
                return Work::Sync;
            }
            if now >= deadline {
                return Work::Nothing;
            }
            self.changed.wait_until(&mut state, due.min(deadline));
        }
    }

    /// For the thread that syncs: opens the next group and waits until the transactions of this
    /// one have left.
    #[must_use]
    pub fn quiesce(self: &Arc<Self>) -> QuiescedTxg {
        let mut entries: Vec<_> = self.shards.iter().map(|shard| shard.entry.lock()).collect();
        let mut state = self.state.lock();
        let txg = state.open;
        state.open = txg.next();
        state.opened = Instant::now();
        for entry in &mut entries {
            entry.open = state.open;
        }
        drop(entries);
        // Whoever leaves has given up the lock of the shard when it takes that of the state.
        let is_held = || self.shards.iter().any(|shard| shard.entry.lock().held[slot(txg)] != 0);
        while is_held() {
            self.changed.wait(&mut state);
        }
        QuiescedTxg { engine: Arc::clone(self), txg }
    }
}

/// A transaction: a guard that keeps its group from being synced.
#[derive(Debug)]
pub struct OpenTx {
    engine: Arc<TxgEngine>,
    txg: Txg,
    shard: usize,
    /// The objects that it may change.
    held: Vec<Entered>,
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

    /// Whether so many blocks on disk may die in its group besides those for which this was asked
    /// before; if so they are counted. What cannot be divided may be more than a group's share,
    /// but only alone.
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
        }
        is_counted
    }
}

impl Drop for OpenTx {
    fn drop(&mut self) {
        self.held.clear();
        self.engine.leave(self.txg, self.shard);
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

    /// Says that the group is on disk: its uberblock is durable, or it had no changes.
    pub fn committed(self) {
        self.engine.dirty[slot(self.txg)].store(0, Ordering::Relaxed);
        self.engine.frees[slot(self.txg)].store(0, Ordering::Relaxed);
        self.engine.state.lock().synced = self.txg;
        self.engine.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn engine(max: u64) -> Arc<TxgEngine> {
        let limits = DirtyLimits { max, ..DirtyLimits::of_memory(1 << 30) };
        let timeout = Duration::from_secs(3600);
        TxgEngine::new(Txg(7), TxgOptions { limits, timeout, max_frees: 10 })
    }

    #[test]
    fn a_group_frees_no_more_than_its_share() {
        let engine = engine(1 << 20);
        let tx = engine.begin_freeing(&[], Patience::Wait).unwrap();
        assert!(tx.claim_frees(7) && !tx.claim_frees(4) && tx.claim_frees(3) && tx.claim_frees(0));
        assert_eq!(engine.room_for_frees(), (Txg(8), 0));
        drop(tx);
        let quiesced = engine.quiesce();
        assert_eq!(engine.room_for_frees(), (Txg(9), 10));
        let tx = engine.begin_freeing(&[], Patience::Wait).unwrap();
        assert!(tx.claim_frees(11), "what cannot be divided");
        assert!(!tx.claim_frees(1));
        drop(tx);
        quiesced.committed();
        assert_eq!(engine.dirty_total(), 11 * DEAD_BLOCK);
    }

    #[test]
    fn removals_wait_while_all_that_may_be_dirty_is() {
        let engine = engine(1000);
        let tx = engine.begin(&[]).unwrap();
        engine.add_dirty(tx.txg(), 1500);
        drop(tx);
        let deadline = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| engine.begin_freeing(&[], Patience::Wait).unwrap().txg());
            assert_eq!(engine.wait_for_work(deadline), Work::Sync);
            let quiesced = engine.quiesce();
            assert!(!remover.is_finished());
            quiesced.committed();
            assert_eq!(remover.join().unwrap(), Txg(9));
        });
    }

    #[test]
    fn a_group_quiesces_when_its_transactions_have_left() {
        let engine = engine(1 << 20);
        let first = engine.begin(&[]).unwrap();
        assert_eq!(first.txg(), Txg(8));
        let left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| {
                let quiesced = engine.quiesce();
                assert!(left.load(Ordering::SeqCst), "quiesced with a transaction inside");
                quiesced
            });
            while engine.open_txg() == Txg(8) {
                std::thread::yield_now();
            }
            assert_eq!(engine.begin(&[]).unwrap().txg(), Txg(9));
            left.store(true, Ordering::SeqCst);
            drop(first);
            let quiesced = syncing.join().unwrap();
            assert_eq!(quiesced.txg(), Txg(8));
            assert_eq!(engine.synced_txg(), Txg(7));
            quiesced.committed();
            assert_eq!(engine.synced_txg(), Txg(8));
        });
    }

    #[test]
    fn writers_wait_when_too_much_is_dirty() {
        let engine = engine(1000);
        let tx = engine.begin(&[]).unwrap();
        engine.add_dirty(tx.txg(), 1500);
        drop(tx);
        let deadline = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| engine.begin(&[]).unwrap().txg());
            assert_eq!(engine.wait_for_work(deadline), Work::Sync, "dirty data asks for a sync");
            let quiesced = engine.quiesce();
            assert_eq!(quiesced.txg(), Txg(8));
            assert!(!writer.is_finished());
            quiesced.committed();
            assert_eq!(writer.join().unwrap(), Txg(9));
        });
        assert_eq!(engine.dirty_total(), 0);
    }

    #[test]
    fn waiters_get_their_group() {
        let engine = engine(1 << 20);
        let txg = engine.begin(&[]).unwrap().txg();
        let deadline = Instant::now() + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| engine.wait_synced(txg));
            assert_eq!(engine.wait_for_work(deadline), Work::Sync);
            engine.quiesce().committed();
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        assert_eq!(engine.wait_for_work(Instant::now()), Work::Nothing);
        engine.finish();
        assert_eq!(engine.wait_for_work(deadline), Work::Finished);
        assert_eq!(engine.begin(&[]).unwrap_err(), Stopped.into());
    }

    #[test]
    fn waiters_are_told_when_nothing_is_synced_any_more() {
        let engine = engine(1000);
        let tx = engine.begin(&[]).unwrap();
        engine.add_dirty(tx.txg(), 1500);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| engine.wait_synced(tx.txg()));
            let writer = scope.spawn(|| engine.begin(&[]).map(|tx| tx.txg()));
            engine.fail();
            assert_eq!(waiter.join().unwrap(), Err(Stopped));
            assert_eq!(writer.join().unwrap(), Err(Stopped.into()));
        });
    }

    #[test]
    fn nobody_waits_for_ever_while_a_pool_is_suspended() {
        let engine = engine(1 << 20);
        let txg = engine.begin(&[]).unwrap().txg();
        engine.suspend(WhileSuspended::Refuse);
        assert_eq!(engine.begin(&[]).map(drop), Err(Stopped.into()));
        assert_eq!(engine.begin_freeing(&[], Patience::Wait).map(drop), Err(Stopped.into()));
        assert_eq!(engine.begin_with(&[], Patience::Leave).map(drop), Err(Stopped.into()));
        assert_eq!(engine.wait_synced(txg), Err(Stopped));
        assert!(!engine.lets_wait());
        engine.wait_while_suspended();
        engine.suspend(WhileSuspended::Wait);
        assert!(engine.lets_wait());
        assert_eq!(engine.wait_synced_unless_suspended(txg), Err(Stopped));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| engine.begin(&[]).map(|tx| tx.txg()));
            let waiter = scope.spawn(|| engine.wait_synced(txg));
            assert!(engine.is_suspended() && !writer.is_finished() && !waiter.is_finished());
            engine.resume();
            assert_eq!(writer.join().unwrap(), Ok(txg));
            engine.quiesce().committed();
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        engine.suspend(WhileSuspended::Wait);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| engine.begin(&[]).map(drop));
            let waiter = scope.spawn(|| engine.wait_while_suspended());
            engine.fail();
            assert_eq!(writer.join().unwrap(), Err(Stopped.into()));
            waiter.join().unwrap();
        });
    }

    #[test]
    fn whoever_holds_locks_goes_on_in_memory_while_a_pool_is_suspended_and_leaves_when_it_is_full()
    {
        let engine = engine(1000);
        let txg = engine.open_txg();
        engine.suspend(WhileSuspended::Wait);
        let begin = || engine.begin_with(&[], Patience::Leave).map(|tx| tx.txg());
        let remove = || engine.begin_freeing(&[], Patience::Leave).map(|tx| tx.txg());
        engine.add_dirty(txg, 1200);
        assert_eq!((begin(), remove()), (Ok(txg), Ok(txg)));
        assert_eq!(engine.wait_synced_with(txg, Patience::Leave), Err(NotNow::Suspended));
        engine.add_dirty(txg, 100);
        let refused = Err(NotNow::Suspended);
        assert_eq!((begin(), remove()), (refused, refused));
        engine.resume();
        engine.quiesce().committed();
        assert_eq!((begin(), remove()), (Ok(txg.next()), Ok(txg.next())));
    }

    #[test]
    fn whoever_holds_locks_and_waits_for_room_leaves_when_the_pool_is_suspended() {
        let engine = engine(1000);
        engine.add_dirty(engine.open_txg(), 1500);
        std::thread::scope(|scope| {
            let begin = || engine.begin_with(&[], Patience::Leave).map(drop);
            let writer = scope.spawn(begin);
            engine.suspend(WhileSuspended::Wait);
            assert_eq!(writer.join().unwrap(), Err(NotNow::Suspended));
        });
    }

    #[test]
    fn transactions_of_many_threads_see_groups_in_order() {
        let engine = engine(1 << 20);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = Txg(0);
                    for _ in 0..2000 {
                        let tx = engine.begin(&[]).unwrap();
                        assert!(tx.txg() >= last);
                        assert!(engine.synced_txg() < tx.txg());
                        last = tx.txg();
                    }
                });
            }
            let syncer = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    engine.quiesce().committed();
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            done.store(true, Ordering::SeqCst);
            syncer.join().unwrap();
        });
    }
}
