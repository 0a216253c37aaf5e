//! Modes, owners, times, extended attributes, access control lists, flags.

use crate::mounted::Mounted;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, XattrFlags, getxattr, listxattr,
    makedev, mknodat, open, removexattr, setxattr, statx,
};
use rustix::io::Errno;
use rzfs_testkit::{has_root, kernel_passes};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use std::time::{Duration, SystemTime};

const IMMUTABLE: &str = "only root makes files immutable";

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn attributes_are_what_they_were_set_to() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    let old = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    let new = SystemTime::UNIX_EPOCH + Duration::new(1 << 33, 123_456_789);
    file.set_times(FileTimes::new().set_accessed(old).set_modified(new)).unwrap();
    let check = |path| {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o4751);
        assert_eq!(metadata.accessed().unwrap(), old);
        assert_eq!(metadata.modified().unwrap(), new);
    };
    check(path);
    drop(file);
    let mounted = mounted.again();
    check(mounted.path("file"));
    if has_root("only root gives files away") {
        chown(mounted.path("file"), Some(1000), Some(1001)).unwrap();
        let metadata = fs::metadata(mounted.path("file")).unwrap();
        // Changing the owner clears set-user-id.
        let (owner, mode) = ((metadata.uid(), metadata.gid()), metadata.mode() & 0o7777);
        assert_eq!((owner, mode), ((1000, 1001), 0o751));
    }
    mounted.finish();
}

#[test]
fn extended_attributes_come_and_go() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, b"").unwrap();
    let large = vec![b'x'; 60_000];
    setxattr(&path, "user.small", b"value", XattrFlags::CREATE).unwrap();
    setxattr(&path, "user.large", &large, XattrFlags::empty()).unwrap();
    let is_trusted = has_root("only root sets what is trusted");
    if is_trusted {
        setxattr(&path, "trusted.admin", b"", XattrFlags::empty()).unwrap();
    }
    let again = setxattr(&path, "user.small", b"other", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    let missing = setxattr(&path, "user.none", b"other", XattrFlags::REPLACE);
    assert_eq!(missing, Err(Errno::NODATA));
    // A namespace alone is not a valid name.
    assert_eq!(setxattr(&path, "user.", b"", XattrFlags::empty()), Err(Errno::INVAL));
    assert_eq!(getxattr(&path, "user.", &mut [0; 8][..]), Err(Errno::INVAL));
    assert_eq!(removexattr(&path, "user."), Err(Errno::INVAL));
    if is_trusted {
        removexattr(&path, "trusted.admin").unwrap();
    }
    let mounted = mounted.again();
    let path = mounted.path("file");
    let mut value = vec![0; 70_000];
    assert_eq!(getxattr(&path, "user.small", &mut value[..]), Ok(5));
    assert_eq!(&value[..5], b"value");
    assert_eq!(getxattr(&path, "user.large", &mut value[..]), Ok(60_000));
    assert!(value[..60_000] == large);
    let len = listxattr(&path, &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"user.large\0user.small\0");
    mounted.finish();
}

#[test]
fn access_lists_are_inherited_and_checked() {
    if !has_root("only root can be several users") {
        return;
    }
    let mounted = Mounted::new();
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    run(Command::new("setfacl").args(["-d", "-m", "u:1000:rwx,g::rx,o::-"]).arg(&dir));
    run(Command::new("setfacl").args(["-m", "u:1000:rwx"]).arg(&dir));
    let mut script = Command::new("sh");
    script.args(["-c", "umask 077; echo secret > file; mkdir below; stat -c %a file below"]);
    assert_eq!(run(script.current_dir(&dir)), "660\n770\n");
    let list = run(Command::new("getfacl").args(["-pcn", "below"]).current_dir(&dir));
    assert!(list.contains("user:1000:rwx") && list.contains("default:user:1000:rwx"), "{list}");
    let read = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "cat"]);
        command.arg(dir.join("file")).output().unwrap().stdout
    };
    fs::set_permissions(mounted.path(""), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(read("1000"), b"secret\n");
    assert_eq!(read("1001"), b"");
    mounted.finish();
}

#[test]
fn immutable_files_do_not_change() {
    if !has_root(IMMUTABLE) {
        return;
    }
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, b"fixed").unwrap();
    run(Command::new("chattr").arg("+i").arg(&path));
    assert_eq!(run(Command::new("lsattr").arg(&path)).get(4..5), Some("i"));
    let refused = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(1));
    };
    refused(fs::remove_file(&path));
    refused(fs::set_permissions(&path, Permissions::from_mode(0o600)));
    refused(fs::write(&path, b"changed"));
    run(Command::new("chattr").arg("-i").arg(&path));
    fs::remove_file(&path).unwrap();
    mounted.finish();
}

#[test]
fn append_only_files_grow_and_keep_everything_else() {
    if !has_root("only root makes files append-only") {
        return;
    }
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, b"text").unwrap();
    run(Command::new("chattr").arg("+a").arg(&path));
    let appending = || File::options().append(true).open(&path).unwrap();
    appending().write_all(b" and more").unwrap();
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    for refused in [
        fs::set_permissions(&path, Permissions::from_mode(0o600)),
        chown(&path, Some(1000), None),
        appending().set_times(times),
        appending().set_len(0),
        fs::write(&path, b"changed"),
        fs::rename(&path, mounted.path("other")),
        fs::remove_file(&path),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(1));
    }
    assert_eq!(fs::read(&path).unwrap(), b"text and more");
    run(Command::new("chattr").arg("-a").arg(&path));
    fs::remove_file(&path).unwrap();
    mounted.finish();
}

