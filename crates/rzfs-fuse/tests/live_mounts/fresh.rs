//! Attributes of files that the kernel knows already are those that the file system has, whatever has
//! changed them.

use crate::mounted::Mounted;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Stat, StatxFlags, Timespec,
    Timestamps, XattrFlags, copy_file_range, fallocate, fstat, getxattr, open, openat, removexattr,
    renameat_with, setxattr, statx, utimensat,
};
use rustix::io::Errno;
use rzfs_format::ObjectId;
use rzfs_testkit::has_root;
use rzfs_zpl::Attributes;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take what a file takes for what it was before that was written.
const UNTIL_WRITTEN: Duration = Duration::from_secs(5);

/// The times of reading are another matter.
#[derive(PartialEq, Eq, Debug)]
struct Shown {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    blocks: u64,
    changed: [(i64, u64); 2],
}

impl Shown {
    fn by_kernel(stat: &Stat) -> Self {
        let signed = |number| u64::try_from(number).unwrap();
        Self {
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            links: stat.st_nlink,
            size: signed(stat.st_size),
            blocks: signed(stat.st_blocks),
            changed: [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)],
        }
    }

    fn by_file_system(has: &Attributes) -> Self {
        Self {
            mode: has.permissions.into(),
            owner: (has.uid, has.gid),
            links: has.links,
            size: has.size,
            blocks: has.blocks,
            changed: [has.mtime, has.ctime].map(|at| (at.seconds, at.nanoseconds.into())),
        }
    }
}

/// A change, and what is said of it.
type Step<'s> = (&'static str, &'s dyn Fn());

/// Files that the kernel knows, and that nobody has open.
struct Known<'m> {
    mounted: &'m Mounted,
    files: Vec<(&'static str, OwnedFd)>,
}

impl<'m> Known<'m> {
    /// Files that are there, on disk: the kernel may keep what it is told of them.
    fn new(mounted: &'m Mounted, names: &[&'static str]) -> Self {
        let known = |name: &&'static str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            (*name, open(mounted.path(name), flags, Mode::empty()).unwrap())
        };
        let this = Self { mounted, files: names.iter().map(known).collect() };
        this.check("before");
        this
    }

    /// What there is to see is there, now and when it is on disk.
    fn check(&self, what: &str) {
        let see = |blocks| self.files.iter().find_map(|one| self.differs(one, blocks));
        if let Some(difference) = see(Blocks::Ignored) {
            panic!("{what}: {difference}");
        }
        self.mounted.pool().sync().unwrap();
        if let Some(difference) = see(Blocks::Ignored) {
            panic!("{what}, and written: {difference}");
        }
        let begun = Instant::now();
        while let Some(difference) = see(Blocks::Compared) {
            assert!(begun.elapsed() < UNTIL_WRITTEN, "{what}, and written: {difference}");
            sleep(Duration::from_millis(50));
        }
    }

    /// How what the kernel shows of a file differs from what there is.
    fn differs(&self, (name, file): &(&str, OwnedFd), blocks: Blocks) -> Option<String> {
        // It may know that some are old and think that others are not: each is asked for alone.
        let only = |what| statx(file, "", AtFlags::EMPTY_PATH, what).unwrap();
        let mode = only(StatxFlags::MODE);
        let has = self.mounted.files().attributes(ObjectId(mode.stx_ino));
        if let Ok(has) = has {
            let shown = (
                mode.stx_mode & 0o7777,
                u64::from(only(StatxFlags::NLINK).stx_nlink),
                only(StatxFlags::SIZE).stx_size,
            );
            let is = (has.permissions, has.links, has.size);
            if shown != is {
                return Some(format!("{name}: mode, links, size: {shown:?} instead of {is:?}"));
            }
        }
        let stat = fstat(file).unwrap();
        let mut shown = Shown::by_kernel(&stat);
        match self.mounted.files().attributes(ObjectId(stat.st_ino)) {
            Ok(has) => {
                let has = Shown::by_file_system(&has);
                if blocks == Blocks::Ignored {
                    shown.blocks = has.blocks;
                }
                (has != shown).then(|| format!("{name}: {shown:?} instead of {has:?}"))
            }
            // It is gone.
            Err(error) => (shown.links > 0).then(|| format!("{name}: {shown:?}: {error}")),
        }
    }
}

/// Whether the space that files take is looked at, which is known when they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocks {
    Ignored,
    Compared,
}

