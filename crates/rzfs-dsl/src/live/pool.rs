//! A pool open for writing.

mod administration;
mod receiving;

pub use receiving::Receiving;

use super::administration::Tasks;
use super::background::sweep::{SweepObserver, SweepOrder, Sweeps};
use super::background::trim::Trimmer;
use super::change_error::ChangeError;
use super::datasets::budget::HeadBudget;
use super::datasets::generation::Generation;
use super::datasets::head::LiveDataset;
use super::datasets::heads::Heads;
use super::devices::current::PoolDevices;
use super::devices::growth::Growth;
use super::devices::heartbeat::HeartbeatControl;
use super::durable::Durable;
use super::environment::Environment;
use super::error::LiveError;
use super::log::claim::DroppedLog;
use super::log::{HeadLog, LogEnvironment, ZilStats};
use super::space::accounts::Accounts;
use super::suspension::Suspension;
use super::view::PriorState;
use crate::dataset::{Dataset, DatasetError, DatasetTree};
use crate::import::MissingLogs;
use crate::mos::history::Event;
use crate::pool::{FailMode, Pool, PoolError, SweepKind};
use parking_lot::Mutex;
use rzfs_blockdev::BlockDevice;
use rzfs_dmu::txg::{Stopped, TxgEngine};
use rzfs_dmu::{BlockPipeline, Objset};
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};
use rzfs_tunables::Tunables;
use rzfs_vdev::{LeafDevices, TrimReport, VdevTree};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A pool open for writing; dropping the last handle stops its threads without exporting it.
pub struct LivePool {
    pub(super) name: String,
    pub(super) tunables: Tunables,
    pub(super) found: PriorState,
    pub(super) pipeline: Arc<BlockPipeline>,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) engine: Arc<TxgEngine>,
    pub(super) devices: Arc<PoolDevices>,
    pub(super) growth: Arc<Growth>,
    pub(super) durable: Arc<Durable>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) heads: Arc<Heads>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) log: Arc<LogEnvironment>,
    pub(super) heart: Arc<HeartbeatControl>,
    pub(super) sweeps: Arc<Sweeps>,
    pub(super) trimmer: Arc<Trimmer>,
    pub(super) suspension: Arc<Suspension>,
    /// Held while a receive ends: the receiver has released it by then.
    pub(super) ending_receive: Mutex<()>,
    pub(super) threads: Mutex<Threads>,
}

/// The threads of a pool.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub(super) sync: Option<JoinHandle<()>>,
    pub(super) others: Vec<JoinHandle<()>>,
}

impl fmt::Debug for LivePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("LivePool");
        f.field("name", &self.name).field("durable", &self.durable).finish_non_exhaustive()
    }
}

/// Identity and reading.
impl LivePool {
    /// The tunables it was opened with.
    #[must_use]
    pub const fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What happens to intent logs that cannot be read.
    #[must_use]
    pub const fn missing_logs(&self) -> MissingLogs {
        self.found.missing_logs
    }

    /// The intent logs of which not everything could be done, for somebody who tells people: each is
    /// there once.
    #[must_use]
    pub fn take_dropped_logs(&self) -> Vec<DroppedLog> {
        std::mem::take(&mut *self.found.dropped_logs.lock())
    }

    /// Notes that not everything of an intent log could be done.
    pub fn note_dropped_log(&self, log: DroppedLog) {
        self.found.dropped_logs.lock().push(log);
    }

    /// Its transaction groups.
    #[must_use]
    pub const fn engine(&self) -> &Arc<TxgEngine> {
        &self.engine
    }

