//! The sweeps of a pool, and their threads.

use super::news::{SweepEvent, SweepId, SweepObserver};
use super::run::Run;
use super::walk;
use crate::live::LiveError;
use crate::live::administration::{TaskContext, Tasks};
use crate::live::devices::current::PoolDevices;
use crate::live::environment::Environment;
use crate::live::error::UnlessDamaged;
use crate::mos::history::Event;
use crate::mos::live::MosTx;
use crate::pool::{PoolError, SweepKind, SweepRecord, SweepState, leaf_zap};
use parking_lot::Mutex;
use rzfs_dmu::Objset;
use rzfs_format::Guid;
use rzfs_metaslab::allocator::Allocator;
use rzfs_tunables::Tunables;
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// The records of a pool's sweeps.
#[derive(Debug, Default)]
pub(crate) struct SweepRecords(BTreeMap<SweepId, SweepRecord>);

impl SweepRecords {
    /// Reads the records in the ZAPs of leaves.
    pub(crate) fn read(mos: &Objset, vdevs: &VdevTree) -> Result<Self, PoolError> {
        let mut records = BTreeMap::new();
        for leaf in vdevs.leaves() {
            let Some(zap) = leaf_zap(leaf) else { continue };
            for kind in SweepKind::ALL {
                records.insert((leaf.guid(), kind), SweepRecord::read(mos, zap, kind)?);
            }
        }
        Ok(Self(records))
    }
}

/// The sweeps of a pool.
pub(crate) struct Sweeps {
    pub(super) all: Mutex<BTreeMap<SweepId, Sweep>>,
    /// Serializes orders.
    pub(super) turn: Mutex<Turn>,
    observer: Mutex<Option<SweepObserver>>,
    pub(super) devices: Arc<PoolDevices>,
    pub(super) allocator: Arc<Allocator>,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) tasks: Arc<Tasks>,
    tunables: Tunables,
}

impl fmt::Debug for Sweeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeps").field("all", &self.all).finish_non_exhaustive()
    }
}

/// Whether sweeps may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Turn {
    #[default]
    Open,
    /// The pool is being closed.
    Ended,
}

/// A current or past sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) record: SweepRecord,
    /// The last run of its thread; `None` if it was not started.
    run: Option<Arc<Run>>,
    thread: Option<JoinHandle<()>>,
}

/// Logs that a sweep's state is lost after the next import.
fn warn_not_stored(error: &LiveError) {
    tracing::warn!(%error, "how far a sweep is cannot be stored");
}

impl Sweeps {
    pub(crate) fn new(
        records: SweepRecords,
        devices: &Arc<PoolDevices>,
        allocator: &Arc<Allocator>,
        environment: &Arc<dyn Environment>,
        tasks: &Arc<Tasks>,
        tunables: &Tunables,
    ) -> Self {
        let sweep = |(id, record)| (id, Sweep { record, ..Sweep::default() });
        Self {
            all: Mutex::new(records.0.into_iter().map(sweep).collect()),
            turn: Mutex::default(),
            observer: Mutex::default(),
            devices: Arc::clone(devices),
            allocator: Arc::clone(allocator),
            environment: Arc::clone(environment),
            tasks: Arc::clone(tasks),
            tunables: *tunables,
        }
    }

    /// Sets the observer of sweep events, replacing the previous one.
    pub(crate) fn observe(&self, observer: SweepObserver) {
        *self.observer.lock() = Some(observer);
    }

    pub(super) fn record(&self, id: SweepId) -> SweepRecord {
        self.all.lock().get(&id).map_or_else(SweepRecord::default, |sweep| sweep.record)
    }

    /// Stops a thread and waits for it; returns its progress, if there was one.
    pub(super) fn stop(&self, id: SweepId) -> Option<u64> {
        let mut all = self.all.lock();
        let sweep = all.get_mut(&id)?;
        let (run, thread) = (sweep.run.take(), sweep.thread.take());
        drop(all);
        let run = run?;
        run.stop();
        // A panic in it has been reported where it happened.
        let _ = thread.map(JoinHandle::join);
        Some(run.offset.load(Ordering::Acquire))
    }

