//! A pool with one in-memory device and one object set.

use crate::gate::GatedDevice;
use bytes::Bytes;
use parking_lot::Mutex;
use rzfs_blockdev::{Access, BlockDevice, CompletionQueue, IoOperation, IoRequest, MemoryDevice};
use rzfs_clock::Clock;
use rzfs_codec::checksum::Salt;
use rzfs_dmu::live::{LiveObjset, SpaceOwner, SyncTx};
use rzfs_dmu::sync::BlockAccounting;
use rzfs_dmu::txg::{DirtyLimits, QuiescedTxg, TxgEngine, TxgOptions};
use rzfs_dmu::write::{
    BlockSpace, BlockWriter, DeviceWrite, DeviceWriter, EncodeOptions, HoleBirth, NoSpace,
    ObjsetPolicy, SpaceRequest, WriteInjector, WriteStream,
};
use rzfs_dmu::{BlockPipeline, DmuError, Objset, PipelineOptions};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dnode::{Dnode, DnodeFlags};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Dva, Guid, Level, ObjectId, ObjsetId, Txg, VdevId};
use rzfs_vdev::{TreeOptions, VdevConfig, VdevError, VdevKind, VdevTree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Start of the allocatable area of a leaf.
const DATA_START: u64 = 4 << 20;
const SECTOR: u64 = 512;

/// Allocates space upwards without reuse; refuses segments above a limit, so that larger blocks
/// become gangs.
#[derive(Debug)]
struct Bump {
    next: Mutex<u64>,
    end: u64,
    largest: u64,
}

impl BlockSpace for Bump {
    fn allocate(&self, request: &SpaceRequest, _txg: Txg) -> Result<[Dva; 3], NoSpace> {
        let no_space = NoSpace { size: request.size };
        if request.size > self.largest {
            return Err(no_space);
        }
        let mut next = self.next.lock();
        let asize = request.size.next_multiple_of(SECTOR);
        if *next + asize * u64::from(request.copies) > self.end {
            return Err(no_space);
        }
        let mut dvas = [Dva::default(); 3];
        for dva in dvas.iter_mut().take(request.copies.into()) {
            *dva = Dva::new(VdevId(0), *next, asize, false);
            *next += asize;
        }
        Ok(dvas)
    }

    fn unallocate(&self, _dvas: &[Dva], _txg: Txg) {}
}

#[derive(Debug)]
struct Disk {
    device: Arc<dyn BlockDevice>,
    /// Blocks writes to the device while held.
    turn: Mutex<()>,
}

impl Disk {
    fn put(&self, writes: impl Iterator<Item = (Dva, Bytes)>) -> usize {
        let completions = CompletionQueue::new();
        let request = |(dva, data): (Dva, Bytes)| IoRequest {
            token: 0,
            offset: DATA_START + dva.offset(),
            operation: IoOperation::Write(data),
        };
        let requests: Vec<IoRequest> = writes.map(request).collect();
        let count = requests.len();
        self.device.submit(requests, &completions);
        for _ in 0..count {
            completions.wait().result.unwrap();
        }
        count
    }
}

impl DeviceWriter for Disk {
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>> {
        let _turn = self.turn.lock();
        let writes = writes.into_iter().map(|write| (write.dva, write.data));
        vec![Ok(()); self.put(writes)]
    }
}

/// The set according to the accounts: by address, or by identity for blocks without one.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) live: BTreeMap<[u64; 2], BlockPointer>,
    /// Bytes that cannot be found because of damage.
    pub(crate) lost: u64,
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
        self.lost += bytes;
    }
}

impl SpaceOwner for Accounts {
    fn dnode_flags(&self) -> DnodeFlags {
        DnodeFlags::default()
    }

    fn dnode_changed(&mut self, _: ObjectId, _: Option<&Dnode>, _: Option<&Dnode>) {}

    fn write_accounting(&mut self, _: &LiveObjset, _: &SyncTx<'_>) -> Result<(), DmuError> {
        Ok(())
    }
}

/// Damages the indirect blocks of files on their way to the device, with right checksums.
#[derive(Debug, Default)]
struct PointerForger {
    lie: Mutex<Option<Lie>>,
}

