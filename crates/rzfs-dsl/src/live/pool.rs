//! A pool that is open for writing.

use crate::dataset::{DatasetError, DatasetTree, Keyring};
use crate::import::MissingLogs;
use crate::live::LiveError;
use crate::live::administration::{Task, TaskContext};
use crate::live::background::heartbeat::Heart;
use crate::live::background::sweep::Sweeps;
use crate::live::background::trim::TrimSignal;
use crate::live::datasets::head::LiveDataset;
use crate::live::datasets::heads::Heads;
use crate::live::devices::growth::Growth;
use crate::live::environment::Environment;
use crate::live::log::claim::GivenUpLog;
use crate::live::mos::history::Event;
use crate::live::mos::{LiveMos, MosTx};
use crate::live::space::SpaceTier;
use crate::live::space::ledger::Ledger;
use crate::live::space::sharing::Sharing;
use crate::live::sync::failure::Failure;
use crate::live::sync::state::SyncState;
use crate::live::sync::suspension::Suspension;
use crate::pool::AuxiliaryVdev;
use crate::pool::OBJECT_DIRECTORY as DIRECTORY;
use parking_lot::{Mutex, RwLock};
use rzfs_dmu::txg::{QuiescedTxg, Stopped, TxgEngine, Work};
use rzfs_dmu::write::{BlockWriter, DeviceWriter, ObjsetPolicy};
use rzfs_dmu::{BlockPipeline, DeviceWaiter, Objset, Patience};
use rzfs_format::indirect::RemovalState;
use rzfs_format::uberblock::{RaidzReflow, Uberblock};
use rzfs_format::{FormatError, ObjectId, Txg};
use rzfs_metaslab::allocator::{Allocator, SyncPass, TxgHold};
use rzfs_vdev::VdevTree;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that the syncing thread sleeps without looking whether it is to end.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What the threads of a pool share.
pub(crate) struct Inner {
    pub(super) name: String,
    pub(super) environment: Arc<dyn Environment>,
    /// What was found when it was opened, and stays.
    pub(super) found: Found,
    /// Hot spares, then cache devices.
    pub(super) auxiliary: RwLock<Vec<AuxiliaryVdev>>,
    pub(super) devices: Arc<dyn DeviceWriter>,
    pub(super) allocator: Arc<Allocator>,
    pub(super) writer: BlockWriter,
    pub(super) mos: Arc<LiveMos>,
    pub(super) mos_policy: ObjsetPolicy,
    pub(super) has_lz4: bool,
    pub(super) sharing: Arc<Sharing>,
    /// The keys that are loaded.
    pub(super) keyring: Arc<Keyring>,
    pub(super) async_free_blocks: usize,
    /// How much more than their contents blocks can take.
    pub(super) inflation: AtomicU64,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) trim_signal: TrimSignal,
    pub(super) sweeps: Sweeps,
    pub(super) engine: Arc<TxgEngine>,
    pub(super) committed: RwLock<Committed>,
    pub(super) heart: Heart,
    pub(super) heads: Mutex<Heads>,
    pub(super) tasks: Mutex<Vec<Task>>,
    /// Vdevs that are to be added before the next txg is synced.
    pub(super) growths: Mutex<Vec<Growth>>,
    pub(super) state: Mutex<SyncState>,
    pub(super) failure: Mutex<Failure>,
    pub(super) suspension: Suspension,
}

/// Tells everybody who waits for the syncing thread when it panics.
struct FailOnPanic<'a>(&'a Inner);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(LiveError::Panicked);
        }
    }
}

/// What a pool has from before it was opened for writing, and nobody changes.
#[derive(Clone, Default, Debug)]
pub(super) struct Found {
    pub(super) removal: Option<RemovalState>,
    pub(super) checkpoint: Option<Uberblock>,
    /// What becomes of intent logs that cannot be read.
    pub(super) missing_logs: MissingLogs,
    /// Those that were not followed to their ends when it was opened.
    pub(super) given_up_logs: Vec<GivenUpLog>,
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
    /// What is durable now, and what keeps its blocks from being used again.
    pub(super) fn hold_committed(&self) -> (Committed, TxgHold) {
        // A txg gives blocks back only after its uberblock has been put here.
        let committed = self.committed.read();
        let hold = self.allocator.hold(committed.uberblock.txg);
        (committed.clone(), hold)
    }

    /// The datasets of the last txg on disk that changed anything. Their blocks are held while it
    /// exists.
    pub(super) fn dataset_tree(&self) -> Result<DatasetTree, DatasetError> {
        let (Committed { mos, .. }, hold) = self.hold_committed();
        let directory = mos.object(DIRECTORY)?;
        let root = directory.zap()?.lookup_u64("root_dataset".as_bytes());
        let root = root.map_err(|source| directory.zap_error(source))?;
        let missing = || DatasetError::Corrupt {
            object: DIRECTORY,
            source: FormatError::invalid("object directory", "it has no root_dataset"),
        };
        let root = root.and_then(|root| ObjectId(root).non_zero()).ok_or_else(missing)?;
        let (allocator, sharing) = (Arc::clone(&self.allocator), Arc::clone(&self.sharing));
        let usable_space = move || {
            let _held = &hold;
            usable_space(&allocator, &sharing, SpaceTier::Normal)
        };
        let (place, keyring) = ((self.name.clone(), root), Arc::clone(&self.keyring));
        Ok(DatasetTree::with_keyring(mos, place, usable_space, keyring))
    }

    /// Bytes that the pool has for datasets, used or not, when a change may go so far.
    pub(super) fn usable_space(&self, tier: SpaceTier) -> u64 {
        usable_space(&self.allocator, &self.sharing, tier)
    }

