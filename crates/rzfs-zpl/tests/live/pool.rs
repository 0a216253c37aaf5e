//! A minimal pool of one in-memory device with one file system.

use parking_lot::Mutex;
use rzfs_blockdev::{
    Access, BlockDevice, CompletionQueue, DeviceError, DeviceGeometry, IoOperation, IoRequest,
    MemoryDevice,
};
use rzfs_clock::Clock;
use rzfs_codec::checksum::Salt;
use rzfs_dmu::live::{LiveObjset, SpaceOwner, SyncTx};
use rzfs_dmu::sync::BlockAccounting;
use rzfs_dmu::txg::{DirtyLimits, TxgEngine, TxgOptions};
use rzfs_dmu::write::{
    BlockSpace, BlockWriter, DeviceWrite, DeviceWriter, EncodeOptions, HoleBirth, NoSpace,
    ObjsetPolicy, SpaceRequest, WriteStream,
};
use rzfs_dmu::{BlockPipeline, DmuError, Objset, PipelineOptions};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dnode::{Dnode, DnodeFlags};
use rzfs_format::objset::ObjsetType;
use rzfs_format::znode::Timestamp;
use rzfs_format::{BlockPointer, Dva, Guid, ObjectId, ObjsetId, Txg, VdevId};
use rzfs_vdev::{TreeOptions, VdevConfig, VdevError, VdevKind, VdevTree};
use rzfs_zpl::accounting::UsageChanges;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewFileSystem, WallClock};
use rzfs_zpl::{FileSystem, FileSystemOptions};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// Start of the allocatable area of a leaf.
const DATA_START: u64 = 4 << 20;
const SECTOR: u64 = 512;
const EIO: i32 = 5;
const SIZE: usize = 192 << 20;
/// User, object and project accounting are complete.
const ACCOUNTED: u64 = 7;

/// Allocates space upwards without reuse.
#[derive(Debug)]
struct Bump {
    next: Mutex<u64>,
    end: u64,
}

impl BlockSpace for Bump {
    fn allocate(&self, request: &SpaceRequest, _: Txg) -> Result<[Dva; 3], NoSpace> {
        let mut next = self.next.lock();
        let asize = request.size.next_multiple_of(SECTOR);
        if *next + asize * u64::from(request.copies) > self.end {
            return Err(NoSpace { size: request.size });
        }
        let mut dvas = [Dva::default(); 3];
        for dva in dvas.iter_mut().take(request.copies.into()) {
            *dva = Dva::new(VdevId(0), *next, asize, false);
            *next += asize;
        }
        Ok(dvas)
    }

    fn unallocate(&self, _: &[Dva], _: Txg) {}
}

#[derive(Debug)]
struct Disk(Arc<dyn BlockDevice>);

impl DeviceWriter for Disk {
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>> {
        let completions = CompletionQueue::new();
        let count = writes.len();
        let request = |write: DeviceWrite| IoRequest {
            token: 0,
            offset: DATA_START + write.dva.offset(),
            operation: IoOperation::Write(write.data),
        };
        self.0.submit(writes.into_iter().map(request).collect(), &completions);
        for _ in 0..count {
            completions.wait().result.unwrap();
        }
        vec![Ok(()); count]
    }
}

/// A device that damages reads, from some read on.
#[derive(Debug)]
pub(crate) struct Faults {
    device: Arc<dyn BlockDevice>,
    /// Reads that are still good; negative: all.
    good: AtomicI64,
    /// Whether the others fail instead of being damaged.
    refuses: AtomicBool,
}

impl Faults {
    /// Damages all reads but the next `reads`.
    pub(crate) fn fail_after(&self, reads: i64) {
        self.refuses.store(false, Ordering::SeqCst);
        self.good.store(reads, Ordering::SeqCst);
    }

    /// Makes all reads but the next `reads` fail.
    pub(crate) fn refuse_after(&self, reads: i64) {
        self.refuses.store(true, Ordering::SeqCst);
        self.good.store(reads, Ordering::SeqCst);
    }

