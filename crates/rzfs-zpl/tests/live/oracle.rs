//! A file system made and changed here, on disk, and what OpenZFS's `zdb` says about it: it
//! replaces one in a golden pool, whose meta object set and uberblock then refer to it.

use crate::operations::{make, new_file, put};
use crate::pool::{Accounts, StepClock};
use parking_lot::Mutex;
use rzfs_clock::Clock;
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_dmu::live::{LiveObjset, SyncTx};
use rzfs_dmu::txg::{DirtyLimits, TxgEngine, TxgOptions};
use rzfs_dmu::write::{
    BlockSpace, BlockWriter, DeviceWrite, DeviceWriter, EncodeOptions, HoleBirth, NoSpace,
    ObjsetPolicy, SpaceRequest, WriteStream,
};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dsl::DslDataset;
use rzfs_format::label::{LabelIndex, LeafSize, Multihost, START_SIZE, UberblockRing};
use rzfs_format::objset::ObjsetType;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{BlockPointer, ByteOrder, Dva, ObjectId, ObjsetId, Txg, VdevId};
use rzfs_proof::record;
use rzfs_testkit::{FileSystemManifest, ReferencePool};
use rzfs_vdev::VdevError;
use rzfs_zpl::FileSystem;
use rzfs_zpl::live::{LiveFileSystem, NewFileSystem, NewKind, WallClock};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SECTOR: u64 = 4096;
/// Unused space of the golden pool: from its fifth metaslab on.
const FREE: u64 = 5 << 24;
const ASHIFT: u64 = 12;

#[derive(Debug)]
struct Bump(Mutex<u64>);

impl BlockSpace for Bump {
    fn allocate(&self, request: &SpaceRequest, _: Txg) -> Result<[Dva; 3], NoSpace> {
        let mut next = self.0.lock();
        let asize = request.size.next_multiple_of(SECTOR);
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
struct Image(File);

impl DeviceWriter for Image {
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>> {
        let write = |write: DeviceWrite| {
            self.0.write_all_at(&write.data, START_SIZE + write.dva.offset()).unwrap();
            Ok(())
        };
        writes.into_iter().map(write).collect()
    }
}

fn zdb(directory: &Path, arguments: &[&str]) -> Option<String> {
    let pool = [OsStr::new("-e"), OsStr::new("-p"), directory.as_os_str()];
    rzfs_testkit::zdb(pool.into_iter().chain(arguments.iter().map(OsStr::new)))
}

/// A copy of the golden pool's image.
fn copy(reference: &ReferencePool, name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let [image] = &reference.images().unwrap()[..] else { panic!("several images") };
    let to = directory.join("0.img");
    let status = Command::new("cp").args(["--sparse=always"]).arg(image).arg(&to).status();
    assert!(status.unwrap().success());
    let mut permissions = std::fs::metadata(&to).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&to, permissions).unwrap();
    directory
}

/// Writes an uberblock into its slot of all labels.
fn write_uberblock(image: &File, uberblock: &Uberblock) {
    let ring = UberblockRing::of_ashift(ASHIFT);
    let slot = ring.slot_offset(ring.slot_of_txg(uberblock.txg, Multihost::Off));
    let size = LeafSize::of_device(image.metadata().unwrap().len()).unwrap();
    for label in LabelIndex::ALL {
        let offset = size.label_offset(label) + slot;
        let mut bytes = vec![0; ring.slot_size()];
        bytes[..Uberblock::SIZE].copy_from_slice(&uberblock.encode(ByteOrder::NATIVE));
        let verifier = EmbeddedVerifier::Label { offset };
        generate_embedded(ChecksumFunction::Label, &mut bytes, verifier, ByteOrder::NATIVE)
            .unwrap();
        image.write_all_at(&bytes, offset).unwrap();
    }
}

/// Replaces a golden dataset by a file system that `fill` changes, and returns the image.
fn transplant(name: &str, fill: impl FnOnce(&Arc<LiveFileSystem>)) -> Option<PathBuf> {
    let reference = ReferencePool::golden("g01-default")?;
    let directory = copy(&reference, name);
    let pool = crate::golden_shapes::import_from(&directory.join("0.img"));
    let dataset = pool.datasets().open("g01/sa").unwrap();
    let image = File::options().read(true).write(true).open(directory.join("0.img")).unwrap();
    let disk: Arc<dyn DeviceWriter> = Arc::new(Image(image.try_clone().unwrap()));
    let encode = EncodeOptions {
        salt: pool.salt().cloned().unwrap(),
        min_allocation: SECTOR,
        allocation_unit: SECTOR,
        embedded_data: true,
    };
    let space = Arc::new(Bump(Mutex::new(FREE)));
    let pipeline = Arc::clone(pool.pipeline());
    let writer = BlockWriter::new(Arc::clone(&pipeline), space, encode, HoleBirth::Recorded, 1);
    let limits = DirtyLimits::of_memory(1 << 30);
    let (timeout, max_frees) = (Duration::from_secs(3600), 100_000);
    let options = TxgOptions { limits, timeout, max_frees, history: 10 };
    let engine = TxgEngine::new(pool.txg(), options, Clock::system());
    let id = ObjsetId(dataset.object().get());
    let objset = LiveObjset::create(&pipeline, id, (ObjsetType::Zfs, 7), None);
    let tx = engine.begin(&[]).unwrap();
    NewFileSystem::new(StepClock::default().now(), 9).create(&objset, &tx).unwrap();
    drop(tx);
    let options = crate::pool::Pool::options();
    let fs = LiveFileSystem::open(objset.clone(), Arc::clone(&engine), options).unwrap();
    fill(&fs);

    let txg = engine.quiesce().unwrap();
    let stream = WriteStream::start(&disk);
    let tx = SyncTx::new(&txg, 1, &writer, &stream);
    let mos_policy = ObjsetPolicy::mos(CompressionFunction::Lz4);
    let policy = ObjsetPolicy { copies: 1, ..mos_policy };
    let root = objset.sync(&tx, policy, &mut Accounts::default()).unwrap().unwrap().root;
    let mos = LiveObjset::open(pool.mos().clone());
    let head = mos.object(ObjectId(id.get())).unwrap();
    let bonus_type = head.bonus_type().unwrap();
    let old = DslDataset::decode(&head.bonus().unwrap(), ByteOrder::NATIVE).unwrap();
    let new = DslDataset { root, ..old };
    head.set_bonus(&tx, bonus_type, &new.encode(ByteOrder::NATIVE)).unwrap();
    let mos_root: BlockPointer = mos.sync(&tx, mos_policy, &mut Plain).unwrap().unwrap().root;
    assert!(stream.finish().is_empty());
    let uberblock = Uberblock { txg: txg.txg(), mos: mos_root, ..pool.uberblock().clone() };
    write_uberblock(&image, &uberblock);
    txg.committed();
    Some(directory)
}

/// Accounts without owners.
struct Plain;

impl rzfs_dmu::sync::BlockAccounting for Plain {
    fn born(&mut self, _: &BlockPointer) {}
    fn shared(&mut self, _: &BlockPointer) {}
    fn killed(&mut self, _: &BlockPointer) {}
    fn lost(&mut self, _: u64) {}
}

impl rzfs_dmu::live::SpaceOwner for Plain {
    fn dnode_flags(&self) -> rzfs_format::dnode::DnodeFlags {
        rzfs_format::dnode::DnodeFlags::default()
    }