    /// Its current vdevs.
    #[must_use]
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.devices.vdevs()
    }

    /// Reads its blocks.
    #[must_use]
    pub const fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.pipeline
    }

    /// The counters of its intent logs.
    #[must_use]
    pub fn log_stats(&self) -> ZilStats {
        self.log.counters.read()
    }

    /// The last txg on disk.
    #[must_use]
    pub fn synced_txg(&self) -> Txg {
        self.engine.synced_txg()
    }

    /// The uberblock of the last txg on disk that changed anything.
    #[must_use]
    pub fn uberblock(&self) -> Uberblock {
        self.durable.uberblock()
    }

    /// The MOS of that uberblock, which reads use.
    #[must_use]
    pub fn mos(&self) -> Objset {
        self.durable.mos()
    }

    /// Its datasets on disk: those of the last txg that changed anything.
    ///
    /// # Errors
    /// The object directory cannot be read.
    pub fn dataset_tree(&self) -> Result<DatasetTree, DatasetError> {
        self.durable.dataset_tree()
    }

    /// The pool as it is on disk at this moment.
    ///
    /// Blocks that are freed afterwards keep their contents while the view, or anything opened
    /// through it, exists, unless the pool gets short of space. So views are for short use only.
    ///
    /// # Errors
    /// [`PoolError`]: the object directory, the configuration or the features cannot be read.
    pub fn view(&self) -> Result<Pool, PoolError> {
        self.durable.view(&self.devices, &self.found)
    }

    /// Writes all changes so far and waits for that, but not for failing devices.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended, see [`LivePool::failure`].
    pub fn sync(&self) -> Result<(), Stopped> {
        self.engine.wait_synced_unless_suspended(self.engine.open_txg())
    }

    fn sync_or_refuse(&self) -> Result<(), ChangeError> {
        self.sync().map_err(|Stopped| ChangeError::Suspended { reason: self.failure() })
    }

    /// Appends an event to the pool's history, with the next txg.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn log(&self, event: Event) -> Result<(), Stopped> {
        self.tasks.administer(move |context| Ok(context.log(&event)?)).map_err(|_| Stopped)
    }
}

/// Changing the contents of its datasets.
impl LivePool {
    /// The heads open for changes.
    #[must_use]
    pub fn datasets(&self) -> Vec<Arc<LiveDataset>> {
        self.heads.all()
    }

    /// Opens a head for changes.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read, is a snapshot, or a receive into it is unfinished.
    pub fn open_dataset(&self, dataset: &Dataset) -> Result<Arc<LiveDataset>, DatasetError> {
        self.heads.open(dataset)
    }

    /// The space budget of an open head.
    #[must_use]
    pub fn budget(&self, dataset: &Arc<LiveDataset>) -> HeadBudget {
        HeadBudget::new(&self.accounts, dataset)
    }

    /// The intent log of an open head, for as long as it has these contents.
    #[must_use]
    pub fn intent_log(&self, dataset: &Arc<LiveDataset>, contents: &Arc<Generation>) -> HeadLog {
        HeadLog::new(&self.log, dataset, contents)
    }
}

/// Free space of devices, and failing devices.
impl LivePool {
    /// Starts or stops sweeps of the free space of leaves. Returns the refused ones; the others are
    /// on disk as requested. The work itself is done in the background.
    ///
    /// # Errors
    /// [`ChangeError`]: the pool is suspended.
    pub fn sweep(
        &self,
        kind: SweepKind,
        leaves: &[Guid],
        order: SweepOrder,
    ) -> Result<Vec<(Guid, ChangeError)>, ChangeError> {
        self.sweeps.order(kind, leaves, order)
    }

    /// Sets the observer of sweep events, replacing the previous one.
    pub fn observe_sweeps(&self, observer: SweepObserver) {
        self.sweeps.observe(observer);
    }

    /// Trims what was freed since the last time, if the pool has `autotrim` on, without waiting for
    /// the next round.
    pub fn trim_freed(&self) -> TrimReport {
        self.trimmer.trim_freed()
    }

    /// Marks the pool as attended: from now on it waits for failing devices
    /// ([`Attendance::Later`](super::Attendance::Later)).
    pub fn attend(&self) {
        self.suspension.begin();
    }

