//! A pool that is open for writing.

use super::administration::{
    Inherit, KeyChange, NewDataset, Outcome, PruneLimit, Tasks, prune_dedup, unload_key,
};
use super::background::sweep::{SweepObserver, SweepOrder, Sweeps};
use super::background::trim::Trimmer;
use super::change_error::ChangeError;
use super::datasets::budget::HeadBudget;
use super::datasets::head::LiveDataset;
use super::datasets::heads::Heads;
use super::devices::current::PoolDevices;
use super::devices::growth::{AddedVdevs, Growth};
use super::devices::heartbeat::Heart;
use super::durable::Durable;
use super::environment::Environment;
use super::error::LiveError;
use super::log::claim::GivenUpLog;
use super::log::{HeadLog, LogSurroundings};
use super::mos::history::Event;
use super::space::accounts::Accounts;
use super::suspension::Suspension;
use super::view::Found;
use crate::dataset::{Dataset, DatasetError, DatasetTree};
use crate::import::MissingLogs;
use crate::pool::{FailMode, Pool, PoolError, SweepKind};
use parking_lot::Mutex;
use rzfs_blockdev::BlockDevice;
use rzfs_dmu::txg::{Stopped, TxgEngine};
use rzfs_dmu::{BlockPipeline, Objset};
use rzfs_format::features::Feature;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};
use rzfs_vdev::{LeafDevices, TrimReport, VdevTree};
use rzfs_zap::ZapValue;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A pool that is open for writing; the last one who drops it stops its threads without exporting
/// it.
pub struct LivePool {
    pub(super) name: String,
    pub(super) found: Found,
    pub(super) pipeline: Arc<BlockPipeline>,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) engine: Arc<TxgEngine>,
    pub(super) devices: Arc<PoolDevices>,
    pub(super) growth: Arc<Growth>,
    pub(super) durable: Arc<Durable>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) heads: Arc<Heads>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) log: Arc<LogSurroundings>,
    pub(super) heart: Arc<Heart>,
    pub(super) sweeps: Arc<Sweeps>,
    pub(super) trimmer: Arc<Trimmer>,
    pub(super) suspension: Arc<Suspension>,
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

/// What it is, and how it is read.
impl LivePool {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What becomes of intent logs that cannot be read.
    #[must_use]
    pub const fn missing_logs(&self) -> MissingLogs {
        self.found.missing_logs
    }

    /// The intent logs that could not be followed to their ends when the pool was opened, and were
    /// given up.
    #[must_use]
    pub fn given_up_logs(&self) -> &[GivenUpLog] {
        &self.found.given_up_logs
    }

    /// Its transaction groups.
    #[must_use]
    pub const fn engine(&self) -> &Arc<TxgEngine> {
        &self.engine
    }

    /// Its vdevs, as they are now.
    #[must_use]
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.devices.vdevs()
    }

    /// What its blocks are read through.
    #[must_use]
    pub const fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.pipeline
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

    /// The MOS of that uberblock: what reading goes by.
    #[must_use]
    pub fn mos(&self) -> Objset {
        self.durable.mos()
    }

    /// Its datasets as they are on disk: those of the last txg that changed anything.
    ///
    /// # Errors
    /// The object directory cannot be read.
    pub fn dataset_tree(&self) -> Result<DatasetTree, DatasetError> {
        self.durable.dataset_tree()
    }

    /// The pool as it is on disk at this moment.
    ///
    /// Blocks that are freed afterwards keep their contents while the view, or anything opened
    /// through it, exists, unless the pool gets short of space. So views are for looking, not for
    /// keeping.
    ///
    /// # Errors
    /// [`PoolError`]: the object directory, the configuration or the features cannot be read.
    pub fn view(&self) -> Result<Pool, PoolError> {
        self.durable.view(&self.devices, &self.found)
    }

    /// Has everything that was changed so far written, and waits for it; not for devices that fail.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended, see [`LivePool::failure`].
    pub fn sync(&self) -> Result<(), Stopped> {
        self.engine.wait_synced_unless_suspended(self.engine.open_txg())
    }

    fn sync_or_refuse(&self) -> Result<(), ChangeError> {
        self.sync().map_err(|Stopped| ChangeError::Suspended { reason: self.failure() })
    }

    /// Remembers an event in the pool's history, with the next txg.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn log(&self, event: Event) -> Result<(), Stopped> {
        self.tasks.administer(move |context| Ok(context.log(&event)?)).map_err(|_| Stopped)
    }
}

/// Changing the contents of its datasets.
impl LivePool {
    /// The heads that are open for changes.
    #[must_use]
    pub fn datasets(&self) -> Vec<Arc<LiveDataset>> {
        self.heads.all()
    }

    /// Opens a head for changes.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read, or is a snapshot.
    pub fn open_dataset(&self, dataset: &Dataset) -> Result<Arc<LiveDataset>, DatasetError> {
        self.heads.open(dataset)
    }

