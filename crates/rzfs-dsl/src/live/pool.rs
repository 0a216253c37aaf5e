//! A pool that is open for writing.

use super::LiveError;
use super::environment::Environment;
use super::head::LiveDataset;
use super::history::{self, Event, Occasion};
use super::mos::{LiveMos, MosTx};
use super::sync::SyncState;
use crate::dataset::DatasetTree;
use crate::pool::OBJECT_DIRECTORY as DIRECTORY;
use crate::pool::{Attributes, PoolError};
use parking_lot::{Mutex, RwLock};
use rzfs_dmu::live::Transaction;
use rzfs_dmu::txg::{OpenTx, QuiescedTxg, Stopped, TxgEngine, Work};
use rzfs_dmu::write::{BlockWriter, DeviceWriter, ObjsetPolicy};
use rzfs_dmu::{BlockPipeline, Objset};
use rzfs_format::uberblock::{RaidzReflow, Uberblock};
use rzfs_format::{ObjectId, Txg};
use rzfs_metaslab::allocator::Allocator;
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that the syncing thread sleeps without looking whether it is to end.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What a task of an administrator did, or why it could not.
type TaskResult = Result<(), LiveError>;

/// A change of the pool's own objects, made in the first pass of a txg.
type Task = Box<dyn FnOnce(&mut TaskContext<'_>) -> TaskResult + Send>;

/// What a task works with.
pub(crate) struct TaskContext<'a> {
    pub(crate) pool: &'a Inner,
    pub(crate) state: &'a mut SyncState,
    pub(crate) mos: MosTx<'a>,
}

/// What the threads of a pool share.
pub(crate) struct Inner {
    pub(super) name: String,
    pub(super) environment: Arc<dyn Environment>,
    pub(super) vdevs: Arc<VdevTree>,
    pub(super) devices: Arc<dyn DeviceWriter>,
    pub(super) allocator: Arc<Allocator>,
    pub(super) writer: BlockWriter,
    pub(super) mos: LiveMos,
    pub(super) mos_policy: ObjsetPolicy,
    pub(super) has_lz4: bool,
    pub(super) engine: Arc<TxgEngine>,
    pub(super) committed: RwLock<Committed>,
    pub(super) datasets: Mutex<BTreeMap<ObjectId, Arc<LiveDataset>>>,
    pub(super) tasks: Mutex<Vec<Task>>,
    pub(super) state: Mutex<SyncState>,
    pub(super) failure: Mutex<Option<Arc<LiveError>>>,
}

/// Tells everybody who waits for the syncing thread when it panics.
struct FailOnPanic<'a>(&'a TxgEngine);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

/// What is durable.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) uberblock: Uberblock,
    pub(super) mos: Objset,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("committed", &self.committed).finish_non_exhaustive()
    }
}

impl Committed {
    /// What a pool has that was not written yet.
    pub(super) fn nothing(mos: &LiveMos, version: u64, txg: Txg) -> Self {
        let mos = mos.objset().synced();
        let uberblock = Uberblock {
            version,
            txg,
            guid_sum: 0,
            timestamp: 0,
            mos: *mos.root(),
            software_version: version,
            multihost: None,
            checkpoint_txg: Txg(0),
            raidz_reflow: RaidzReflow(0),
        };
        Self { uberblock, mos }
    }
}

impl Inner {
    pub(super) fn add_dataset(&self, dataset: LiveDataset) {
        self.datasets.lock().insert(dataset.id(), Arc::new(dataset));
    }

    pub(super) fn datasets(&self) -> Vec<Arc<LiveDataset>> {
        self.datasets.lock().values().cloned().collect()
    }

    /// Does what administrators asked for since the last txg.
    pub(super) fn run_tasks(&self, state: &mut SyncState, mos: MosTx<'_>) -> TaskResult {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.into_iter().try_for_each(|task| task(&mut TaskContext { pool: self, state, mos }))
    }

    /// Syncs groups until the engine is stopped.
    fn sync_forever(&self) {
        let _guard = FailOnPanic(&self.engine);
        loop {
            match self.engine.wait_for_work(Instant::now() + LONGEST_SLEEP) {
                Work::Sync => {}
                Work::Nothing => continue,
                Work::Finished => return,
            }
            let txg = self.engine.quiesce();
            if let Err(error) = self.sync_one(txg) {
                tracing::error!(%error, "the pool is suspended");
                *self.failure.lock() = Some(Arc::new(error));
                self.engine.fail();
                return;
            }
        }
    }

