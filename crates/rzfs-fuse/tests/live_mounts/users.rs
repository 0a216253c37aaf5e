//! What users other than root may do, and how the kernel learns of changes that it did not request.

use crate::mounted::Mounted;
use rustix::fs::{AtFlags, CWD, IFlags, StatxFlags, ioctl_setflags, statx};
use rzfs_testkit::{has_root, kernel_passes};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;
const EPERM: &str = "1";
const EACCES: &str = "13";
const ZFS_IOC_SETDOSFLAGS: u64 = 0x4008_8302;
const IMMUTABLE: u64 = 0x10 << 32;
const NOUNLINK: u64 = 0x20 << 32;
const HIDDEN: u64 = 0x2 << 32;
const EINVAL: &str = "22";
const EOPNOTSUPP: &str = "95";
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

/// Flags as `FS_IOC_FSSETXATTR` numbers them.
const X_IMMUTABLE: u32 = 0x8;
const X_APPEND: u32 = 0x10;
const X_NODUMP: u32 = 0x80;
const X_PROJINHERIT: u32 = 0x200;
/// One that ZFS does not have.
const X_REALTIME: u32 = 0x1;

/// A mount that all users can access, which only root can make.
fn shared() -> Option<Mounted> {
    if !has_root("only root can be several users") {
        return None;
    }
    let mounted = Mounted::new();
    fs::set_permissions(mounted.path(""), Permissions::from_mode(0o755)).unwrap();
    Some(mounted)
}

/// A file owned by a user.
fn file_of(mounted: &Mounted, name: &str, uid: u32, mode: u32) -> PathBuf {
    let path = mounted.path(name);
    fs::write(&path, b"contents").unwrap();
    chown(&path, Some(uid), Some(uid)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn as_user(uid: u32, program: &[&str]) -> Output {
    let uid = uid.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]).args(program);
    command.output().unwrap()
}