    /// The number of reads that `act` needs.
    pub(crate) fn reads_of(&self, act: impl FnOnce()) -> i64 {
        const MANY: i64 = 1 << 40;
        self.fail_after(MANY);
        act();
        MANY - self.good.swap(-1, Ordering::SeqCst)
    }

    /// Whether that many reads took place.
    pub(crate) fn were_reached(&self) -> bool {
        self.good.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn heal(&self) {
        self.good.store(-1, Ordering::SeqCst);
    }

    fn refusal(&self) -> DeviceError {
        let source = Arc::new(io::Error::from_raw_os_error(EIO));
        DeviceError { device: self.name().into(), operation: "read", offset: 0, len: 0, source }
    }

    fn is_bad(&self) -> bool {
        let next = |good: i64| (good > 0).then_some(good - 1);
        self.good.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Err(0)
    }
}

impl BlockDevice for Faults {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.device.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for request in requests {
            let is_bad = matches!(request.operation, IoOperation::Read(_)) && self.is_bad();
            let answers = CompletionQueue::new();
            self.device.submit(vec![request], &answers);
            let mut answer = answers.wait();
            if is_bad && self.refuses.load(Ordering::SeqCst) {
                answer.result = Err(self.refusal());
            } else if let (true, Ok(Some(buffer))) = (is_bad, &mut answer.result) {
                buffer.iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            completions.push(answer);
        }
    }
}

/// Live blocks, and the usage of owners.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    live: BTreeMap<[u64; 2], BlockPointer>,
    usage: UsageChanges,
}

impl BlockAccounting for Accounts {
    fn born(&mut self, pointer: &BlockPointer) {
        if let Some(dva) = pointer.dvas().next() {
            assert!(self.live.insert(dva.0, *pointer).is_none(), "{pointer:?} was born twice");
        }
    }

    fn shared(&mut self, pointer: &BlockPointer) {
        panic!("nothing is cloned: {pointer:?}");
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        if let Some(dva) = pointer.dvas().next() {
            assert!(self.live.remove(&dva.0).is_some(), "{pointer:?} is not alive");
        }
    }

    fn lost(&mut self, bytes: u64) {
        panic!("nothing is damaged: {bytes} bytes");
    }
}

impl SpaceOwner for Accounts {
    fn dnode_flags(&self) -> DnodeFlags {
        self.usage.dnode_flags()
    }

    fn dnode_changed(&mut self, _: ObjectId, old: Option<&Dnode>, new: Option<&Dnode>) {
        self.usage.note(old, new);
    }

    fn write_accounting(&mut self, objset: &LiveObjset, tx: &SyncTx<'_>) -> Result<(), DmuError> {
        self.usage.write(objset, tx)
    }
}

/// A clock that advances by a second with each query.
#[derive(Debug, Default)]
pub(crate) struct StepClock(AtomicI64);

impl WallClock for StepClock {
    fn now(&self) -> Timestamp {
        let seconds = 1_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp { seconds, nanoseconds: 7 }
    }
}

pub(crate) struct Pool {
    pub(crate) engine: Arc<TxgEngine>,
    pub(crate) objset: LiveObjset,
    pipeline: Arc<BlockPipeline>,
    accounts: Mutex<Accounts>,
    policy: ObjsetPolicy,
    writer: BlockWriter,
    disk: Arc<dyn DeviceWriter>,
    pub(crate) faults: Arc<Faults>,
}

impl Pool {
    /// A pool with a new file system on disk.
    pub(crate) fn new(new: &NewFileSystem) -> Self {
        Self::freeing(new, 100_000)
    }

