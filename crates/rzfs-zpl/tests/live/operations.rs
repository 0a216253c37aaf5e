//! The effects of single operations.

use crate::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::live::{Caller, LiveFileSystem, NewFile, NewKind, WriteAt};
use rzfs_zpl::{NameTarget, ZplError};
use std::ops::ControlFlow;

pub(crate) fn new_file<'a>(kind: NewKind<'a>, permissions: u32) -> NewFile<'a> {
    NewFile { kind, permissions, umask: 0, caller: Caller::SUPERUSER }
}

pub(crate) fn make(
    fs: &LiveFileSystem,
    directory: ObjectId,
    name: &str,
    kind: NewKind<'_>,
) -> ObjectId {
    fs.create(directory, name.as_bytes(), &new_file(kind, 0o755)).unwrap().object
}

pub(crate) fn put(fs: &LiveFileSystem, object: ObjectId, offset: u64, data: &[u8]) {
    let (at, len) = fs.write(object, WriteAt::Offset(offset), data, Caller::SUPERUSER).unwrap();
    assert_eq!((at, len), (offset, data.len()));
}

pub(crate) fn contents(fs: &LiveFileSystem, object: ObjectId) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(object).unwrap().size as usize];
    assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn names(fs: &LiveFileSystem, directory: ObjectId) -> Vec<String> {
    let mut found = Vec::new();
    fs.read_dir(directory, rzfs_zpl::DirCookie::START, |entry| {
        found.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    found.sort();
    found
}

#[test]
fn a_new_file_system_is_that_of_openzfs() {
    let pool = Pool::ordinary();
    let fs = pool.reopened();
    let root = fs.attributes(fs.root()).unwrap();
    assert_eq!(
        (root.object, root.kind, root.permissions),
        (ObjectId(34), FileKind::Directory, 0o755)
    );
    assert_eq!((root.size, root.links, root.flags.0), (2, 2, 0x8408_0000_0144));
    let objects: Vec<_> = pool
        .on_disk()
        .objects()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.id.0, entry.dnode.object_type.number(), entry.dnode.data_block_size)
        })
        .collect();
    let expected = [
        (1, 21, 512),
        (32, 45, 512),
        (33, 22, 512),
        (34, 20, 512),
        (35, 46, 1536),
        (36, 47, 16384),
    ];
    assert_eq!(objects, expected);
    let layouts: Vec<Vec<u16>> = fs
        .schema()
        .layouts
        .entries()
        .iter()
        .map(|layout| layout.attributes().map(|number| number.0).collect())
        .collect();
    assert_eq!(layouts, [[5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]]);
    assert_eq!(fs.schema().registry.entries().len(), 22);
}

#[test]
fn files_are_made_written_read_and_removed() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let directory = make(&fs, root, "dir", NewKind::Directory);
    let file = make(&fs, directory, "file", NewKind::Regular);
    put(&fs, file, 0, b"hello, ");
    put(&fs, file, 7, b"world");
    assert_eq!(contents(&fs, file), b"hello, world");
    assert_eq!(fs.lookup(directory, b"file").unwrap(), NameTarget::Object(file));
    assert_eq!(fs.attributes(root).unwrap().links, 3);
    pool.sync();
    let on_disk = pool.reopened();
    assert_eq!(on_disk.lookup(directory, b"file").unwrap(), NameTarget::Object(file));
    let mut bytes = [0; 20];
    assert_eq!(on_disk.read(file, 0, &mut bytes).unwrap(), 12);
    assert_eq!(on_disk.attributes(file).unwrap(), fs.attributes(file).unwrap());
    assert_eq!(on_disk.attributes(directory).unwrap(), fs.attributes(directory).unwrap());
    assert_eq!(contents(&fs, file), b"hello, world");

    assert!(matches!(fs.rmdir(root, b"dir"), Err(ZplError::NotEmpty { .. })));
    assert!(matches!(fs.unlink(root, b"dir"), Err(ZplError::IsDirectory { .. })));
    fs.unlink(directory, b"file").unwrap();
    assert!(matches!(fs.attributes(file), Err(error) if error.errno() == 2));
    fs.rmdir(root, b"dir").unwrap();
    assert_eq!(names(&fs, root), [".", ".."]);
    pool.sync();
    assert_eq!(pool.on_disk().root().fill(), 6);
    assert_eq!(fs.attributes(root).unwrap().links, 2);
}

#[test]
fn what_is_held_lives_on_without_a_name() {
    let mut pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let hold = fs.hold(file).unwrap();
    put(&fs, file, 0, &[7; 5000]);
    fs.unlink(fs.root(), b"file").unwrap();
    pool.sync();
    assert_eq!(contents(&fs, file), [7; 5000]);
    assert_eq!(fs.attributes(file).unwrap().links, 0);
    drop(hold);
    assert!(fs.attributes(file).is_err());
    pool.sync();
    assert_eq!(pool.on_disk().root().fill(), 6);

    // One still held when everything ends is drained by the next mount.
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let hold = fs.hold(file).unwrap();
    fs.unlink(fs.root(), b"file").unwrap();
    pool.sync();
    let fs = pool.remount(Pool::options());
    assert_eq!(pool.on_disk().root().fill(), 7);
    assert_eq!(fs.drain_unlinked().unwrap(), 1);
    pool.sync();
    assert_eq!(pool.on_disk().root().fill(), 6);
    std::mem::forget(hold);
}