/// Runs Python, since a shell program cannot open files and call ioctls like this. Python itself
/// switches to the user, who may not be allowed to execute it.
fn python_as(uid: u32, program: &str, path: &Path) -> String {
    let program = format!(
        "import fcntl, mmap, os, struct, sys\nos.setgroups([])\nos.setresgid({uid}, {uid}, {uid})\nos.setresuid({uid}, {uid}, {uid})\n{program}"
    );
    let output = Command::new("python3").args(["-c", &program]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Sets the flags of a file in ZFS's numbering; returns the errno, or an empty string.
fn set_dos_flags(uid: u32, path: &Path, flags: u64) -> String {
    let program = format!(
        "
fd = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.ioctl(fd, {ZFS_IOC_SETDOSFLAGS:#x}, struct.pack('Q', {flags:#x}))
except OSError as error:
    print(error.errno)
"
    );
    python_as(uid, &program, path)
}

#[test]
fn flags_are_set_by_owners_and_those_that_bind_by_root_only() {
    let Some(mounted) = shared() else { return };
    let of_root = file_of(&mounted, "of-root", 0, 0o644);
    let own = file_of(&mounted, "own", NOBODY, 0o644);
    for flag in [IMMUTABLE, NOUNLINK] {
        assert_eq!(set_dos_flags(NOBODY, &of_root, flag), EPERM);
        assert_eq!(set_dos_flags(NOBODY, &own, flag), EPERM);
    }
    assert_eq!(set_dos_flags(NOBODY, &of_root, HIDDEN), EACCES);
    assert_eq!(set_dos_flags(NOBODY, &own, HIDDEN), "");
    fs::write(&of_root, b"changed").unwrap();
    assert_eq!(set_dos_flags(0, &own, IMMUTABLE), "");
    assert_eq!(set_dos_flags(NOBODY, &own, 0), EPERM);
    assert_eq!(set_dos_flags(0, &own, 0), "");
    fs::remove_file(&own).unwrap();
    mounted.finish();
}

/// Root in a container lacks some capabilities.
#[test]
fn root_without_the_capability_binds_nothing() {
    let Some(mounted) = shared() else { return };
    let path = file_of(&mounted, "file", 0, 0o644);
    let set = format!(
        "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), {ZFS_IOC_SETDOSFLAGS:#x},
            struct.pack('Q', {IMMUTABLE:#x}))"
    );
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-linux_immutable", "--inh-caps", "-linux_immutable"]);
    let output = command.args(["python3", "-c", &set]).arg(&path).output().unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(problem.contains("PermissionError"), "{problem}");
    fs::write(&path, b"changed").unwrap();
    mounted.finish();
}

/// Sets a project and flags with one ioctl; returns the errno, or an empty string.
fn set_project(uid: u32, path: &Path, flags: u32, project: u32) -> String {
    let program = format!(
        "
fd = os.open(sys.argv[1], os.O_RDONLY)
try:
    wanted = struct.pack('7I', {flags:#x}, 0, 0, {project}, 0, 0, 0)
    fcntl.ioctl(fd, {FS_IOC_FSSETXATTR:#x}, wanted)
except OSError as error:
    print(error.errno)
"
    );
    python_as(uid, &program, path)
}

/// Flags and project of a file.
fn project(path: &Path) -> (u32, u32) {
    let program = format!(
        "
fd = os.open(sys.argv[1], os.O_RDONLY)
known = struct.unpack('7I', fcntl.ioctl(fd, {FS_IOC_FSGETXATTR:#x}, bytes(28)))
print(known[0], known[3])
"
    );
    let text = python_as(0, &program, path);
    let (flags, project) = text.split_once(' ').unwrap();
    (flags.parse().unwrap(), project.parse().unwrap())
}

#[test]
fn projects_are_set_by_owners_and_flags_that_bind_by_root_only() {
    // Older kernels leave the check of the owner to the file system, which returns another errno.
    if !kernel_passes("flags that it has checked", 5, 13) {
        return;
    }
    let Some(mounted) = shared() else { return };
    let own = file_of(&mounted, "own", NOBODY, 0o644);
    let own_directory = mounted.path("own-directory");
    fs::create_dir(&own_directory).unwrap();
    chown(&own_directory, Some(NOBODY), Some(NOBODY)).unwrap();
    for path in [&own, &own_directory] {
        for (flags, number) in [(X_NODUMP, 0), (X_PROJINHERIT, 7), (0, 8), (0, 0)] {
            assert_eq!(set_project(NOBODY, path, flags, number), "", "{path:?} {flags:#x}");
            assert_eq!(project(path), (flags, number), "{path:?}");
        }
        let refused = [
            (X_IMMUTABLE, 0, EPERM),
            (X_APPEND, 7, EPERM),
            (X_REALTIME, 7, EOPNOTSUPP),
            (0, u32::MAX, EINVAL),
        ];
        for (flags, number, error) in refused {
            assert_eq!(set_project(NOBODY, path, flags, number), error, "{path:?} {flags:#x}");
            assert_eq!(project(path), (0, 0), "{path:?} {flags:#x}");
        }
    }
    // A user who may write to a file does not own it.
    let of_root = file_of(&mounted, "of-root", 0, 0o644);
    let lent = file_of(&mounted, "lent", 0, 0o666);
    for path in [&of_root, &lent, &mounted.path("")] {
        for (flags, number) in [(X_NODUMP, 0), (X_IMMUTABLE, 0), (X_PROJINHERIT, 7), (0, 7)] {
            assert_eq!(set_project(NOBODY, path, flags, number), EPERM, "{path:?} {flags:#x}");
            assert_eq!(project(path), (0, 0), "{path:?} {flags:#x}");
        }
    }
    // What root has set also binds the owner.
    assert_eq!(set_project(0, &own, X_IMMUTABLE, 9), "");
    for (flags, number) in [(0, 9), (X_APPEND | X_IMMUTABLE, 9), (0, 0)] {
        assert_eq!(set_project(NOBODY, &own, flags, number), EPERM, "{flags:#x} {number}");
        assert_eq!(project(&own), (X_IMMUTABLE, 9));
    }
    assert_eq!(set_project(0, &own, 0, 0), "");
    mounted.finish();
}

#[test]
fn files_of_a_user_inherit_the_project_that_the_user_has_set() {
    let Some(mounted) = shared() else { return };
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(set_project(NOBODY, &directory, X_PROJINHERIT, 7), "");
    python_as(NOBODY, "open(sys.argv[1] + '/file', 'w')", &directory);
    assert_eq!(project(&directory.join("file")), (X_PROJINHERIT, 7));
    mounted.finish();
}

/// Calls a function with each attribute name; returns the result of each: an errno, or 0.
fn with_attributes(uid: u32, path: &Path, call: &str, names: &[&str]) -> Vec<(String, u32)> {
    let program = format!(
        "
for name in {names:?}:
    try:
        os.{call}
        print(name, 0)
    except OSError as error:
        print(name, error.errno)
"
    );
    let said = python_as(uid, &program, path);
    let told = said.lines().map(|line| {
        let (name, error) = line.split_once(' ').unwrap();
        (name.to_owned(), error.parse().unwrap())
    });
    told.collect()
}

/// The expected result of [`with_attributes`].
fn named(told: &[(&str, u32)]) -> Vec<(String, u32)> {
    told.iter().map(|(name, error)| ((*name).to_owned(), *error)).collect()
}

#[test]
fn attributes_are_set_by_those_who_may() {
    let Some(mounted) = shared() else { return };
    let of_root = file_of(&mounted, "of-root", 0, 0o644);
    let own = file_of(&mounted, "own", NOBODY, 0o644);
    let lent = file_of(&mounted, "lent", 0, 0o666);
    // EPERM is 1, ENODATA 61, EACCES 13, EOPNOTSUPP 95.
    let others =
        [("trusted.a", 1), ("security.a", 1), ("system.a", 95), ("system.nfs4_acl_xdr", 95)];
    for (path, user) in [(&of_root, 13), (&own, 0), (&lent, 0)] {
        let expected = [&[("user.a", user)], &others[..]].concat();
        let names: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
        let set = with_attributes(NOBODY, path, "setxattr(sys.argv[1], name, b'value')", &names);
        assert_eq!(set, named(&expected), "{path:?}");
    }
    for (path, code) in [(&of_root, 1), (&own, 0), (&lent, 1)] {
        let listed = as_user(NOBODY, &["setfacl", "-m", "u:1:r", path.to_str().unwrap()]);
        let problem = String::from_utf8_lossy(&listed.stderr);
        assert_eq!(listed.status.code(), Some(code), "{path:?}: {problem}");
        assert_eq!(problem.contains("Operation not permitted"), code != 0, "{path:?}: {problem}");
    }
    mounted.finish();
}

#[test]
fn attributes_are_removed_by_those_who_may() {
    const LIST: &str = "system.posix_acl_access";
    let Some(mounted) = shared() else { return };
    let of_root = file_of(&mounted, "of-root", 0, 0o644);
    let own = file_of(&mounted, "own", NOBODY, 0o644);
    let lent = file_of(&mounted, "lent", 0, 0o666);
    let all = ["user.a", "trusted.a", "security.a"];
    // ENODATA is 61, EINVAL 22, EACCES 13.
    for (path, user, list, none) in [(&of_root, 13, 1, 13), (&own, 0, 0, 61), (&lent, 0, 1, 61)] {
        let set = with_attributes(0, path, "setxattr(sys.argv[1], name, b'value')", &all);
        assert_eq!(set, named(&all.map(|name| (name, 0))), "{path:?}");
        let listed = as_user(0, &["setfacl", "-m", "u:1:r", path.to_str().unwrap()]);
        assert!(listed.status.success(), "{path:?}");
        let reserved = if none == 13 { 13 } else { 22 };
        let expected = [
            ("trusted.a", 1),
            ("security.a", 1),
            ("system.a", 95),
            ("user.none", none),
            // Reserved prefixes are rejected as names of user attributes.
            ("user.trusted.a", reserved),
            ("user.security.a", reserved),
            ("user.system.posix_acl_access", reserved),
            ("user.user.a", reserved),
            ("user.freebsd:system:a", reserved),
            ("user.a", user),
            (LIST, list),
            // Removing a list that does not exist succeeds.
            (LIST, list),
        ];
        let names = expected.map(|(name, _)| name);
        let removed = with_attributes(NOBODY, path, "removexattr(sys.argv[1], name)", &names);
        assert_eq!(removed, named(&expected), "{path:?}");
        // The remaining attributes, as root sees them.
        let left =
            with_attributes(0, path, "getxattr(sys.argv[1], name)", &[&all[..], &[LIST]].concat());
        let gone = |error: u32| if error == 0 { 61 } else { 0 };
        let kept =
            [("user.a", gone(user)), ("trusted.a", 0), ("security.a", 0), (LIST, gone(list))];
        assert_eq!(left, named(&kept), "{path:?}");
    }
    mounted.finish();
}

#[test]
fn set_group_id_goes_with_a_list_of_somebody_outside_of_the_group() {
    let Some(mounted) = shared() else { return };
    for (group, mode) in [(1234, 0o755), (NOBODY, 0o2755)] {
        // A list that is already there is not set again.
        let path = file_of(&mounted, &format!("of-{group}"), NOBODY, 0o755);
        chown(&path, None, Some(group)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2755)).unwrap();
        let set = as_user(NOBODY, &["setfacl", "-m", "u:1:r", path.to_str().unwrap()]);
        assert!(set.status.success());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{group}");
    }
    mounted.finish();
}

/// What counts is the capability, which only the kernel knows.
#[test]
fn set_group_id_is_given_by_members_of_the_directorys_group() {
    let Some(mounted) = shared() else { return };
    const GROUP: u32 = 4321;
    let directory = mounted.path("shared");
    fs::create_dir(&directory).unwrap();
    chown(&directory, None, Some(GROUP)).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o2777)).unwrap();
    let make = |groups: &str, name: &str| {
        let script = format!(
            "import os, sys
os.setgroups([{groups}])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.umask(0)
os.close(os.open(sys.argv[1], os.O_CREAT, 0o2771))"
        );
        let mut python = Command::new("python3");
        assert!(python.args(["-c", &script]).arg(directory.join(name)).status().unwrap().success());
        let made = fs::metadata(directory.join(name)).unwrap();
        (made.mode() & 0o7777, made.gid())
    };
    assert_eq!(make("4321, 7", "member"), (0o2771, GROUP));
    assert_eq!(make("7", "stranger"), (0o771, GROUP));
    assert_eq!(make("", "lonely"), (0o771, GROUP));
}

#[test]
fn set_group_id_stays_for_those_with_the_capability() {
    if !kernel_passes("who may keep set-group-id", 5, 14) {
        return;
    }
    let Some(mounted) = shared() else { return };
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let with = ["--inh-caps", "+fsetid", "--ambient-caps", "+fsetid"];
    let without = ["--clear-groups", "--bounding-set", "-fsetid", "--inh-caps", "-fsetid"];
    for (who, mode) in [([&user[..], &with].concat(), 0o2755), (without.to_vec(), 0o755)] {
        let path = file_of(&mounted, &format!("{mode:o}"), NOBODY, 0o755);
        chown(&path, None, Some(1234)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o2755)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(&who).args(["setfacl", "-m", "u:1:r"]).arg(&path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{who:?}");
    }
    mounted.finish();
}

/// Operations of an unprivileged owner on his program with set-user-id and set-group-id.
const WRITES: [(&str, &str); 5] = [
    ("buffered", "os.write(os.open(p, os.O_WRONLY), b'x')"),
    ("direct", "m = mmap.mmap(-1, 4096); os.writev(os.open(p, os.O_WRONLY | os.O_DIRECT), [m])"),
    ("truncate", "os.truncate(p, 3)"),
    ("allocate", "os.posix_fallocate(os.open(p, os.O_RDWR), 0, 100000)"),
    ("copy", "f = os.open(p, os.O_RDWR); os.copy_file_range(f, f, 4, 0, 100)"),
];

/// The mode that the kernel has cached. Requesting all attributes would make it ask the file
/// system, since it knows that the times have changed.
fn known_mode(path: &Path) -> u32 {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(found.stx_mode) & 0o7777
}

#[test]
fn set_id_bits_are_gone_for_the_kernel_when_they_are_gone() {
    let Some(mounted) = shared() else { return };
    for (name, write) in WRITES {
        let path = file_of(&mounted, name, NOBODY, 0o6744);
        assert_eq!(known_mode(&path), 0o6744);
        python_as(NOBODY, &format!("p = sys.argv[1]\n{write}"), &path);
        assert_eq!(known_mode(&path), 0o744, "{name}");
    }
    mounted.finish();
}

#[test]
fn changed_flags_change_the_time_that_is_shown() {
    let Some(mounted) = shared() else { return };
    let path = file_of(&mounted, "file", 0, 0o644);
    mounted.files().sync().unwrap();
    // Until the attributes cached by the kernel expire.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let file = File::open(&path).unwrap();
    let before = file.metadata().unwrap();
    let status = Command::new("chattr").arg("+d").arg(&path).status().unwrap();
    assert!(status.success());
    let after = file.metadata().unwrap();
    let change = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
    assert!(change(&after) > change(&before));
    drop(file);
    mounted.finish();
}

#[test]
fn the_time_of_access_is_shown_at_once() {
    let Some(mounted) = shared() else { return };
    let path = file_of(&mounted, "file", 0, 0o644);
    let file = File::open(&path).unwrap();
    for _ in 0..50 {
        let now = std::time::SystemTime::now();
        file.set_times(fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        file.read_at(&mut [0; 4], 0).unwrap();
        let accessed = file.metadata().unwrap().accessed().unwrap();
        assert!(accessed + std::time::Duration::from_secs(5) > now, "{accessed:?}");
    }
    drop(file);
    mounted.finish();
}

/// For a mapping, Linux checks only what it checked when the file was opened, and does not ask
/// FUSE. A forbidden change is only detected when the pages are written back.
#[test]
fn what_is_refused_of_a_mapping_is_not_seen() {
    let Some(mounted) = shared() else { return };
    let program = "
pages = mmap.mmap(os.open(sys.argv[1], os.O_RDWR | os.O_APPEND), 0)
pages[0:4] = b'EVIL'
try:
    pages.flush()
    print('written')
except OSError as error:
    print(error.errno)
";
    for (name, flag) in [("append-only", IFlags::APPEND), ("immutable", IFlags::IMMUTABLE)] {
        let path = file_of(&mounted, name, 0, 0o666);
        fs::write(&path, [b'a'; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        ioctl_setflags(&file, flag).unwrap();
        assert_eq!(python_as(NOBODY, program, &path), EPERM, "{name}");
        let until = Instant::now() + Duration::from_secs(30);
        while fs::read(&path).unwrap() != [b'a'; 8192] {
            assert!(Instant::now() < until, "{name}: the kernel keeps what was refused");
            std::thread::sleep(Duration::from_millis(10));
        }
        ioctl_setflags(&file, IFlags::empty()).unwrap();
    }
    mounted.finish();
}