    /// The same, with a limit of frees in one group.
    pub(crate) fn freeing(new: &NewFileSystem, max_frees: u64) -> Self {
        let device = MemoryDevice::new("memory", vec![0; SIZE], Access::ReadWrite);
        let faults = Arc::new(Faults {
            device: Arc::new(device),
            good: AtomicI64::new(-1),
            refuses: AtomicBool::new(false),
        });
        let device = Arc::clone(&faults) as Arc<dyn BlockDevice>;
        let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
        let asize = SIZE as u64 - (5 << 20);
        leaf.top.ashift = Some(9);
        leaf.top.asize = Some(asize);
        let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([leaf]);
        let devices = HashMap::from([(Guid(2), Arc::clone(&device))]);
        let vdevs = VdevTree::open(root, &devices, TreeOptions::default()).unwrap();
        let salt = Salt::new([0; 32]);
        let pipeline = BlockPipeline::new(
            Arc::new(vdevs),
            PipelineOptions {
                salt: salt.clone(),
                dynamic_gang_headers: false,
                arc_max: 4 << 20,
                tunables: Default::default(),
                injector: None,
            },
        );
        let space = Bump { next: Mutex::new(0), end: asize };
        let encode = EncodeOptions {
            salt,
            min_allocation: SECTOR,
            allocation_unit: SECTOR,
            embedded_data: true,
        };
        let writer = BlockWriter::new(
            Arc::clone(&pipeline),
            Arc::new(space),
            encode,
            HoleBirth::Recorded,
            2,
        );
        let limits = DirtyLimits::of_memory(1 << 30);
        let timeout = Duration::from_secs(3600);
        let options = TxgOptions { limits, timeout, max_frees, history: 10 };
        let engine = TxgEngine::new(Txg(3), options, Clock::system());
        let objset =
            LiveObjset::create(&pipeline, ObjsetId(54), (ObjsetType::Zfs, ACCOUNTED), None);
        let policy = ObjsetPolicy { copies: 1, ..ObjsetPolicy::mos(CompressionFunction::Lz4) };
        let disk = Arc::new(Disk(device));
        let accounts = Mutex::default();
        let pool = Self { engine, objset, pipeline, accounts, policy, writer, disk, faults };
        let tx = pool.engine.begin(&[]).unwrap();
        new.create(&pool.objset, &tx).unwrap();
        drop(tx);
        pool.sync();
        pool
    }

    pub(crate) fn ordinary() -> Self {
        Self::new(&Self::ordinary_file_system())
    }

    pub(crate) fn ordinary_file_system() -> NewFileSystem {
        NewFileSystem::new(StepClock::default().now(), 42)
    }

    /// Writes the open group to disk.
    pub(crate) fn sync(&self) {
        let mut accounts = self.accounts.lock();
        let txg = self.engine.quiesce().unwrap();
        let stream = WriteStream::start(&self.disk);
        let tx = SyncTx::new(&txg, 1, &self.writer, &stream);
        self.objset.sync(&tx, self.policy, &mut *accounts).unwrap();
        assert!(stream.finish().is_empty());
        txg.committed();
    }

    /// Number of live blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.accounts.lock().live.len()
    }

    /// The options of tests: with their own clock.
    pub(crate) fn options() -> LiveOptions {
        let mut options = LiveOptions::new(reading(), 7);
        options.clock = Arc::new(StepClock::default());
        options
    }

    pub(crate) fn open(&self, options: LiveOptions) -> Arc<LiveFileSystem> {
        LiveFileSystem::open(self.objset.clone(), Arc::clone(&self.engine), options).unwrap()
    }

    /// The object set as freshly opened from disk, without caches.
    pub(crate) fn on_disk(&self) -> Objset {
        self.pipeline.cache().clear();
        let root = *self.objset.synced().root();
        Objset::open(&self.pipeline, self.objset.id(), &root, None).unwrap()
    }

    /// The file system on disk.
    pub(crate) fn reopened(&self) -> FileSystem {
        FileSystem::open(self.on_disk(), reading()).unwrap()
    }

    /// Another live file system on the state on disk; the first one must not be used any longer.
    pub(crate) fn remount(&mut self, options: LiveOptions) -> Arc<LiveFileSystem> {
        self.objset = LiveObjset::open(self.on_disk());
        self.open(options)
    }
}

/// The options for reading files: POSIX lists are on.
pub(crate) fn reading() -> FileSystemOptions {
    FileSystemOptions { acl_type: rzfs_zpl::AclType::Posix, ..FileSystemOptions::default() }
}