    /// Stops all threads, and records their progress.
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

    pub(super) fn tell(&self, (leaf, kind): SweepId, news: SweepEvent) {
        if let Some(leaf) = self.devices.vdevs().by_guid(leaf)
            && let Some(observer) = &*self.observer.lock()
        {
            observer(kind, news, leaf);
        }
    }

    /// Stores the progress of sweeps with this txg.
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
                stored.unless_damaged(warn_not_stored)?;
            }
        }
        Ok(())
    }

    /// Starts the thread of a sweep and reports it. If the system cannot start a thread, it waits
    /// for the next round of [`Sweeps::resume`].
    pub(super) fn start(self: &Arc<Self>, id: SweepId, news: SweepEvent) {
        let mut all = self.all.lock();
        let sweep = all.entry(id).or_default();
        let run = Run::new(sweep.record.offset, self.environment.clock());
        let rate = sweep.record.rate;
        let (sweeps, of_thread) = (Arc::clone(self), Arc::clone(&run));
        let work = move || {
            let surroundings = (&*sweeps.devices, &*sweeps.allocator);
            let pace = (rate, &sweeps.tunables);
            if let Some(news) = walk::sweep(id, pace, &of_thread, surroundings) {
                sweeps.finish(id, of_thread.offset.load(Ordering::Acquire), news);
            }
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
        self.tell(id, news);
    }

    /// Resumes all active sweeps that are not running: leaves may be writable again, or the system
    /// may have threads again.
    pub(crate) fn resume(self: &Arc<Self>) {
        let turn = self.turn.lock();
        if *turn == Turn::Ended {
            return;
        }
        let vdevs = self.devices.vdevs();
        let rests = |(id, sweep): (&SweepId, &Sweep)| {
            let runs = sweep.run.as_ref().is_some_and(|run| !run.has_ended.load(Ordering::Acquire));
            let is_active = sweep.record.state == SweepState::Active;
            (is_active && !runs && !sweep.record.is_secure).then_some(*id)
        };
        let resting: Vec<SweepId> = self.all.lock().iter().filter_map(rests).collect();
        for id in resting {
            if !vdevs.by_guid(id.0).is_some_and(|leaf| leaf.health().is_usable()) {
                continue;
            }
            if let Some(offset) = self.stop(id)
                && let Some(sweep) = self.all.lock().get_mut(&id)
            {
                sweep.record.offset = offset;
            }
            self.start(id, SweepEvent::Resumed);
        }
    }

    /// Ends a sweep that reached the end of its leaf, or that the device does not support.
    fn finish(&self, (leaf, kind): SweepId, offset: u64, news: SweepEvent) {
        let (state, what) = match news {
            SweepEvent::Finished => (SweepState::Complete, "complete"),
            _ => (SweepState::Cancelled, "canceled"),
        };
        let action_time = self.environment.now();
        let record = {
            let mut all = self.all.lock();
            let sweep = all.entry((leaf, kind)).or_default();
            sweep.record = SweepRecord { state, offset, action_time, ..sweep.record };
            sweep.record
        };
        let posted = self.tasks.post(Box::new(move |context| {
            context.store_sweep(leaf, kind, &record).unless_damaged(warn_not_stored)?;
            context.log_sweep(leaf, kind, what)
        }));
        if posted.is_ok() {
            self.tell((leaf, kind), news);
        }
    }
}

impl TaskContext<'_> {
    /// Stores the record of a sweep.
    pub(super) fn store_sweep(
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

    pub(super) fn log_sweep(
        &mut self,
        leaf: Guid,
        kind: SweepKind,
        what: &str,
    ) -> Result<(), LiveError> {
        let operation = match kind {
            SweepKind::Initialize => "initialize",
            SweepKind::Trim => "trim",
        };
        self.log_leaf(operation, leaf, what)
    }

    pub(super) fn log_leaf(
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