    /// The budget of a head that is open.
    #[must_use]
    pub fn budget(&self, dataset: &Arc<LiveDataset>) -> HeadBudget {
        HeadBudget::new(&self.accounts, dataset)
    }

    /// The intent log of a head that is open.
    #[must_use]
    pub fn intent_log(&self, dataset: &Arc<LiveDataset>) -> HeadLog {
        HeadLog::new(&self.log, dataset)
    }
}

/// Administration of datasets. A change is on disk when a method returns.
impl LivePool {
    /// Makes a file system or volume, which is open for changes then.
    ///
    /// Limits on the number of file systems are not enforced: they do not hold for those who may
    /// change them.
    ///
    /// # Errors
    /// [`ChangeError`]: the name is taken or impossible, what is above it is no file system, or a
    /// property cannot have its value.
    pub fn create_dataset(
        &self,
        name: &str,
        new: NewDataset,
    ) -> Result<Arc<LiveDataset>, ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.create_dataset(&name, &new))
    }

    /// Gives a file system or volume, and all below it, another name.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, the new name is taken or impossible, or what is
    /// above it is no file system or has no room.
    pub fn rename_dataset(&self, from: &str, to: &str) -> Result<(), ChangeError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.tasks.administer(move |context| context.rename_dataset(&from, &to))
    }

    /// Destroys a file system, volume or clone that has no snapshots and nothing below it. Its
    /// space comes back in the background, but for what damage hides.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, it is in use, or it has children or snapshots.
    pub fn destroy_dataset(&self, name: &str) -> Result<(), ChangeError> {
        loop {
            let name = name.to_owned();
            match self.tasks.administer(move |context| context.destroy_dataset(&name))? {
                Outcome::Destroyed => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Sets properties of a file system, volume or snapshot: all of them, or none. What is open is
    /// written accordingly when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]: a property does not exist, does not apply or cannot have the value.
    pub fn set_properties(
        &self,
        name: &str,
        properties: &[(String, ZapValue)],
    ) -> Result<(), ChangeError> {
        let (name, properties) = (name.to_owned(), properties.to_vec());
        self.tasks.administer(move |context| context.set_properties(&name, &properties))
    }

    /// Sets one property, as [`LivePool::set_properties`] does.
    ///
    /// # Errors
    /// As there.
    pub fn set_property(
        &self,
        name: &str,
        property: &str,
        value: ZapValue,
    ) -> Result<(), ChangeError> {
        self.set_properties(name, &[(property.to_owned(), value)])
    }

    /// Takes a property's own value away.
    ///
    /// # Errors
    /// [`ChangeError`]: the property does not exist, does not apply or is not inherited.
    pub fn inherit_property(
        &self,
        name: &str,
        property: &str,
        inherit: Inherit,
    ) -> Result<(), ChangeError> {
        let (name, property) = (name.to_owned(), property.to_owned());
        self.tasks.administer(move |context| context.inherit_property(&name, &property, inherit))
    }

    /// Gives an encrypted dataset another key: the keys of its blocks are wrapped anew, here and
    /// in all datasets below that have their key from it. Their contents stay as they are.
    ///
    /// # Errors
    /// [`ChangeError`]: the dataset is not encrypted or a clone, a key that is needed is not
    /// loaded, or there is none to inherit.
    pub fn change_key(&self, name: &str, change: KeyChange) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.change_key(&name, &change))
    }

    /// Forgets the key of an encryption root. Nothing that was encrypted with it may be in use.
    ///
    /// # Errors
    /// [`ChangeError`]: it is no encryption root, its key is not loaded, or is in use.
    pub fn unload_key(&self, name: &str) -> Result<(), ChangeError> {
        let root = self.dataset_tree()?.open(name)?;
        unload_key(&root, &self.heads, || self.sync_or_refuse())
    }
}

/// Administration of the pool. A change is on disk when a method returns.
impl LivePool {
    /// Sets a property of the pool: a number or text, as it is stored; `bootfs` by the name of the
    /// dataset.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such property, or it cannot have the value.
    pub fn set_pool_property(&self, property: &str, value: ZapValue) -> Result<(), ChangeError> {
        let property = property.to_owned();
        self.tasks.administer(move |context| context.set_pool_property(&property, &value))
    }

    /// Enables features, and those that they depend on. Those that are enabled already stay so.
    ///
    /// Compression that follows from a new feature, as that of metadata with lz4, is used when the
    /// pool is opened the next time.
    ///
    /// # Errors
    /// [`ChangeError`]: the pool's version has no features, or this software does not have one of
    /// them.
    pub fn enable_features(&self, features: &[Feature]) -> Result<(), ChangeError> {
        let features = features.to_vec();
        self.tasks.administer(move |context| context.enable_features(&features))
    }