    /// Whether the pool waits for its devices.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.engine.is_suspended()
    }

    /// Why the pool is suspended, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<LiveError>> {
        self.suspension.reason()
    }

    /// The error that stopped the pool; there always is one by then.
    pub(super) fn why_stopped(&self) -> LiveError {
        LiveError::Suspended { reason: self.failure() }
    }

    /// What happens to writers while the pool cannot write (`failmode`).
    #[must_use]
    pub fn fail_mode(&self) -> FailMode {
        self.suspension.fail_mode()
    }

    /// Clears the errors of a vdev and its descendants, or of all vdevs; uses responding devices
    /// again, and resumes a suspended pool.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such vdev, or the pool is suspended again, or for good.
    pub fn clear(&self, vdev: Option<Guid>) -> Result<(), ChangeError> {
        self.clear_with(vdev, &HashMap::<Guid, Arc<dyn BlockDevice>>::new())
    }

    /// As [`LivePool::clear`]; `devices` opens devices that were missing, or have come back.
    ///
    /// # Errors
    /// As [`LivePool::clear`].
    pub fn clear_with(
        &self,
        vdev: Option<Guid>,
        devices: &dyn LeafDevices,
    ) -> Result<(), ChangeError> {
        let trust = self.vdevs().trust_in_logs();
        if !self.vdevs().clear(vdev, devices) {
            return Err(ChangeError::NoSuchDevice);
        }
        self.accounts.allocator().retry_maps();
        // Acknowledged data must not depend on logs that may have lost it.
        let lost_trust = self.vdevs().trust_in_logs() != trust;
        if self.suspension.resume() || self.failure().is_some() || lost_trust {
            self.sync_or_refuse()?;
        }
        self.sweeps.resume();
        Ok(())
    }

    /// Stops waiting for devices: waiters get an error, and nothing is written any longer. A pool
    /// that is not suspended does not wait later either.
    pub fn give_up_waiting(&self) {
        self.suspension.give_up();
    }
}

/// Closing (spec 01, section 12).
impl LivePool {
    /// Writes everything and marks the pool as exported: any host may then import it.
    ///
    /// # Errors
    /// [`NotExported`]: the pool is suspended; its last durable state can be imported with `-f`.
    pub fn export(self) -> Result<(), NotExported> {
        self.end(PoolState::Exported)
    }

    /// Writes everything and marks the pool as destroyed; its contents stay until the devices are
    /// reused.
    ///
    /// # Errors
    /// As [`LivePool::export`].
    pub fn destroy(self) -> Result<(), NotExported> {
        self.end(PoolState::Destroyed)
    }

    fn end(self, state: PoolState) -> Result<(), NotExported> {
        let end = || -> Result<(), ChangeError> {
            self.sweeps.end();
            self.sync_or_refuse()?;
            // Importing is faster without logs to replay.
            if state == PoolState::Exported {
                self.accounts.allocator().flush_for_export();
            }
            self.tasks.administer(move |context| {
                context.state.config.state = state;
                context.vdevs.mark_all_configs_dirty();
                Ok(())
            })?;
            // Nothing later would store what a leaf missed at the very end. The pool is exported
            // already.
            if self.vdevs().has_changed_dirty_times() && self.sync().is_err() {
                tracing::warn!("what a leaf has missed at last is not recorded");
            }
            Ok(())
        };
        let result = end().map_err(|_| NotExported { reason: self.failure() });
        self.stop();
        result
    }

    /// Stops the threads, after the requested groups.
    fn stop(&self) {
        self.suspension.give_up();
        self.sweeps.end();
        self.engine.finish();
        self.trimmer.end();
        let Threads { sync, others } = std::mem::take(&mut *self.threads.lock());
        // A panic of a thread has been reported where it happened.
        let _ = sync.map(JoinHandle::join);
        // The heartbeat runs while there is something to sync.
        self.heart.end();
        for thread in others {
            let _ = thread.join();
        }
    }
}

impl Drop for LivePool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A pool could not be exported.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the pool is suspended{}", reason.as_ref().map_or_else(String::new, |r| format!(": {r}")))]
pub struct NotExported {
    /// What went wrong.
    pub reason: Option<Arc<LiveError>>,
}