    fn dnode_changed(
        &mut self,
        _: ObjectId,
        _: Option<&rzfs_format::dnode::Dnode>,
        _: Option<&rzfs_format::dnode::Dnode>,
    ) {
    }

    fn write_accounting(
        &mut self,
        _: &LiveObjset,
        _: &SyncTx<'_>,
    ) -> Result<(), rzfs_dmu::DmuError> {
        Ok(())
    }
}

#[test]
fn every_file_and_attribute_is_found_on_disk() {
    let mut seen = FileSystemManifest::default();
    let fill = |fs: &Arc<LiveFileSystem>| {
        crate::golden_shapes::small_tree(fs);
        crate::golden_shapes::xattrs(fs);
        let dir = make(fs, fs.root(), "moved", NewKind::Directory);
        let file = fs.create(dir, b"file", &new_file(NewKind::Regular, 0o640)).unwrap().object;
        put(fs, file, 0, b"contents");
        seen = record(&**fs).unwrap();
    };
    let Some(directory) = transplant("zdb-finds", fill) else { return };
    let pool = crate::golden_shapes::import_from(&directory.join("0.img"));
    let dataset = pool.datasets().open("g01/sa").unwrap();
    let written = record(&FileSystem::of_dataset(&dataset, pool.version()).unwrap()).unwrap();
    assert_eq!(written.entries.len(), 31);
    assert_eq!(written, seen);
    drop((dataset, pool));
    openzfs_finds_them(&directory);
    std::fs::remove_dir_all(&directory).unwrap();
}

fn openzfs_finds_them(directory: &Path) {
    let Some(text) = zdb(directory, &["-ddddd", "g01/sa"]) else { return };
    std::fs::write(directory.join("zdb.txt"), &text).unwrap();
    assert!(!text.contains("???"), "{text}");
    for wanted in [
        "path\t/moved/file",
        "path\t/dir/sub/deep/leaf",
        "path\t/symlong",
        "SA xattrs: 3080 bytes, 2 entries",
        "user.a = 1",
        "ZFS delete queue",
        "2 = [ 5  6  4  12  13  7  11  0  1  2  3  8  21  16  19 ]",
        "ZPL_DACL_ACES =  40013 : [0:4:19]",
        "obj-4d2 = 1",
        "casesensitivity = 0",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing; see {}", directory.display());
    }
    let paths = text.lines().filter(|line| line.starts_with("\tpath\t/")).count();
    assert_eq!(paths, 33, "paths; see {}", directory.display());
    // Every block of the data set can be read and has the right checksum.
    let blocks = zdb(directory, &["-dddddd", "g01/sa"]).unwrap();
    assert!(!blocks.contains("failed"), "see {}", directory.display());
}