    /// Raises the pool's version; with 5000 it has features, none of which is enabled.
    ///
    /// # Errors
    /// [`ChangeError`]: the version does not exist or is not later than the pool's, or the pool is
    /// older than version 26.
    pub fn upgrade_version(&self, version: u64) -> Result<(), ChangeError> {
        self.tasks.administer(move |context| context.upgrade_version(version))
    }

    /// Gives the pool another guid, so that it can be told from a copy of its devices; answers
    /// with the new one.
    ///
    /// # Errors
    /// [`ChangeError`]: a device is missing: it would not be the pool's any more.
    pub fn change_guid(&self) -> Result<Guid, ChangeError> {
        self.tasks.administer(|context| context.change_guid())
    }

    /// Forgets blocks of flat dedup tables that there are once only. Returns how many.
    ///
    /// # Errors
    /// [`ChangeError`]: a table cannot be read, or the pool is suspended.
    pub fn prune_dedup(&self, limit: PruneLimit) -> Result<u64, ChangeError> {
        prune_dedup(&self.tasks, &self.view()?, limit, self.environment.now())
    }

    /// Adds vdevs; they are part of the pool when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]: they do not fit, cannot be written, or the pool is suspended.
    pub fn add_vdevs(&self, added: AddedVdevs) -> Result<(), ChangeError> {
        self.growth.add(added)
    }
}

/// Its devices' free space, and devices that fail.
impl LivePool {
    /// Sweeps the free space of leaves, or stops that. Returns what was refused; the others are on
    /// disk as they are wanted then. The work itself is done in the background.
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

    /// Tells somebody what happens to sweeps; whoever was told before is not any more.
    pub fn observe_sweeps(&self, observer: SweepObserver) {
        self.sweeps.observe(observer);
    }

    /// Trims what was freed since the last time, if the pool has `autotrim` on, without waiting
    /// for the time of it.
    pub fn trim_freed(&self) -> TrimReport {
        self.trimmer.trim_freed()
    }

    /// Says that somebody has the pool who can mend it: from now on it waits for devices that fail
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

    /// The error because of which the pool was stopped; there always is one then.
    pub(super) fn why_stopped(&self) -> LiveError {
        LiveError::Suspended { reason: self.failure() }
    }

    /// What becomes of writers while the pool cannot write (`failmode`).
    #[must_use]
    pub fn fail_mode(&self) -> FailMode {
        self.suspension.fail_mode()
    }

    /// Forgets the errors of a vdev and of those below it, or of all; uses devices again that
    /// answer, and lets a suspended pool go on.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such vdev, or the pool is suspended again, or for good.
    pub fn clear(&self, vdev: Option<Guid>) -> Result<(), ChangeError> {
        self.clear_with(vdev, &HashMap::<Guid, Arc<dyn BlockDevice>>::new())
    }

    /// As [`LivePool::clear`]; devices that were missing, or went away and have come back, are
    /// opened by `devices`.
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
        // What was acknowledged is not to depend on logs that may have lost it.
        let lost_trust = self.vdevs().trust_in_logs() != trust;
        if self.suspension.resume() || self.failure().is_some() || lost_trust {
            self.sync_or_refuse()?;
        }
        self.sweeps.resume();
        Ok(())
    }

    /// Ends the wait for devices: whoever waits gets an error, and nothing is written any more. A
    /// pool that is not suspended does not wait later either.
    pub fn give_up_waiting(&self) {
        self.suspension.give_up();
    }
}

/// Leaving it (spec 01, section 12).
impl LivePool {
    /// Writes everything and marks the pool as exported: any host may import it then.
    ///
    /// # Errors
    /// [`NotExported`]: the pool is suspended; its last durable state can be imported with `-f`.
    pub fn export(self) -> Result<(), NotExported> {
        self.end(PoolState::Exported)
    }

    /// Writes everything and marks the pool as destroyed; its contents stay until something else
    /// is made of the devices.
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
            // Nobody else is there to store what a leaf has missed at the very end. The pool is
            // exported already.
            if self.vdevs().has_changed_dirty_times() && self.sync().is_err() {
                tracing::warn!("what a leaf has missed at last is not recorded");
            }
            Ok(())
        };
        let result = end().map_err(|_| NotExported { reason: self.failure() });
        self.stop();
        result
    }

    /// Ends the threads, after the groups that are wanted.
    fn stop(&self) {
        self.suspension.give_up();
        self.sweeps.end();
        self.engine.finish();
        self.trimmer.end();
        let Threads { sync, others } = std::mem::take(&mut *self.threads.lock());
        // A panic of a thread has been reported where it happened.
        let _ = sync.map(JoinHandle::join);
        // The heart beats while there is something to sync.
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
#[error("the pool is suspended: {}", reason.as_ref().map_or_else(String::new, ToString::to_string))]
pub struct NotExported {
    /// What went wrong with it.
    pub reason: Option<Arc<LiveError>>,
}
