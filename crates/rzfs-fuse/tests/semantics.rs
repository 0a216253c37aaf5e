//! What `docs/semantics.md` promises about a mount, as the kernel sees it.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_format::ObjsetId;
use rzfs_format::znode::Timestamp;
use rzfs_fuse::{Mount, MountOptions};
use rzfs_testkit::ReferencePool;
use rzfs_zpl::{
    ControlTree, DatasetSnapshots, DirCookie, FileCaches, FileSystem, NameTarget, SnapshotEntry,
    SnapshotSource, ZplError,
};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The offset in bytes where a leaf's data begins.
const DATA_START: u64 = 4 << 20;

/// Snapshots that count lookups.
struct Counting {
    snapshots: DatasetSnapshots,
    searches: Arc<AtomicUsize>,
}

impl SnapshotSource for Counting {
    fn snapshots(&self) -> Result<Vec<SnapshotEntry>, ZplError> {
        self.snapshots.snapshots()
    }

    fn find(&self, name: &[u8]) -> Result<Option<SnapshotEntry>, ZplError> {
        self.searches.fetch_add(1, Ordering::Relaxed);
        self.snapshots.find(name)
    }

    fn open(&self, objset: ObjsetId) -> Result<FileSystem, ZplError> {
        self.snapshots.open(objset)
    }

    fn changed(&self) -> Result<Timestamp, ZplError> {
        self.snapshots.changed()
    }
}

/// A mounted file system.
struct Mounted {
    file_system: Arc<FileSystem>,
    searches: Arc<AtomicUsize>,
    mount: Mount,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn unmount(self) {
        self.mount.unmount().unwrap();
    }
}

fn golden_image() -> PathBuf {
    let golden = ReferencePool::golden("g01-default").expect("golden pools");
    golden.images().unwrap().remove(0)
}

fn import(image: &Path) -> Pool {
    let found = Discovery::search(&[DeviceSource::Path(image.into())], &OpenOptions::new());
    let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
    Pool::import(&found.pools()[0], &options).unwrap()
}

fn mount(image: &Path, dataset: &str) -> Mounted {
    let pool = import(image);
    let dataset = pool.datasets().open(dataset).unwrap();
    let file_system = Arc::new(FileSystem::of_dataset(&dataset, pool.version()).unwrap());
    let searches = Arc::new(AtomicUsize::new(0));
    let options = MountOptions::new(dataset.name());
    let snapshots = DatasetSnapshots::new(dataset, pool.version(), None, FileCaches::default());
    let counting = Counting { snapshots, searches: Arc::clone(&searches) };
    let control = ControlTree::new(Arc::clone(&file_system), Box::new(counting));
    let directory = tempfile::tempdir().unwrap();
    let control = Some(control);
    let mount = Mount::new(Arc::clone(&file_system), control, directory.path(), &options).unwrap();
    Mounted { file_system, searches, mount, directory }
}

#[test]
fn directories_of_zfs_look_as_openzfs_shows_them() {
    let mounted = mount(&golden_image(), "g01/sa");
    for path in [".zfs", ".zfs/snapshot", ".zfs/shares"] {
        let metadata = fs::metadata(mounted.path(path)).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o777, "{path}");
        let mut value = [0; 16];
        let missing = rustix::fs::getxattr(mounted.path(path), "user.a", &mut value[..]);
        assert_eq!(missing, Err(rustix::io::Errno::OPNOTSUPP), "{path}");
    }
    mounted.unmount();
}

#[test]
fn inode_numbers_are_object_numbers_and_one_for_each_file() {
    let mounted = mount(&golden_image(), "g01/sa");
    let root = mounted.file_system.root();
    let NameTarget::Object(one) = mounted.file_system.lookup(root, b"one").unwrap() else {
        panic!("a control directory");
    };
    let live = fs::metadata(mounted.path("one")).unwrap().ino();
    assert_eq!(live, one.0);
    assert_eq!(fs::metadata(mounted.path("")).unwrap().ino(), root.0);
    // The same object in two snapshots.
    let [s1, s2] = ["s1", "s2"].map(|snapshot| {
        fs::metadata(mounted.path(&format!(".zfs/snapshot/{snapshot}/one"))).unwrap().ino()
    });
    assert_eq!([s1, s2].map(|number| number & ((1 << 48) - 1)), [live; 2]);
    assert!(s1 != live && s2 != live && s1 != s2);
    mounted.unmount();

    let snapshot = mount(&golden_image(), "g01/sa@s1");
    assert_eq!(fs::metadata(snapshot.path("one")).unwrap().ino(), live);
    snapshot.unmount();
}

#[test]
fn the_kernel_remembers_that_there_is_no_such_file() {
    let mounted = mount(&golden_image(), "g01/sa");
    for _ in 0..10 {
        let missing = fs::metadata(mounted.path(".zfs/snapshot/nowhere")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(!mounted.path("nowhere").exists());
    }
    assert_eq!(mounted.searches.load(Ordering::Relaxed), 1);
    mounted.unmount();
}

#[test]
fn a_listing_shows_what_is_good_before_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("g01.img");
    let copied = Command::new("cp").arg("--sparse=always").arg(golden_image()).arg(&image).status();
    assert!(copied.unwrap().success());
    let mut permissions = fs::metadata(&image).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(&image, permissions).unwrap();
    damage_last_leaf(&image, "g01", b"fat");

    let mounted = mount(&image, "g01");
    let Ok(NameTarget::Object(fat)) =
        mounted.file_system.lookup(mounted.file_system.root(), b"fat")
    else {
        panic!("no directory");
    };
    let mut readable = 0;
    let count = |entry: rzfs_zpl::DirEntry<'_>| {
        readable += usize::from(!matches!(entry.name, b"." | b".."));
        ControlFlow::Continue(())
    };
    assert!(mounted.file_system.read_dir(fat, DirCookie::START, count).is_err());
    assert!(readable > 0, "the damage is too early to show anything");

    let mut listed = 0;
    let mut error = None;
    for entry in fs::read_dir(mounted.path("fat")).unwrap() {
        match entry {
            Ok(_) => listed += 1,
            Err(failure) => {
                error = Some(failure);
                break;
            }
        }
    }
    assert_eq!(listed, readable);
    assert_eq!(error.and_then(|error| error.raw_os_error()), Some(5));
    mounted.unmount();
}

/// Overwrites every copy of the last block of a directory.
fn damage_last_leaf(image: &Path, dataset: &str, name: &[u8]) {
    let pool = import(image);
    let dataset = pool.datasets().open(dataset).unwrap();
    let file_system = FileSystem::of_dataset(&dataset, pool.version()).unwrap();
    let NameTarget::Object(directory) = file_system.lookup(file_system.root(), name).unwrap()
    else {
        panic!("a control directory");
    };
    let object = file_system.objset().object(directory).unwrap();
    let last = object.dnode().max_block_id.0;
    let pointer = object.pointers(0, last..last + 1).pop().unwrap().unwrap();
    let image = File::options().write(true).open(image).unwrap();
    for dva in pointer.dvas() {
        image.write_all_at(&[0x55; 512], DATA_START + dva.offset()).unwrap();
    }
}
