//! Sweeping the free space of leaves: `zpool initialize` and `zpool trim` (spec 06, section 16;
//! spec 07, section 17).
//!
//! ```text
//! LivePool::sweep ── task: state of the leaf ──> a thread for each leaf
//!                                                  part of a metaslab rests, the device works on it
//! every txg ── task: how far the thread is         ... and so on to the end of the leaf
//!                                                task: complete
//! ```
//! A sweep that is active when the pool is left goes on when it is opened again, where it was
//! when the last txg was synced.

mod order;
mod walk;

pub use order::SweepOrder;

use crate::live::LiveError;
use crate::live::administration::TaskContext;
use crate::live::error::UnlessDamaged;
use crate::live::mos::MosTx;
use crate::live::mos::history::Event;
use crate::live::pool::{Inner, LivePool};
use crate::pool::{PoolError, SweepKind, SweepRecord, SweepState, leaf_zap};
use parking_lot::{Condvar, Mutex};
use rzfs_dmu::Objset;
use rzfs_format::Guid;
use rzfs_vdev::{Vdev, VdevTree};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Something that happened to a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepNews {
    /// It has begun.
    Started,
    /// It goes on after it was suspended, or after an import.
    Resumed,
    /// It was stopped and can go on.
    Suspended,
    /// It was given up.
    Cancelled,
    /// It has come to its end.
    Finished,
}

/// Told about sweeps when what happened is on disk, or about to be.
pub type SweepObserver = Box<dyn Fn(SweepKind, SweepNews, Vdev<'_>) + Send + Sync>;

/// What a sweep is of.
type SweepId = (Guid, SweepKind);

/// The sweeps of a pool.
#[derive(Default)]
pub(crate) struct Sweeps {
    all: Mutex<BTreeMap<SweepId, Sweep>>,
    /// One order at a time.
    turn: Mutex<Turn>,
    observer: Mutex<Option<SweepObserver>>,
}

impl fmt::Debug for Sweeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeps").field("all", &self.all).finish_non_exhaustive()
    }
}

/// Whether sweeps may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Turn {
    #[default]
    Open,
    /// The pool is being left.
    Ended,
}

/// A sweep that there is or was.
#[derive(Debug, Default)]
struct Sweep {
    record: SweepRecord,
    /// The last run of its thread; `None` if that was not started.
    run: Option<Arc<Run>>,
    thread: Option<JoinHandle<()>>,
}

/// A sweep that goes on.
#[derive(Debug)]
struct Run {
    /// Up to where the leaf is done, as [`SweepRecord::offset`] says it.
    offset: AtomicU64,
    /// What of it was stored last.
    stored: AtomicU64,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
    has_ended: AtomicBool,
}

impl Run {
    fn new(offset: u64) -> Arc<Self> {
        Arc::new(Self {
            offset: AtomicU64::new(offset),
            stored: AtomicU64::new(offset),
            is_stopped: Mutex::default(),
            stopped: Condvar::new(),
            has_ended: AtomicBool::new(false),
        })
    }

    fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.stopped.notify_all();
    }

    fn is_stopped(&self) -> bool {
        *self.is_stopped.lock()
    }

    /// Waits for some time; tells whether the sweep is to stop.
    fn wait(&self, time: Duration) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            self.stopped.wait_for(&mut is_stopped, time);
        }
        *is_stopped
    }
}

/// Says that nothing will be known of a sweep after the next import.
fn not_stored(error: &LiveError) {
    tracing::warn!(%error, "how far a sweep is cannot be stored");
}

impl Sweeps {
    /// What the ZAPs of leaves say.
    pub(crate) fn open(mos: &Objset, vdevs: &VdevTree) -> Result<Self, PoolError> {
        let mut all = BTreeMap::new();
        for leaf in vdevs.leaves() {
            let Some(zap) = leaf_zap(leaf) else { continue };
            for kind in SweepKind::ALL {
                let record = SweepRecord::read(mos, zap, kind)?;
                all.insert((leaf.guid(), kind), Sweep { record, ..Sweep::default() });
            }
        }
        Ok(Self { all: Mutex::new(all), ..Self::default() })
    }

    fn record(&self, id: SweepId) -> SweepRecord {
        self.all.lock().get(&id).map_or_else(SweepRecord::default, |sweep| sweep.record)
    }

    /// Ends a thread and waits for it; returns how far it got, if there was one.
    fn stop(&self, id: SweepId) -> Option<u64> {
        let mut all = self.all.lock();
        let sweep = all.get_mut(&id)?;
        let (run, thread) = (sweep.run.take(), sweep.thread.take());
        drop(all);
        let run = run?;
        run.stop();
        // A panic of it has been reported where it happened.
        let _ = thread.map(JoinHandle::join);
        Some(run.offset.load(Ordering::Acquire))
    }

    /// Ends all threads, and remembers how far they got.
    pub(crate) fn end(&self) {
        let mut turn = self.turn.lock();
        *turn = Turn::Ended;
        let ids: Vec<SweepId> = self.all.lock().keys().copied().collect();
        self.all.lock().values().filter_map(|sweep| sweep.run.as_ref()).for_each(|run| run.stop());
        for id in ids {
            let thread = self.all.lock().get_mut(&id).and_then(|sweep| sweep.thread.take());
            let _ = thread.map(JoinHandle::join);
        }
    }

    fn tell(&self, kind: SweepKind, news: SweepNews, leaf: Vdev<'_>) {
        if let Some(observer) = &*self.observer.lock() {
            observer(kind, news, leaf);
        }
    }

