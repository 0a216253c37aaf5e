//! Nothing in `.zfs` can be changed by any user: neither its directories, nor the contents of
//! snapshots, nor the names that lead there.

use crate::mounted::{options, serve, unmount};
use rzfs_blockdev::{Access, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, HostIdentity, ImportOptions};
use rzfs_dsl::live::{LiveOptions as PoolOptions, LivePool, SystemEnvironment};
use rzfs_fuse::{Mount, Opens};
use rzfs_testkit::{has_root, unpack_sample};
use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{ControlTree, DatasetSnapshots, FileCaches};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const ROOT: u32 = 0;
const NOBODY: u32 = 65534;
/// A file system of the sample pool with two snapshots.
const NOTES: &str = "garden/notes";

/// The sample pool, open for writing, and a file system of it that has snapshots, mounted.
struct Garden {
    pool: LivePool,
    fs: Arc<LiveFileSystem>,
    mount: Mount,
    directory: tempfile::TempDir,
    _image: tempfile::TempDir,
}

impl Garden {
    fn new(opens: Opens) -> Self {
        let images = tempfile::tempdir().unwrap();
        unpack_sample("garden", &images.path().join("image")).unwrap();
        let writing = OpenOptions::new().access(Access::ReadWrite);
        let found = Discovery::search(&[DeviceSource::Path(images.path().into())], &writing);
        let import = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
        let imported = Pool::import(&found.pools()[0], &import).unwrap();
        let host = HostIdentity { id: 0, name: Some("here".to_owned()) };
        let environment = Arc::new(SystemEnvironment::new(host));
        let pool = LivePool::open(&imported, environment, &PoolOptions::default()).unwrap();
        let notes = pool.dataset_tree().unwrap().open(NOTES).unwrap();
        let live = pool.open_dataset(&notes).unwrap();
        let fs = LiveFileSystem::open_dataset(&pool, &live, options()).unwrap();
        let version = imported.version();
        let snapshots = DatasetSnapshots::new(notes, version, None, FileCaches::default());
        let control = ControlTree::new(Arc::clone(&fs), Box::new(snapshots));
        let directory = tempfile::tempdir().unwrap();
        let mount = serve(&fs, Some(control), directory.path(), opens);
        Self { pool, fs, mount, directory, _image: images }
    }