#[test]
fn links_are_counted_as_they_come_and_go() {
    let mounted = Mounted::new();
    let at = |name: &str| mounted.path(name);
    for directory in ["d", "e", "empty", "d/in"] {
        fs::create_dir(at(directory)).unwrap();
    }
    for file in ["a", "b", "c", "d/file"] {
        fs::write(at(file), file).unwrap();
    }
    let known = Known::new(&mounted, &["", "a", "b", "c", "d", "e", "empty", "d/in", "d/file"]);
    let link = |from, to| fs::hard_link(at(from), at(to)).unwrap();
    let rename = |from, to| fs::rename(at(from), at(to)).unwrap();
    let exchange = |from, to| {
        renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE).unwrap();
    };
    let steps: [Step<'_>; 12] = [
        ("a gets a name", &|| link("a", "d/a")),
        ("a loses one", &|| fs::remove_file(at("a")).unwrap()),
        ("b gets two", &|| ["d/b", "e/b"].iter().for_each(|name| link("b", name))),
        ("a replaces a name of b", &|| rename("d/a", "e/b")),
        ("c replaces a's last one", &|| rename("c", "e/b")),
        ("names of one file", &|| rename("d/b", "b")),
        ("a directory moves", &|| rename("d/in", "e/in")),
        ("a directory replaces an empty one", &|| rename("e/in", "empty")),
        ("a directory and a file", &|| exchange("empty", "d/file")),
        ("a directory in a directory", &|| fs::create_dir(at("e/new")).unwrap()),
        ("and it goes", &|| fs::remove_dir(at("e/new")).unwrap()),
        ("two directories", &|| exchange("d", "e")),
    ];
    for (what, step) in steps {
        step();
        known.check(what);
    }
    drop(known);
    mounted.finish();
}

#[test]
fn sizes_are_seen_however_files_are_written() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, vec![1; 300_000]).unwrap();
    fs::write(mounted.path("source"), vec![2; 400_000]).unwrap();
    fs::hard_link(&path, mounted.path("other")).unwrap();
    let known = Known::new(&mounted, &["", "file", "source"]);
    let other = |options: &File| options.try_clone().unwrap();
    let writer = File::options().write(true).open(mounted.path("other")).unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let direct = File::options().write(true).custom_flags(direct).open(&path).unwrap();
    let source = File::open(mounted.path("source")).unwrap();
    let allocate = |flags, offset, len| fallocate(&writer, flags, offset, len).unwrap();
    let steps: [Step<'_>; 13] = [
        ("written at the end", &|| other(&writer).write_all_at(&[3; 5000], 299_000).unwrap()),
        ("written inside", &|| writer.write_all_at(&[3; 5000], 1000).unwrap()),
        ("appended", &|| {
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(&[4; 70_000]).unwrap();
        }),
        ("past the pages, at the end", &|| direct.write_all_at(&[5; 8192], 1 << 20).unwrap()),
        ("past the pages, inside", &|| direct.write_all_at(&[6; 8192], 65_536).unwrap()),
        ("shortened", &|| writer.set_len(200_000).unwrap()),
        ("shortened by its name", &|| {
            assert!(
                Command::new("truncate")
                    .args(["-s", "150000"])
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
        }),
        ("made longer", &|| writer.set_len(500_000).unwrap()),
        ("allocated", &|| allocate(FallocateFlags::empty(), 0, 600_000)),
        ("allocated beyond its size", &|| allocate(FallocateFlags::KEEP_SIZE, 0, 700_000)),
        ("a hole", &|| {
            allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 262_144);
        }),
        ("copied into", &|| {
            let (mut from, mut to) = (0, 131_072 * 5);
            let copied = copy_file_range(&source, Some(&mut from), &writer, Some(&mut to), 262_144);
            assert_eq!(copied, Ok(262_144));
        }),
        ("emptied by opening", &|| drop(File::create(mounted.path("other")).unwrap())),
    ];
    for (what, step) in steps {
        step();
        known.check(what);
    }
    drop((known, writer, direct, source));
    mounted.finish();
}

/// The rights that a list's mask leaves, as the kernel knows them.
fn mask(path: &PathBuf) -> Option<u32> {
    const TAG: u16 = 0x10;
    let mut list = [0; 256];
    let len = getxattr(path, "system.posix_acl_access", &mut list[..]).unwrap();
    let entries = list[4..len].chunks_exact(8);
    let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    entries.filter(|one| number(one, 0) == TAG).map(|one| number(one, 2).into()).next()
}