/// The result of opening a file with these flags.
fn opened(path: &std::path::Path, flags: OFlags) -> Result<(), Errno> {
    open(path, flags, Mode::empty()).map(drop)
}

#[test]
fn flags_are_seen_to_when_files_are_opened_if_that_is_checked() {
    if !has_root(IMMUTABLE) {
        return;
    }
    let mounted = Mounted::with_checked_opens();
    let path = mounted.path("file");
    fs::write(&path, b"text").unwrap();
    let refused = Err(Errno::PERM);
    let appending = OFlags::WRONLY | OFlags::APPEND;
    for (flag, writing, appended) in [("i", refused, refused), ("a", refused, Ok(()))] {
        run(Command::new("chattr").arg(format!("+{flag}")).arg(&path));
        assert_eq!(opened(&path, OFlags::RDONLY), Ok(()), "{flag}");
        for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::CREATE] {
            assert_eq!(opened(&path, flags), writing, "{flag} {flags:?}");
        }
        assert_eq!(opened(&path, appending), appended, "{flag}");
        for truncating in [OFlags::RDONLY, appending] {
            assert_eq!(opened(&path, truncating | OFlags::TRUNC), refused, "{flag}");
        }
        run(Command::new("chattr").arg(format!("-{flag}")).arg(&path));
        assert_eq!(opened(&path, OFlags::RDWR), Ok(()), "{flag}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"text");
    mounted.finish();
}

fn asked(path: &std::path::Path, how: AtFlags) -> Statx {
    statx(CWD, path, how, StatxFlags::BASIC_STATS | StatxFlags::BTIME).unwrap()
}

/// When a file was created; `None` if statx does not return it.
fn birth(of: &Statx) -> Option<(i64, u32)> {
    let is_said = StatxFlags::from_bits_retain(of.stx_mask).contains(StatxFlags::BTIME);
    is_said.then_some((of.stx_btime.tv_sec, of.stx_btime.tv_nsec))
}

#[test]
fn the_time_of_birth_is_known_and_stays() {
    if !kernel_passes("STATX", 6, 6) {
        return;
    }
    let mounted = Mounted::new();
    let paths = ["file", "directory", "link"].map(|name| mounted.path(name));
    fs::write(&paths[0], b"text").unwrap();
    fs::create_dir(&paths[1]).unwrap();
    std::os::unix::fs::symlink("file", &paths[2]).unwrap();
    let stored = |mounted: &Mounted, path: &std::path::Path| {
        let number = rzfs_format::ObjectId(fs::symlink_metadata(path).unwrap().ino());
        let born = mounted.files().attributes(number).unwrap().crtime;
        Some((born.seconds, born.nanoseconds))
    };
    let births: Vec<_> = paths.iter().map(|path| stored(&mounted, path)).collect();
    let how = AtFlags::SYMLINK_NOFOLLOW;
    for (path, born) in paths.iter().zip(&births) {
        // Requests for other attributes are unaffected.
        let known = statx(CWD, path, how, StatxFlags::BASIC_STATS).unwrap();
        let shown = asked(path, how);
        assert_eq!(birth(&shown), *born, "{path:?}");
        let attributes = |of: &Statx| {
            let times = [of.stx_atime, of.stx_mtime, of.stx_ctime];
            let times = times.map(|time| (time.tv_sec, time.tv_nsec));
            let owner = (of.stx_uid, of.stx_gid, of.stx_mode, of.stx_nlink);
            (times, owner, of.stx_ino, of.stx_size, of.stx_blocks)
        };
        assert_eq!(attributes(&shown), attributes(&known), "{path:?}");
        // The kernel has cached it now.
        assert_eq!(birth(&asked(path, how | AtFlags::STATX_DONT_SYNC)), *born, "{path:?}");
    }
    let mut file = File::options().append(true).open(&paths[0]).unwrap();
    std::io::Write::write_all(&mut file, b"more").unwrap();
    drop(file);
    fs::rename(&paths[0], mounted.path("moved")).unwrap();
    assert_eq!(birth(&asked(&mounted.path("moved"), how)), births[0]);
    let mounted = mounted.again();
    let moved = mounted.path("moved");
    assert_eq!(birth(&asked(&moved, how)), births[0]);
    assert_eq!(asked(&moved, how).stx_size, 8);
    let said = run(Command::new("stat").args(["-c", "%W"]).arg(&moved));
    assert_eq!(said.trim().parse(), Ok(births[0].unwrap().0));
    mounted.finish();
}

/// Device numbers are encoded differently in statx replies.
#[test]
fn devices_have_their_numbers_however_they_are_asked_for() {
    if !has_root("only root makes devices") {
        return;
    }
    let mounted = Mounted::new();
    let path = mounted.path("device");
    let (major, minor) = (259, 0x1_2345);
    let (mode, device) = (Mode::from_raw_mode(0o600), makedev(major, minor));
    mknodat(CWD, &path, FileType::BlockDevice, mode, device).unwrap();
    for flags in [StatxFlags::BASIC_STATS, StatxFlags::BASIC_STATS | StatxFlags::BTIME] {
        let shown = statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, flags).unwrap();
        assert_eq!((shown.stx_rdev_major, shown.stx_rdev_minor), (major, minor));
    }
    mounted.finish();
}
