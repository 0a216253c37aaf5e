//! Modes, owners, times, extended attributes, access control lists, flags.

use crate::mounted::Mounted;
use rustix::fs::{Mode, OFlags, XattrFlags, getxattr, listxattr, open, removexattr, setxattr};
use rustix::io::Errno;
use rzfs_testkit::has_root;
use std::fs::{self, File, FileTimes, Permissions};
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
        // Set-user-id goes with the owner.
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

/// What opening a file with these flags says.
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
