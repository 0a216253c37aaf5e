//! Assembling a pool, opened or new: its parts and its threads.
//!
//! ```text
//! opening, creating ──> PoolCore: MOS, space, writing ──> SyncState
//!                                  └──────── PoolCore::build ──┘
//!                                                 └──> Building::start: the pool, its threads
//! ```

use super::administration::{TaskEnvironment, Tasks};
use super::background::sweep::{SweepRecords, Sweeps};
use super::background::trim::Trimmer;
use super::datasets::heads::Heads;
use super::datasets::policy;
use super::devices::current::PoolDevices;
use super::devices::growth::Growth;
use super::devices::heartbeat::{Heartbeat, HeartbeatControl, HeartbeatOptions};
use super::durable::{Committed, Durable};
use super::environment::Environment;
use super::log::{LogEnvironment, LogTunables, ZilCounters};
use super::pool::LivePool;
use super::space::accounts::Accounts;
use super::space::dedup::DedupTables;
use super::space::sharing::Sharing;
use super::suspension::Suspension;
use super::sync::commit::Committer;
use super::sync::group::Syncer;
use super::sync::thread::sync_forever;
use super::sync_state::SyncState;
use super::view::PriorState;
use super::{LiveError, LiveOptions};
use crate::dataset::Keyring;
use crate::mos::live::LiveMos;
use crate::pool::{AuxiliaryVdev, FailMode};
use parking_lot::Mutex;
use rzfs_dmu::DeviceWaiter;
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::{QuiescedTxg, TxgEngine};
use rzfs_dmu::write::{BlockWriter, DedupIndex, ObjsetPolicy};
use rzfs_format::features::Feature;
use rzfs_metaslab::allocator::Allocator;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// The I/O core of a pool, through which its objects are read and written.
pub(super) struct PoolCore {
    pub(super) environment: Arc<dyn Environment>,
    pub(super) mos: Arc<LiveMos>,
    pub(super) allocator: Arc<Allocator>,
    pub(super) dedup: Arc<DedupTables>,
    pub(super) writer: Arc<BlockWriter>,
    pub(super) devices: Arc<PoolDevices>,
    pub(super) has_lz4: bool,
}

/// What differs between pools.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) found: PriorState,
    pub(super) keyring: Arc<Keyring>,
    pub(super) engine: Arc<TxgEngine>,
    pub(super) committed: Committed,
    pub(super) sweeps: SweepRecords,
    pub(super) fail_mode: FailMode,
}

/// A pool whose threads are not running yet.
pub(super) struct Building {
    pub(super) pool: LivePool,
    heartbeat: Heartbeat,
    syncer: Syncer,
    state: SyncState,
}

impl PoolCore {
    /// `has` reports which features are enabled; `has_lz4`, whether metadata may be compressed with
    /// LZ4.
    pub(super) fn new(
        mos: LiveObjset,
        allocator: Arc<Allocator>,
        auxiliary: Vec<AuxiliaryVdev>,
        (environment, options): (Arc<dyn Environment>, &LiveOptions),
        has: impl Fn(Feature) -> bool,
        has_lz4: bool,
    ) -> Self {
        let pipeline = Arc::clone(mos.pipeline());
        let mos = Arc::new(LiveMos::new(mos));
        let current = pipeline.current_vdevs();
        let tunables = &options.tunables;
        let dedup = DedupTables::new(&mos, current, &environment, &allocator, tunables);
        let dedup = Arc::new(dedup);
        let writer = options
            .writer(&pipeline, &allocator, has)
            .with_dedup(Arc::clone(&dedup) as Arc<dyn DedupIndex>)
            .with_injector(environment.write_injector());
        let devices = Arc::new(PoolDevices::new(current, auxiliary));
        Self { environment, mos, allocator, dedup, writer: Arc::new(writer), devices, has_lz4 }
    }

    /// The policy of the pool's own objects.
    pub(super) const fn mos_policy(&self) -> ObjsetPolicy {
        ObjsetPolicy::mos(policy::default_compression(self.has_lz4))
    }