    /// Has this txg remember how far sweeps are.
    pub(crate) fn store(&self, mos: &MosTx<'_>, vdevs: &VdevTree) -> Result<(), LiveError> {
        let moved = |(id, sweep): (&SweepId, &Sweep)| {
            let run = sweep.run.as_ref()?;
            let offset = run.offset.load(Ordering::Acquire);
            (run.stored.swap(offset, Ordering::AcqRel) != offset).then_some((*id, offset))
        };
        let moved: Vec<_> = self.all.lock().iter().filter_map(moved).collect();
        for ((leaf, kind), offset) in moved {
            if let Some(zap) = vdevs.by_guid(leaf).and_then(leaf_zap) {
                let stored = mos.set(zap, kind.keys().offset, offset);
                stored.unless_damaged(not_stored)?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Starts the thread of a sweep, and tells that. When the system has no thread for it, it waits
    /// for the next round of [`Inner::resume_sweeps`].
    fn start_sweep(self: &Arc<Self>, id: SweepId, news: SweepNews) {
        let mut all = self.sweeps.all.lock();
        let sweep = all.entry(id).or_default();
        let run = Run::new(sweep.record.offset);
        let rate = sweep.record.rate;
        let (inner, of_thread) = (Arc::clone(self), Arc::clone(&run));
        let work = move || {
            inner.run_sweep(id, rate, &of_thread);
            of_thread.has_ended.store(true, Ordering::Release);
        };
        match std::thread::Builder::new().name("rzfs-sweep".to_owned()).spawn(work) {
            Ok(thread) => (sweep.run, sweep.thread) = (Some(run), Some(thread)),
            Err(error) => {
                tracing::warn!(%error, "a sweep waits until there is a thread for it");
                return;
            }
        }
        drop(all);
        self.tell_of_sweep(id, news);
    }

    fn tell_of_sweep(&self, (leaf, kind): SweepId, news: SweepNews) {
        if let Some(leaf) = self.vdevs().by_guid(leaf) {
            self.sweeps.tell(kind, news, leaf);
        }
    }

    /// Goes on with all sweeps that are active and do not run: leaves can be written again, or the
    /// system has threads again.
    pub(crate) fn resume_sweeps(self: &Arc<Self>) {
        let turn = self.sweeps.turn.lock();
        if *turn == Turn::Ended {
            return;
        }
        let vdevs = self.vdevs();
        let rests = |(id, sweep): (&SweepId, &Sweep)| {
            let runs = sweep.run.as_ref().is_some_and(|run| !run.has_ended.load(Ordering::Acquire));
            let is_active = sweep.record.state == SweepState::Active;
            (is_active && !runs && !sweep.record.is_secure).then_some(*id)
        };
        let resting: Vec<SweepId> = self.sweeps.all.lock().iter().filter_map(rests).collect();
        for id in resting {
            if !vdevs.by_guid(id.0).is_some_and(|leaf| leaf.health().is_usable()) {
                continue;
            }
            if let Some(offset) = self.sweeps.stop(id)
                && let Some(sweep) = self.sweeps.all.lock().get_mut(&id)
            {
                sweep.record.offset = offset;
            }
            self.start_sweep(id, SweepNews::Resumed);
        }
    }

    /// A sweep has come to its end: that of its leaf, or because the device cannot do it.
    fn finish_sweep(&self, (leaf, kind): SweepId, offset: u64, news: SweepNews) {
        let (state, what) = match news {
            SweepNews::Finished => (SweepState::Complete, "complete"),
            _ => (SweepState::Cancelled, "canceled"),
        };
        let action_time = self.environment.now();
        let record = {
            let mut all = self.sweeps.all.lock();
            let sweep = all.entry((leaf, kind)).or_default();
            sweep.record = SweepRecord { state, offset, action_time, ..sweep.record };
            sweep.record
        };
        let posted = self.post(Box::new(move |context| {
            context.store_sweep(leaf, kind, &record).unless_damaged(not_stored)?;
            context.log_sweep(leaf, kind, what)
        }));
        if posted.is_ok() {
            self.tell_of_sweep((leaf, kind), news);
        }
    }
}

impl LivePool {
    /// Tells somebody what happens to sweeps; whoever was told before is not any more.
    pub fn observe_sweeps(&self, observer: SweepObserver) {
        *self.inner().sweeps.observer.lock() = Some(observer);
    }
}

impl TaskContext<'_> {
    /// Stores what is remembered of a sweep.
    fn store_sweep(
        &mut self,
        leaf: Guid,
        kind: SweepKind,
        record: &SweepRecord,
    ) -> Result<(), LiveError> {
        let Some(zap) = self.vdevs.by_guid(leaf).and_then(leaf_zap) else { return Ok(()) };
        let keys = kind.keys();
        self.mos.set(zap, keys.offset, record.offset)?;
        self.mos.set(zap, keys.action_time, record.action_time)?;
        self.mos.set(zap, keys.state, record.state.number())
    }

    fn log_sweep(&mut self, leaf: Guid, kind: SweepKind, what: &str) -> Result<(), LiveError> {
        let operation = match kind {
            SweepKind::Initialize => "initialize",
            SweepKind::Trim => "trim",
        };
        self.log_leaf(operation, leaf, what)
    }

    fn log_leaf(
        &mut self,
        operation: &'static str,
        leaf: Guid,
        what: &str,
    ) -> Result<(), LiveError> {
        let name = self.vdevs.by_guid(leaf).map(|leaf| leaf.name().to_owned()).unwrap_or_default();
        let text = format!("vdev={name} {what}").trim_end().to_owned();
        self.log(&Event::Internal { operation, text, dataset: None })
    }
}