/// The false information.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// The level of the pointer with this index in an indirect block.
    Level { level: Level, block: BlockId, index: usize },
    /// The first pointer of each indirect block is repeated at all places.
    Repeated,
    /// The same, but with only holes in those of level 1.
    RepeatedHoles,
}

impl WriteInjector for PointerForger {
    fn inject(&self, bookmark: Bookmark, object_type: ObjectType, contents: Bytes) -> Bytes {
        let is_of_file = object_type == ObjectType::PLAIN_FILE_CONTENTS;
        let lie = self.lie.lock().filter(|_| is_of_file && bookmark.level.0 > 0);
        let mut forged = contents.to_vec();
        match lie {
            None => {}
            Some(Lie::Level { level, block, index })
                if (bookmark.level, bookmark.block) == (level, block) =>
            {
                // The byte with the level.
                forged[index * BlockPointer::SIZE + 55] ^= 0x11;
            }
            Some(Lie::Level { .. }) => {}
            Some(Lie::RepeatedHoles) if bookmark.level == Level(1) => {
                // One of them has a birth: all zeros would not be written.
                forged.fill(0);
                forged[80] = 1;
            }
            Some(Lie::Repeated | Lie::RepeatedHoles) => {
                let pointers = contents.chunks_exact(BlockPointer::SIZE);
                let first = pointers.clone().find(|one| one.iter().any(|byte| *byte != 0));
                let mut first = first.unwrap().to_vec();
                // The maximum fill.
                first[88..96].copy_from_slice(&u64::MAX.to_le_bytes());
                forged = first.repeat(pointers.len());
            }
        }
        forged.into()
    }
}

pub(crate) struct World {
    pub(crate) engine: Arc<TxgEngine>,
    pub(crate) pipeline: Arc<BlockPipeline>,
    pub(crate) objset: LiveObjset,
    pub(crate) accounts: Accounts,
    pub(crate) policy: ObjsetPolicy,
    /// The device that the vdev reads from.
    gate: Arc<GatedDevice>,
    writer: BlockWriter,
    forger: Arc<PointerForger>,
    disk: Arc<Disk>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WorldOptions {
    pub(crate) id: ObjsetId,
    pub(crate) compression: CompressionFunction,
    /// Maximum segment size.
    pub(crate) largest: u64,
    pub(crate) hole_birth: HoleBirth,
}

impl World {
    pub(crate) fn new(options: WorldOptions) -> Self {
        const SIZE: usize = 192 << 20;
        let device = MemoryDevice::new("memory", vec![0; SIZE], Access::ReadWrite);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
        let asize = SIZE as u64 - (5 << 20);
        leaf.top.ashift = Some(9);
        leaf.top.asize = Some(asize);
        let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([leaf]);
        let gate = Arc::new(GatedDevice::new(Arc::clone(&device)));
        let devices = HashMap::from([(Guid(2), Arc::clone(&gate) as Arc<dyn BlockDevice>)]);
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
        let space = Bump { next: Mutex::new(0), end: asize, largest: options.largest };
        let encode = EncodeOptions {
            salt,
            min_allocation: SECTOR,
            allocation_unit: SECTOR,
            embedded_data: true,
        };
        let writer =
            BlockWriter::new(Arc::clone(&pipeline), Arc::new(space), encode, options.hole_birth, 2);
        let forger = Arc::new(PointerForger::default());
        let injector: Arc<dyn WriteInjector> = forger.clone();
        let writer = writer.with_injector(Some(injector));
        let engine = TxgEngine::new(
            Txg(3),
            TxgOptions {
                limits: DirtyLimits::of_memory(1 << 30),
                timeout: Duration::from_secs(3600),
                max_frees: 100_000,
                history: 10,
            },
            Clock::system(),
        );
        let objset = LiveObjset::create(&pipeline, options.id, (ObjsetType::Other, 0), None);
        let policy = ObjsetPolicy {
            compression: options.compression,
            copies: 1,
            ..ObjsetPolicy::mos(CompressionFunction::Lz4)
        };
        let disk = Arc::new(Disk { device, turn: Mutex::new(()) });
        let accounts = Accounts::default();
        Self { engine, pipeline, objset, accounts, policy, gate, writer, forger, disk }
    }

