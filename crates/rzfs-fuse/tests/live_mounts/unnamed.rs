//! Files created without a name (`O_TMPFILE`).

use crate::mounted::Mounted;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;
use rzfs_format::ObjectId;
use rzfs_testkit::kernel_passes;
use rzfs_zpl::NameTarget;
use rzfs_zpl::live::LiveFileSystem;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const A_HANG: Duration = Duration::from_secs(60);

fn new() -> Option<Mounted> {
    kernel_passes("O_TMPFILE", 6, 1).then(Mounted::new)
}

fn make(directory: &Path, flags: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | flags;
    File::from(open(directory, flags, Mode::from_raw_mode(0o640)).unwrap())
}

/// Gives a file a name, as described in open(2).
fn name(file: &File, path: &PathBuf) -> Result<(), Errno> {
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, opened, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn names(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Waits until the kernel has forgotten a file, which can take a while.
fn wait_until_gone(files: &LiveFileSystem, object: ObjectId) {
    let begun = Instant::now();
    while files.attributes(object).is_ok() {
        assert!(begun.elapsed() < A_HANG, "it never goes");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_gets_a_name() {
    let Some(mounted) = new() else { return };
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    let mut file = make(&directory, OFlags::empty());
    file.write_all(&[7; 300_000]).unwrap();
    file.write_all(b"the end").unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.nlink(), metadata.len()), (0, 300_007));
    assert_eq!(metadata.mode() & 0o7777, 0o640);
    assert_eq!(names(&directory), 0);
    let mut contents = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut contents).unwrap();
    assert!(contents.ends_with(b"\x07the end"));
    let path = directory.join("file");
    name(&file, &path).unwrap();
    assert_eq!(name(&file, &path), Err(Errno::EXIST));
    name(&file, &mounted.path("second")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    assert_eq!(fs::metadata(&path).unwrap().ino(), metadata.ino());
    drop(file);
    let mounted = mounted.again();
    assert!(fs::read(mounted.path("directory/file")).unwrap() == contents);
    assert_eq!(fs::metadata(mounted.path("second")).unwrap().nlink(), 2);
    mounted.finish();
}

#[test]
fn it_leaves_nothing_behind() {
    let Some(mounted) = new() else { return };
    let root = mounted.path("");
    for flags in [OFlags::empty(), OFlags::EXCL] {
        let mut file = make(&root, flags);
        file.write_all(&[7; 300_000]).unwrap();
        file.sync_all().unwrap();
        mounted.files().sync().unwrap();
        let object = ObjectId(file.metadata().unwrap().ino());
        if flags == OFlags::EXCL {
            assert_eq!(name(&file, &mounted.path("name")), Err(Errno::NOENT));
        }
        assert_eq!(mounted.files().attributes(object).unwrap().links, 0);
        drop(file);
        wait_until_gone(mounted.files(), object);
    }
    assert_eq!(names(&root), 0);
    assert_eq!(mounted.files().drain_unlinked().unwrap(), 0);
    mounted.finish();
}

#[test]
fn it_survives_a_crash_with_its_name_only() {
    let Some(mounted) = new() else { return };
    let root = mounted.path("");
    // The first fsync creates the log.
    File::create(mounted.path("first")).unwrap().sync_all().unwrap();
    let mut unnamed = make(&root, OFlags::empty());
    unnamed.write_all(&[1; 100_000]).unwrap();
    unnamed.sync_all().unwrap();
    let mut linked = make(&root, OFlags::empty());
    linked.write_all(&[2; 100_000]).unwrap();
    linked.sync_all().unwrap();
    name(&linked, &mounted.path("linked")).unwrap();
    linked.write_all(b"the end").unwrap();
    linked.sync_all().unwrap();

    let session = mounted.crashed();
    let files = &session.fs;
    let NameTarget::Object(object) = files.lookup(files.root(), b"linked").unwrap() else {
        panic!()
    };
    let mut contents = vec![0; 200_000];
    let len = files.read(object, 0, &mut contents).unwrap();
    assert!(contents[..len] == [&[2; 100_000][..], b"the end"].concat());
    assert_eq!(files.attributes(object).unwrap().links, 1);
    files.drain_unlinked().unwrap();
    assert!(files.attributes(ObjectId(unnamed.metadata().unwrap().ino())).is_err());
    session.export();
    drop((unnamed, linked));
    mounted.finish();
}

/// The permissions are those that a file created with a name would have.
#[test]
fn it_inherits_the_list_of_its_directory() {
    let Some(mounted) = new() else { return };
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    let script = "
set -e
setfacl -d -m u:1000:rwx .
umask 077
python3 -c 'import os
fd = os.open(\".\", os.O_TMPFILE | os.O_WRONLY, 0o666)
os.write(fd, b\"text\")
os.link(f\"/proc/self/fd/{fd}\", \"linked\", src_dir_fd=fd, follow_symlinks=True)'
touch created
stat -c %a created linked
getfacl -cn created > of-created
getfacl -cn linked | cmp - of-created
";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script]).current_dir(&directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"664\n664\n");
    mounted.finish();
}
