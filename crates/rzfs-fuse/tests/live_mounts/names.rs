//! Creating, linking, renaming and removing names.

use crate::mounted::Mounted;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink};

#[test]
fn everyday_work_is_there_after_another_mount() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    fs::write(mounted.path("a/b/c/file"), b"contents").unwrap();
    fs::hard_link(mounted.path("a/b/c/file"), mounted.path("a/second")).unwrap();
    symlink("b/c/file", mounted.path("a/link")).unwrap();
    rustix::fs::mknodat(
        CWD,
        mounted.path("a/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs::create_dir(mounted.path("empty")).unwrap();
    fs::rename(mounted.path("a/b"), mounted.path("moved")).unwrap();
    fs::remove_dir(mounted.path("empty")).unwrap();
    assert_eq!(fs::remove_dir(mounted.path("a")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);

    let mounted = mounted.again();
    assert_eq!(fs::read(mounted.path("moved/c/file")).unwrap(), b"contents");
    assert_eq!(fs::read(mounted.path("a/second")).unwrap(), b"contents");
    assert_eq!(fs::metadata(mounted.path("a/second")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(mounted.path("a/link")).unwrap().to_str(), Some("b/c/file"));
    assert!(fs::metadata(mounted.path("a/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(mounted.path("")).unwrap().nlink(), 4);
    let mut names: Vec<_> = fs::read_dir(mounted.path("")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names.into_iter().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a", "moved"]);
    mounted.finish();
}

#[test]
fn renames_do_what_their_flags_say() {
    let mounted = Mounted::new();
    let (one, two, three) = (mounted.path("one"), mounted.path("two"), mounted.path("three"));
    fs::write(&one, b"1").unwrap();
    fs::write(&two, b"2").unwrap();
    let rename = |from, to, flags| renameat_with(CWD, from, CWD, to, flags);
    assert_eq!(rename(&one, &two, RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(&one, &two, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"2");
    assert_eq!(fs::read(&two).unwrap(), b"1");
    rename(&one, &three, RenameFlags::WHITEOUT).unwrap();
    assert!(fs::symlink_metadata(&one).unwrap().file_type().is_char_device());
    rename(&two, &three, RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(&three).unwrap(), b"1");
    assert!(!two.exists());
    mounted.finish();
}

#[test]
fn a_file_lives_as_long_as_it_is_open() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&[7; 300_000]).unwrap();
    fs::remove_file(&path).unwrap();
    // A file with the same name is another file.
    fs::write(&path, b"new").unwrap();
    file.write_all(b"more").unwrap();
    file.rewind().unwrap();
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).unwrap();
    assert_eq!((contents.len(), contents[0], contents[300_003]), (300_004, 7, b'e'));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    mounted.finish();
}

#[test]
fn files_can_be_made_that_their_maker_could_not_open_again() {
    let mounted = Mounted::new();
    let mut options = File::options();
    options.create_new(true).write(true).mode(0o444);
    let mut file = options.open(mounted.path("read-only")).unwrap();
    file.write_all(b"once").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o444);
    let exists = options.open(mounted.path("read-only")).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
    drop(file);
    mounted.finish();
}