    fn sync_one(&self, txg: QuiescedTxg) -> Result<(), LiveError> {
        self.sync_group(&mut self.state.lock(), txg)
    }
}

/// A pool that is open for writing; the last one who drops it stops its thread without exporting
/// it.
#[derive(Debug)]
pub struct LivePool {
    inner: Arc<Inner>,
    syncer: Mutex<Option<JoinHandle<()>>>,
}

impl LivePool {
    /// Starts the thread that syncs.
    pub(super) fn start(inner: Arc<Inner>) -> Self {
        let shared = Arc::clone(&inner);
        let syncer = std::thread::spawn(move || shared.sync_forever());
        Self { inner, syncer: Mutex::new(Some(syncer)) }
    }

    /// Its transaction groups.
    #[must_use]
    pub fn engine(&self) -> &Arc<TxgEngine> {
        &self.inner.engine
    }

    /// Its vdevs.
    #[must_use]
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.inner.vdevs
    }

    /// What its blocks are read through.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<BlockPipeline> {
        self.inner.mos.objset().pipeline()
    }

    /// The last txg on disk.
    #[must_use]
    pub fn synced_txg(&self) -> Txg {
        self.inner.engine.synced_txg()
    }

    /// The uberblock of the last txg on disk that changed anything.
    #[must_use]
    pub fn uberblock(&self) -> Uberblock {
        self.inner.committed.read().uberblock.clone()
    }

    /// The MOS of that uberblock: what reading goes by.
    #[must_use]
    pub fn mos(&self) -> Objset {
        self.inner.committed.read().mos.clone()
    }

    /// Its datasets as they are on disk: those of the last txg that changed anything.
    ///
    /// # Errors
    /// The object directory cannot be read.
    pub fn dataset_tree(&self) -> Result<DatasetTree, PoolError> {
        let mos = self.mos();
        let name = "root_dataset";
        let root = Attributes::open(&mos, DIRECTORY)?.object(name)?;
        let root = root.ok_or(PoolError::NoEntry { name })?;
        let allocator = Arc::clone(&self.inner.allocator);
        let usable_space = move || {
            let usage = allocator.usage();
            usage.normal_space.saturating_sub(usage.slop)
        };
        Ok(DatasetTree::new(mos, self.inner.name.clone(), root, usable_space))
    }

    /// The error because of which the pool was stopped; there always is one then.
    pub(super) fn why_stopped(&self) -> LiveError {
        LiveError::Suspended { reason: self.failure() }
    }

    /// Why the pool is suspended, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<LiveError>> {
        self.inner.failure.lock().clone()
    }

    /// Has everything that was changed so far written, and waits for it.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended, see [`LivePool::failure`].
    pub fn sync(&self) -> Result<(), Stopped> {
        self.inner.engine.wait_synced(self.inner.engine.open_txg())
    }

    /// The heads that are open for changes.
    #[must_use]
    pub fn datasets(&self) -> Vec<Arc<LiveDataset>> {
        self.inner.datasets()
    }

    /// Remembers an event in the pool's history, with the next txg.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn log(&self, event: Event) -> Result<(), Stopped> {
        self.administer(Box::new(move |context| context.log(&event)))
    }

    /// Has a task done in the next txg; it is on disk when this returns.
    pub(super) fn administer(&self, task: Task) -> Result<(), Stopped> {
        // The transaction keeps the group open until the task is in its list.
        let tx: OpenTx = self.inner.engine.begin_unthrottled(&[])?;
        let txg = tx.txg();
        self.inner.tasks.lock().push(task);
        drop(tx);
        self.inner.engine.wait_synced(txg)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Ends the syncing thread after the groups that are wanted.
    pub(super) fn stop(&self) {
        self.inner.engine.finish();
        if let Some(syncer) = self.syncer.lock().take() {
            // A panic of the thread has been reported where it happened.
            let _ = syncer.join();
        }
    }
}

impl Drop for LivePool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl TaskContext<'_> {
    /// Appends to the pool's history.
    pub(crate) fn log(&mut self, event: &Event) -> TaskResult {
        let Some(history) = self.state.history else { return Ok(()) };
        let environment = &self.pool.environment;
        let occasion = Occasion {
            txg: self.mos.tx().txg(),
            time: environment.now(),
            host: environment.host().name.as_deref().unwrap_or("(none)"),
        };
        history::append(&self.mos, history, event, occasion)
    }
}