    /// The same, with a directory and files that every user may try to move or link into `.zfs`,
    /// and from `.zfs` into.
    fn with_neighbours() -> Self {
        let garden = Self::new(Opens::Unasked);
        let open = garden.path("open");
        fs::create_dir(&open).unwrap();
        fs::write(open.join("mine"), "mine").unwrap();
        chown(open.join("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        garden
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Tries one kind of change; returns the result of each attempt: the name of an errno.
    fn tried(&self, uid: u32, kind: &str, arguments: &[&str]) -> BTreeMap<String, String> {
        let uid = uid.to_string();
        let mut python = Command::new("python3");
        python.args(["-c", CHANGES, &uid, kind]).arg(self.directory.path()).args(arguments);
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |line: &str| {
            let (what, error) = line.split_once(' ').unwrap();
            (what.to_owned(), error.to_owned())
        };
        text.lines().map(line).collect()
    }

    /// Checks that all changes of one kind are refused: with the errno `usual`, except for those in
    /// `others`.
    fn refuses(&self, uid: u32, kind: &str, arguments: &[&str], usual: &str, others: &Refusals) {
        let before = self.everything();
        let tried = self.tried(uid, kind, arguments);
        assert!(others.iter().all(|(what, _)| tried.contains_key(*what)), "{tried:?}");
        for (what, error) in &tried {
            let expected = others.iter().find(|(other, _)| other == what);
            let expected = expected.map_or(usual, |(_, error)| *error);
            let context = format!("{what} of {arguments:?} as {uid}: {error}, not {expected}");
            assert!(expected.split('|').any(|one| one == error), "{context}");
        }
        assert!(tried.len() >= 9, "{tried:?}");
        assert_eq!(self.everything(), before, "{kind} of {arguments:?} as {uid}");
    }

    /// Everything in the mount and in its `.zfs`.
    fn everything(&self) -> BTreeMap<PathBuf, String> {
        let mut seen = BTreeMap::new();
        for top in ["", ".zfs"] {
            see(&self.path(top), &mut seen);
        }
        assert!(seen.contains_key(&self.path(".zfs/snapshot/tuesday/beds/north")));
        seen
    }

    fn finish(self) {
        let Self { pool, fs, mount, .. } = self;
        unmount(&mount);
        drop(mount);
        fs.pause_reclaiming();
        fs.flush_access_times().unwrap();
        drop(fs);
        pool.export().unwrap();
    }
}

/// Changes that are refused with another errno, and which one, or which ones on other kernels.
type Refusals = [(&'static str, &'static str)];

/// Everything that can be seen of a file, and of the files below it.
fn see(path: &Path, seen: &mut BTreeMap<PathBuf, String>) {
    let known = fs::symlink_metadata(path).unwrap();
    let owner = (known.uid(), known.gid(), known.mode(), known.nlink(), known.size());
    let times = (known.mtime(), known.mtime_nsec(), known.ctime(), known.ctime_nsec());
    let contents = match known.is_file() {
        true => fs::read(path).unwrap(),
        false => Vec::new(),
    };
    let mut names = [0; 1000];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let what = (owner, times, &names[..len], known.ino());
    seen.insert(path.to_owned(), format!("{what:?} {}", String::from_utf8_lossy(&contents)));
    if known.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            see(&entry.unwrap().path(), seen);
        }
    }
}

/// Tries to change something as a user. `names`: the entries of a directory, of which one is given;
/// `attributes`: the metadata and the contents of a file.
const CHANGES: &str = "
import errno, fcntl, os, struct, sys
uid, kind, root = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
def attempt(what, change):
    try:
        change()
        print(what, 'done')
    except OSError as error:
        print(what, errno.errorcode[error.errno])
def opened(path, flags, then):
    file = os.open(path, flags)
    try:
        then(file)
    finally:
        os.close(file)
def control(path, number, data):
    opened(path, os.O_RDONLY, lambda file: fcntl.ioctl(file, number, data))
if kind == 'names':
    directory, entry = os.path.join(root, sys.argv[4]), sys.argv[5]
    new, old = os.path.join(directory, 'new'), os.path.join(directory, entry)
    mine, out = os.path.join(root, 'open/mine'), os.path.join(root, 'open/out')
    attempt('mkdir', lambda: os.mkdir(new))
    attempt('create', lambda: opened(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, lambda file: 0))
    attempt('mknod', lambda: os.mknod(new, 0o10600))
    attempt('symlink', lambda: os.symlink('target', new))
    attempt('link-in', lambda: os.link(mine, new))
    attempt('link-out', lambda: os.link(old, out))
    attempt('rename-in', lambda: os.rename(mine, new))
    attempt('rename-within', lambda: os.rename(old, new))
    attempt('rename-out', lambda: os.rename(old, out))
    attempt('rmdir', lambda: os.rmdir(old))
    attempt('unlink', lambda: os.unlink(old))
else:
    path = os.path.join(root, sys.argv[4])
    attempt('chmod', lambda: os.chmod(path, 0o700))
    attempt('chown', lambda: os.chown(path, uid, uid))
    attempt('chown-to-others', lambda: os.chown(path, 1, 1))
    attempt('touch', lambda: os.utime(path))
    attempt('utimes', lambda: os.utime(path, (1, 1)))
    attempt('setxattr', lambda: os.setxattr(path, 'user.a', b'value'))
    attempt('removexattr', lambda: os.removexattr(path, 'user.a'))
    attempt('flags', lambda: control(path, 0x40086602, struct.pack('Q', 0x40)))
    attempt('project', lambda: control(path, 0x401c5820, struct.pack('7I', 0, 0, 0, 7, 0, 0, 0)))
    attempt('dos-flags', lambda: control(path, 0x40088302, struct.pack('Q', 0x2 << 32)))
    attempt('truncate', lambda: os.truncate(path, 1))
    attempt('write', lambda: opened(path, os.O_WRONLY, lambda file: os.write(file, b'changed')))
    longer = lambda file: os.posix_fallocate(file, 0, 1 << 20)
    attempt('allocate', lambda: opened(path, os.O_WRONLY, longer))
";

/// Directories of `.zfs` itself, each with one of its entries.
const CONTROL: [(&str, &str); 2] = [(".zfs", "snapshot"), (".zfs/snapshot", "monday")];
const MONDAY: &str = ".zfs/snapshot/monday";
const DIARY: &str = ".zfs/snapshot/monday/diary";

/// Attempts to change snapshots, on a mount where no user may change them.
const OF_SNAPSHOTS: [(&str, &str); 3] =
    [("mkdir", "EACCES"), ("rename-within", "EACCES"), ("rmdir", "EACCES")];

/// Operations for which a directory cannot be opened.
const OF_DIRECTORIES: [(&str, &str); 3] =
    [("truncate", "EISDIR"), ("write", "EISDIR"), ("allocate", "EISDIR")];

#[test]
fn root_changes_nothing_in_zfs() {
    if !has_root("only root is root") {
        return;
    }
    let garden = Garden::with_neighbours();
    // The kernel reads the flags before it sets them, and there are none.
    let flags = [("flags", "ENOTTY|EPERM"), ("project", "ENOTTY|EPERM")];
    for (directory, entry) in CONTROL {
        let unlink = [("unlink", "EISDIR")];
        let names = match entry {
            "monday" => [&unlink[..], &OF_SNAPSHOTS].concat(),
            _ => unlink.to_vec(),
        };
        garden.refuses(ROOT, "names", &[directory, entry], "EPERM", &names);
        let others = [&OF_DIRECTORIES[..], &flags].concat();
        garden.refuses(ROOT, "attributes", &[directory], "EPERM", &others);
    }
    let rmdir = [("rmdir", "ENOTDIR")];
    garden.refuses(ROOT, "names", &[MONDAY, "diary"], "EROFS", &rmdir);
    let of_directory = [("unlink", "EISDIR"), ("link-out", "EPERM")];
    garden.refuses(ROOT, "names", &[MONDAY, "beds"], "EROFS", &of_directory);
    garden.refuses(ROOT, "attributes", &[MONDAY], "EROFS", &OF_DIRECTORIES);
    garden.refuses(ROOT, "attributes", &[DIARY], "EROFS", &[]);
    garden.finish();
}

/// What the mode forbids is refused by the kernel before it sends a request.
#[test]
fn users_change_nothing_in_zfs() {
    if !has_root("only root can be several users") {
        return;
    }
    let garden = Garden::with_neighbours();
    for (directory, entry) in CONTROL {
        let unlink = ("unlink", "EISDIR");
        let names = match entry {
            // Moving it would also change the directory itself.
            "monday" => [&[unlink, ("rename-out", "EACCES")][..], &OF_SNAPSHOTS].concat(),
            _ => vec![unlink],
        };
        garden.refuses(NOBODY, "names", &[directory, entry], "EPERM", &names);
        garden.refuses(NOBODY, "attributes", &[directory], "EPERM", &OF_DIRECTORIES);
    }
    // Unless the system lets every user link to other users' files (fs.protected_hardlinks).
    let link = [("link-out", "EPERM|EROFS")];
    garden.refuses(NOBODY, "names", &[MONDAY, "diary"], "EACCES", &link);
    garden.refuses(NOBODY, "names", &[MONDAY, "beds"], "EACCES", &[("link-out", "EPERM")]);
    let of_owners = [
        ("touch", "EACCES"),
        ("setxattr", "EACCES"),
        ("removexattr", "EACCES"),
        ("flags", "EPERM|EROFS"),
        ("project", "EPERM|EROFS"),
        ("dos-flags", "EROFS"),
    ];
    let of_directory = [&OF_DIRECTORIES[..], &of_owners].concat();
    garden.refuses(NOBODY, "attributes", &[MONDAY], "EPERM", &of_directory);
    let of_file = [("truncate", "EACCES"), ("write", "EACCES"), ("allocate", "EACCES")];
    let of_file = [&of_file[..], &of_owners].concat();
    garden.refuses(NOBODY, "attributes", &[DIARY], "EPERM", &of_file);
    garden.finish();
}

#[test]
fn files_of_snapshots_are_opened_for_writing_only_where_opening_is_not_checked() {
    for opens in [Opens::Unasked, Opens::Checked] {
        let garden = Garden::new(opens);
        let diary = garden.path(DIARY);
        let contents = fs::read(&diary).unwrap();
        let refused = Some(rustix::io::Errno::ROFS.raw_os_error());
        match File::options().write(true).open(&diary) {
            Ok(mut file) => {
                assert_eq!(opens, Opens::Unasked);
                assert_eq!(file.write(b"changed").unwrap_err().raw_os_error(), refused);
            }
            Err(error) => {
                assert_eq!((opens, error.raw_os_error()), (Opens::Checked, refused));
            }
        }
        let emptied = File::options().write(true).truncate(true).open(&diary);
        assert_eq!(emptied.unwrap_err().raw_os_error(), refused);
        assert!(fs::read(&diary).unwrap() == contents);
        garden.finish();
    }
}