    /// Builds the parts of the pool on top of it.
    pub(super) fn build(self, parts: Parts, state: SyncState, options: &LiveOptions) -> Building {
        let mos_policy = self.mos_policy();
        let Self { environment, mos, allocator, dedup, writer, devices, has_lz4 } = self;
        let Parts { name, found, keyring, engine, committed, sweeps, fail_mode } = parts;
        let sharing = Sharing::new(&mos, &dedup);
        sharing.follow(&state.clones, &state.features);
        let accounts = Arc::new(Accounts::new(&allocator, sharing, &devices.vdevs()));
        let readers = Arc::default();
        let durable = Arc::new(Durable::new(&name, committed, &accounts, &keyring, &readers));
        let suspension = Arc::new(Suspension::new(&name, &environment, &engine, fail_mode));
        let heads = Arc::new(Heads::new(&engine, &durable, &accounts, has_lz4));
        let tasks = Arc::new(Tasks::new(&engine, &suspension));
        let waiting = (&engine, &suspension);
        let tunables = &options.tunables;
        let growth = Growth::new(&devices, &accounts, &durable, &environment, waiting, tunables);
        let growth = Arc::new(growth);
        let sweeps = Sweeps::new(sweeps, &devices, &allocator, &environment, &tasks, tunables);
        let sweeps = Arc::new(sweeps);
        let trimmer = Arc::new(Trimmer::new(&devices, &allocator, &sweeps, tunables));
        let heartbeat = HeartbeatOptions::from(tunables);
        let heart = Arc::new(HeartbeatControl::new(heartbeat, environment.clock()));
        let heartbeat = Heartbeat {
            heart: Arc::clone(&heart),
            devices: Arc::clone(&devices),
            durable: Arc::clone(&durable),
            suspension: Arc::clone(&suspension),
            environment: Arc::clone(&environment),
        };
        let log = Arc::new(LogEnvironment {
            engine: Arc::clone(&engine),
            accounts: Arc::clone(&accounts),
            devices: Arc::clone(&devices),
            durable: Arc::clone(&durable),
            environment: Arc::clone(&environment),
            writer: Arc::clone(&writer),
            tunables: LogTunables::from(tunables),
            counters: ZilCounters::default(),
        });
        let syncer = Syncer {
            committer: Committer {
                mos: Arc::clone(&mos),
                durable: Arc::clone(&durable),
                heart: Arc::clone(&heart),
                suspension: Arc::clone(&suspension),
                environment: Arc::clone(&environment),
            },
            surroundings: TaskEnvironment {
                name: name.clone(),
                environment: Arc::clone(&environment),
                heads: Arc::clone(&heads),
                accounts: Arc::clone(&accounts),
                keyring,
                readers,
                heart: Arc::clone(&heart),
                suspension: Arc::clone(&suspension),
                has_lz4,
            },
            mos,
            mos_policy,
            writer,
            engine: Arc::clone(&engine),
            devices: Arc::clone(&devices),
            growth: Arc::clone(&growth),
            accounts: Arc::clone(&accounts),
            heads: Arc::clone(&heads),
            tasks: Arc::clone(&tasks),
            sweeps: Arc::clone(&sweeps),
            trimmer: Arc::clone(&trimmer),
            suspension: Arc::clone(&suspension),
            environment: Arc::clone(&environment),
            tunables: *tunables,
        };
        let pool = LivePool {
            name,
            tunables: *tunables,
            found,
            pipeline: Arc::clone(syncer.mos.objset().pipeline()),
            environment,
            engine,
            devices,
            growth,
            durable,
            accounts,
            heads,
            tasks,
            log,
            heart,
            sweeps,
            trimmer,
            suspension,
            ending_receive: Mutex::default(),
            threads: Mutex::default(),
        };
        Building { pool, heartbeat, syncer, state }
    }
}

/// Starts a thread of a pool.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LiveError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(LiveError::Thread)
}

impl Building {
    /// Starts the threads: heartbeat, trimming, and finally syncing, which begins with `first`.
    ///
    /// # Errors
    /// The system cannot start them; then nothing is synced.
    pub(super) fn start(self, first: Option<QuiescedTxg>) -> Result<LivePool, LiveError> {
        let Self { pool, heartbeat, syncer, state } = self;
        let waiter = Arc::downgrade(&pool.suspension) as Weak<dyn DeviceWaiter>;
        pool.pipeline.set_device_waiter(waiter);
        {
            let mut threads = pool.threads.lock();
            let trimmer = Arc::clone(&pool.trimmer);
            threads.others.push(spawn("rzfs-heart", move || heartbeat.run())?);
            threads.others.push(spawn("rzfs-trim", move || trimmer.run())?);
            let sync = move || sync_forever(&syncer, state, first);
            threads.sync = Some(spawn("rzfs-sync", sync)?);
        }
        Ok(pool)
    }
}