    /// Syncs the open group; calls `between` in syncing context before each additional pass.
    pub(crate) fn sync(&mut self, passes: u32, mut between: impl FnMut(&LiveObjset, &SyncTx<'_>)) {
        let txg = self.engine.quiesce().unwrap();
        for pass in 1..=passes {
            let stream = self.stream();
            let tx = SyncTx::new(&txg, pass, &self.writer, &stream);
            if pass > 1 {
                between(&self.objset, &tx);
            }
            self.objset.sync(&tx, self.policy, &mut self.accounts).unwrap();
            assert!(stream.finish().is_empty());
        }
        txg.committed();
    }

    /// Syncs the open group, and damages indirect blocks of files.
    pub(crate) fn sync_with_lie(&mut self, lie: Lie) {
        *self.forger.lie.lock() = Some(lie);
        self.sync(1, |_, _| {});
        *self.forger.lie.lock() = None;
        self.pipeline.cache().clear();
    }

    fn stream(&self) -> WriteStream {
        let disk: Arc<dyn DeviceWriter> = self.disk.clone();
        WriteStream::start(&disk)
    }

    /// Syncs the open group, and calls `look` before any of the set's blocks are on the device,
    /// bypassing the cache.
    pub(crate) fn sync_slowly(&mut self, look: impl FnOnce(&LiveObjset)) {
        let txg = self.engine.quiesce().unwrap();
        let disk = Arc::clone(&self.disk);
        let turn = disk.turn.lock();
        let stream = self.stream();
        let tx = SyncTx::new(&txg, 1, &self.writer, &stream);
        self.objset.sync(&tx, self.policy, &mut self.accounts).unwrap();
        self.pipeline.cache().clear();
        look(&self.objset);
        drop(turn);
        assert!(stream.finish().is_empty());
        txg.committed();
    }

    /// Syncs a group that was already quiesced.
    pub(crate) fn sync_group(&mut self, txg: QuiescedTxg) {
        let stream = self.stream();
        let tx = SyncTx::new(&txg, 1, &self.writer, &stream);
        self.objset.sync(&tx, self.policy, &mut self.accounts).unwrap();
        assert!(stream.finish().is_empty());
        txg.committed();
    }

    /// Overwrites a block with other data.
    pub(crate) fn overwrite(&self, pointer: &BlockPointer) {
        let other = |dva: Dva| (dva, vec![0x5a; dva.asize() as usize].into());
        self.disk.put(pointer.dvas().map(other));
    }

    /// Changes the set on disk, and then reuses all space freed by that.
    pub(crate) fn replace(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.accounts.live.clone();
        change(self);
        let gone = before.iter().filter(|(dva, _)| !self.accounts.live.contains_key(*dva));
        gone.for_each(|(_, pointer)| self.overwrite(pointer));
        self.pipeline.cache().clear();
    }

    /// Runs a read while the set on disk is replaced: after it has looked up the places, as its
    /// read of the block at `held` has not returned by then.
    pub(crate) fn replace_while<R: Send>(
        &mut self,
        held: &BlockPointer,
        read: impl FnOnce() -> R + Send,
        change: impl FnOnce(&mut Self),
    ) -> R {
        self.pipeline.cache().clear();
        let gate = self.close_gate(held);
        std::thread::scope(|scope| {
            let reader = scope.spawn(read);
            gate.wait_for_reader();
            self.replace(change);
            gate.open();
            reader.join().unwrap()
        })
    }

    /// Blocks the next read of a block at the gate.
    pub(crate) fn close_gate(&self, held: &BlockPointer) -> Arc<GatedDevice> {
        self.gate.close(DATA_START + held.dvas().next().unwrap().offset());
        Arc::clone(&self.gate)
    }

    /// Number of checksum errors.
    pub(crate) fn checksum_errors(&self) -> u64 {
        self.pipeline.vdevs().leaves().map(|leaf| leaf.errors().checksum).sum()
    }

    /// The set as freshly opened from disk, without caches.
    pub(crate) fn reopened(&self) -> Objset {
        self.pipeline.cache().clear();
        let root = *self.objset.synced().root();
        Objset::open(&self.pipeline, self.objset.id(), &root, None).unwrap()
    }
}