fn run(words: &[&str], path: &PathBuf) {
    let output = Command::new(words[0]).args(&words[1..]).arg(path).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

#[test]
fn modes_and_lists_go_together() {
    if !has_root("only root can be several users") {
        return;
    }
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, "contents").unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(&path, mounted.path("other")).unwrap();
    let other = mounted.path("other");
    let known = Known::new(&mounted, &["file", "dir"]);
    run(&["setfacl", "-m", "u:1000:rwx"], &path);
    known.check("a list");
    assert_eq!(mask(&path), Some(7));
    for mode in [0o600, 0o640, 0o670, 0o604] {
        fs::set_permissions(&other, Permissions::from_mode(mode)).unwrap();
        assert_eq!(mask(&path), Some((mode >> 3) & 7), "{mode:o}");
        known.check("a mode");
        assert_eq!(mask(&path), Some((mode >> 3) & 7), "{mode:o}");
    }
    for (rights, bits) in [("m::rwx", 0o70), ("m::r", 0o40), ("u::r", 0), ("o::rx", 0)] {
        run(&["setfacl", "-m", rights], &other);
        known.check(rights);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert!(bits == 0 || mode & 0o70 == bits, "{rights}: {mode:o}");
    }
    let list = {
        let mut list = vec![0; 256];
        let len = getxattr(&path, "system.posix_acl_access", &mut list[..]).unwrap();
        list.truncate(len);
        list
    };
    removexattr(&other, "system.posix_acl_access").unwrap();
    known.check("no list");
    assert_eq!(getxattr(&path, "system.posix_acl_access", &mut [0; 256]), Err(Errno::NODATA));
    setxattr(&other, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    known.check("the list again");
    assert_eq!(mask(&path), Some(7), "it was calculated");
    run(&["setfacl", "-d", "-m", "u:1000:rwx,g::rx,o::-"], &mounted.path("dir"));
    known.check("a list for new files");
    fs::write(mounted.path("dir/new"), "new").unwrap();
    known.check("a new file");
    let new = Known::new(&mounted, &["dir/new"]);
    fs::set_permissions(mounted.path("dir/new"), Permissions::from_mode(0o610)).unwrap();
    new.check("its mode");
    assert_eq!(mask(&mounted.path("dir/new")), Some(1));
    drop((known, new));
    mounted.finish();
}

/// Another user than the owner.
const AS_OTHER: [&str; 4] = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];

#[test]
fn a_mode_is_seen_without_the_bits_that_a_change_has_taken_away() {
    if !has_root("only root can be several users") {
        return;
    }
    let mounted = Mounted::new();
    fs::set_permissions(mounted.path(""), Permissions::from_mode(0o777)).unwrap();
    let path = mounted.path("file");
    fs::write(&path, vec![1; 5000]).unwrap();
    let known = Known::new(&mounted, &["file"]);
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    let script = |script: &'static str| {
        let path = &path;
        move || run(&[&AS_OTHER[..], &["sh", "-c", script]].concat(), path)
    };
    let steps: [Step<'_>; 5] = [
        ("written", &script("echo more >> \"$0\"")),
        ("written inside", &script("echo more | dd conv=notrunc status=none of=\"$0\"")),
        ("shortened", &script("truncate -s 100 \"$0\"")),
        ("allocated", &script("fallocate -l 9000 \"$0\"")),
        ("emptied", &script(": > \"$0\"")),
    ];
    for (what, step) in steps {
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        known.check("set");
        assert_eq!(mode(), 0o6777);
        step();
        known.check(what);
        assert_eq!(mode(), 0o777, "{what}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    known.check("set");
    chown(&path, Some(1000), Some(2000)).unwrap();
    known.check("given away");
    assert_eq!(mode(), 0o777, "given away");
    // Whoever is not of the group does not give its rights.
    run(&[&AS_OTHER[..], &["chmod", "2770"]].concat(), &path);
    known.check("not of the group");
    assert_eq!(mode(), 0o770);
    drop(known);
    mounted.finish();
}

#[test]
fn times_are_seen_as_they_are_set() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("file"), "contents").unwrap();
    fs::hard_link(mounted.path("file"), mounted.path("dir/other")).unwrap();
    let known = Known::new(&mounted, &["", "file", "dir"]);
    let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    for (name, seconds) in [("dir/other", 1 << 33), ("file", -7), ("dir", 99)] {
        let times = Timestamps { last_access: time(seconds), last_modification: time(seconds + 1) };
        utimensat(CWD, mounted.path(name), &times, AtFlags::empty()).unwrap();
        let (_, file) = &known.files[if name == "dir" { 2 } else { 1 }];
        let stat = fstat(file).unwrap();
        let seen = [(stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec)];
        assert_eq!(seen, [(seconds, 123_456_789), (seconds + 1, 123_456_789)]);
        known.check(name);
    }
    let dir = open(mounted.path("dir"), OFlags::PATH, Mode::empty()).unwrap();
    let steps: [Step<'_>; 5] = [
        ("an attribute", &|| {
            setxattr(mounted.path("dir/other"), "user.a", b"b", XattrFlags::empty()).unwrap();
        }),
        ("an attribute that goes", &|| removexattr(mounted.path("file"), "user.a").unwrap()),
        ("a new file", &|| {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            drop(openat(&dir, "new", flags, Mode::RUSR).unwrap());
        }),
        ("a link", &|| std::os::unix::fs::symlink("new", mounted.path("dir/link")).unwrap()),
        ("a name that goes", &|| fs::remove_file(mounted.path("dir/link")).unwrap()),
    ];
    for (what, step) in steps {
        step();
        known.check(what);
    }
    drop((known, dir));
    mounted.finish();
}