    /// Its vdevs, as they are now.
    pub(super) fn vdevs(&self) -> Arc<VdevTree> {
        self.mos.objset().pipeline().vdevs()
    }

    /// Does what administrators asked for since the last txg.
    pub(super) fn run_tasks(
        &self,
        state: &mut SyncState,
        mos: MosTx<'_>,
        (vdevs, space): (&VdevTree, &SyncPass<'_>),
    ) -> Result<(), LiveError> {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        self.sweeps.store(&mos, vdevs)?;
        let mut context = TaskContext { pool: self, vdevs, state, mos, space };
        tasks.into_iter().try_for_each(|task| task(&mut context))
    }

    /// Syncs groups until the engine is stopped, `first` before the others.
    fn sync_forever(&self, first: Option<QuiescedTxg>) {
        let _guard = FailOnPanic(self);
        // A txg cannot be given up.
        let _patience = Patience::Endless.enter();
        let mut groups = first.into_iter().chain(std::iter::from_fn(|| self.next_group()));
        if let Err(error) = groups.try_for_each(|txg| self.sync_one(txg)) {
            self.fail(error);
        }
    }

    /// Waits for the next group that is to be synced; `None` if there will be none.
    fn next_group(&self) -> Option<QuiescedTxg> {
        loop {
            match self.engine.wait_for_work(Instant::now() + LONGEST_SLEEP) {
                Work::Sync => return Some(self.engine.quiesce()),
                Work::Nothing => {}
                Work::Finished => return None,
            }
        }
    }

    /// Nothing is written any more, for this reason unless there is one already, and everybody who
    /// waits for that is told.
    pub(super) fn fail(&self, error: LiveError) {
        tracing::error!(%error, "the pool is suspended");
        self.failure.lock().end(error);
        self.engine.fail();
    }

    fn sync_one(&self, txg: QuiescedTxg) -> Result<(), LiveError> {
        self.sync_group(&mut self.state.lock(), txg)
    }
}

pub(super) fn usable_space(allocator: &Allocator, sharing: &Sharing, tier: SpaceTier) -> u64 {
    let usage = allocator.usage();
    let space = usage.normal_space.saturating_add(sharing.saved());
    space.saturating_sub(tier.kept_back(usage.slop))
}

/// A pool that is open for writing; the last one who drops it stops its threads without exporting
/// it.
#[derive(Debug)]
pub struct LivePool {
    inner: Arc<Inner>,
    threads: Mutex<Threads>,
}

/// The threads of a pool.
#[derive(Debug, Default)]
struct Threads {
    sync: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

/// Starts a thread of a pool.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LiveError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(LiveError::Thread)
}

impl LivePool {
    /// Starts the threads: one that shows other hosts that the pool is in use, one that trims, and
    /// at last one that syncs, which begins with `first`.
    ///
    /// # Errors
    /// The system has no threads for it; then nothing is synced.
    pub(super) fn start(inner: Arc<Inner>, first: Option<QuiescedTxg>) -> Result<Self, LiveError> {
        let pipeline = inner.mos.objset().pipeline();
        pipeline.set_device_waiter(Arc::downgrade(&inner) as Weak<dyn DeviceWaiter>);
        let pool = Self { inner, threads: Mutex::default() };
        {
            let mut threads = pool.threads.lock();
            let [heart, trim, sync] = std::array::from_fn(|_| Arc::clone(&pool.inner));
            threads.others.push(spawn("rzfs-heart", move || heart.beat_forever())?);
            threads.others.push(spawn("rzfs-trim", move || trim.trim_forever())?);
            threads.sync = Some(spawn("rzfs-sync", move || sync.sync_forever(first))?);
        }
        Ok(pool)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What becomes of intent logs that cannot be read.
    #[must_use]
    pub fn missing_logs(&self) -> MissingLogs {
        self.inner.found.missing_logs
    }

    /// The intent logs that could not be followed to their ends when the pool was opened, and were
    /// given up.
    #[must_use]
    pub fn given_up_logs(&self) -> &[GivenUpLog] {
        &self.inner.found.given_up_logs
    }

    /// Its transaction groups.
    #[must_use]
    pub fn engine(&self) -> &Arc<TxgEngine> {
        &self.inner.engine
    }

    /// Its vdevs, as they are now.
    #[must_use]
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.inner.vdevs()
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
    pub fn dataset_tree(&self) -> Result<DatasetTree, DatasetError> {
        self.inner.dataset_tree()
    }

    /// The error because of which the pool was stopped; there always is one then.
    pub(super) fn why_stopped(&self) -> LiveError {
        LiveError::Suspended { reason: self.failure() }
    }

    /// Why the pool is suspended, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<LiveError>> {
        self.inner.failure.lock().reason()
    }

    /// Has everything that was changed so far written, and waits for it; not for devices that fail.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended, see [`LivePool::failure`].
    pub fn sync(&self) -> Result<(), Stopped> {
        self.inner.engine.wait_synced_unless_suspended(self.inner.engine.open_txg())
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
        self.administer(move |context| Ok(context.log(&event)?)).map_err(|_| Stopped)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Ends the threads, after the groups that are wanted.
    pub(super) fn stop(&self) {
        self.inner.suspension.give_up();
        self.inner.sweeps.end();
        self.inner.engine.finish();
        self.inner.trim_signal.end();
        let Threads { sync, others } = std::mem::take(&mut *self.threads.lock());
        // A panic of a thread has been reported where it happened.
        let _ = sync.map(JoinHandle::join);
        // The heart beats while there is something to sync.
        self.inner.heart.end();
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
