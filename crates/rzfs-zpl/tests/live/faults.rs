//! Unreadable blocks: a failed operation has changed nothing.

use crate::model::{File, Reader};
use crate::operations::{make, new_file, put};
use crate::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, LiveFileSystem, LiveOptions, Named, NewKind, RenameMode,
    WriteAt, XattrMode, XattrStore,
};
use rzfs_zpl::{Attributes, NameTarget, ZplError};
use std::collections::BTreeMap;

type Snapshot = BTreeMap<ObjectId, (File, Attributes)>;

/// Everything visible of all linked files.
fn snapshot(fs: &LiveFileSystem) -> Snapshot {
    let mut found = Snapshot::new();
    let mut stack = vec![fs.root()];
    while let Some(id) = stack.pop() {
        let file = fs.file(id);
        stack.extend(file.names.values().filter(|name| !found.contains_key(*name)));
        // Space is that on disk, which changes with a sync.
        let attributes = Attributes { blocks: 0, ..fs.attributes(id).unwrap() };
        found.insert(id, (file, attributes));
    }
    found
}

fn object(fs: &LiveFileSystem, directory: ObjectId, name: &str) -> ObjectId {
    match fs.lookup(directory, name.as_bytes()) {
        Ok(NameTarget::Object(object)) => object,
        other => panic!("{name}: {other:?}"),
    }
}

/// Creates a directory of many entries, and files with blocks and attributes in all places.
fn plant(fs: &LiveFileSystem) {
    let big = make(fs, fs.root(), "big", NewKind::Directory);
    for number in 0..300 {
        let name = format!("a name that is too long for a microzap, with a number: {number}");
        make(fs, big, &name, NewKind::Fifo);
    }
    for name in ["one", "two", "three"] {
        let file = make(fs, big, name, NewKind::Regular);
        put(fs, file, 0, &crate::golden_shapes::noise(20_000));
        fs.set_xattr(file, b"user.spilled", &[1; 400], XattrMode::Any).unwrap();
        fs.set_xattr(file, b"user.big", &[2; 40_000], XattrMode::Any).unwrap();
    }
    let dir = make(fs, fs.root(), "dir", NewKind::Directory);
    make(fs, dir, "sub", NewKind::Directory);
}

/// The result of an operation: an errno if it fails.
fn errno<T>(result: Result<T, ZplError>) -> Result<(), i32> {
    result.map(|_| ()).map_err(|error| error.errno())
}

type Operation = (&'static str, fn(&LiveFileSystem, ObjectId) -> Result<(), i32>);

const ROOT: Caller = Caller::SUPERUSER;

fn rename(fs: &LiveFileSystem, from: (&str, &str), to: (&str, &str)) -> Result<(), i32> {
    let (source, target) = (object(fs, fs.root(), from.0), object(fs, fs.root(), to.0));
    let mode = if to.1 == "three" { RenameMode::Exchange } else { RenameMode::Replace };
    let from = Named { directory: source, name: from.1.as_bytes() };
    let to = Named { directory: target, name: to.1.as_bytes() };
    errno(fs.rename(from, to, mode, ROOT))
}

fn set_xattr(
    fs: &LiveFileSystem,
    (directory, file): (ObjectId, &str),
    name: &[u8],
    value: &[u8],
) -> Result<(), i32> {
    errno(fs.set_xattr(object(fs, directory, file), name, value, XattrMode::Any))
}

fn change(
    fs: &LiveFileSystem,
    (directory, file): (ObjectId, &str),
    change: AttributeChange,
) -> Result<(), i32> {
    errno(fs.set_attributes(object(fs, directory, file), &change, ROOT))
}

/// The operations; each gets the directory with many entries.
const OPERATIONS: &[Operation] = &[
    ("create", |fs, big| errno(fs.create(big, b"new", &new_file(NewKind::Regular, 0o644)))),
    ("mkdir", |fs, big| errno(fs.create(big, b"newdir", &new_file(NewKind::Directory, 0o755)))),
    ("link", |fs, big| errno(fs.link(object(fs, big, "one"), big, b"link"))),
    ("write", |fs, big| {
        errno(fs.write(object(fs, big, "two"), WriteAt::Offset(3000), &[5; 3000], ROOT))
    }),
    ("truncate", |fs, big| errno(fs.truncate(object(fs, big, "two"), 9001, ROOT))),
    ("punch", |fs, big| {
        errno(fs.allocate(object(fs, big, "one"), 100, 9000, Allocation::Punch, ROOT))
    }),
    ("small xattr", |fs, big| set_xattr(fs, (big, "one"), b"user.small", b"value")),
    ("big xattr", |fs, big| set_xattr(fs, (big, "one"), b"user.other", &[3; 40_000])),
    ("xattr over", |fs, big| set_xattr(fs, (big, "one"), b"user.big", &[4; 50_000])),
    ("xattr moves", |fs, big| set_xattr(fs, (big, "two"), b"user.big", b"small now")),
    ("xattr goes", |fs, big| errno(fs.remove_xattr(object(fs, big, "one"), b"user.big"))),
    ("chown", |fs, big| {
        let owner = AttributeChange { uid: Some(7), ..AttributeChange::default() };
        change(fs, (big, "three"), owner)
    }),
    ("chmod", |fs, big| {
        let mode = AttributeChange { permissions: Some(0o111), ..AttributeChange::default() };
        change(fs, (big, "three"), mode)
    }),
    ("rename", |fs, _| rename(fs, ("big", "one"), ("dir", "one"))),
    ("exchange", |fs, _| rename(fs, ("dir", "sub"), ("big", "three"))),
    ("replace", |fs, _| rename(fs, ("dir", "one"), ("big", "two"))),
    ("unlink", |fs, big| errno(fs.unlink(big, b"two"))),
    ("rmdir", |fs, big| errno(fs.rmdir(big, b"three"))),
];

fn options(store: XattrStore) -> LiveOptions {
    let mut options = Pool::options();
    options.reading.record_size = 4096;
    options.xattr_store = store;
    options
}

fn run(store: XattrStore) {
    let mut pool = Pool::ordinary();
    let fs = pool.open(options(store));
    plant(&fs);
    pool.sync();
    let mut before = snapshot(&fs);
    for (name, operation) in OPERATIONS {
        for reads in 0.. {
            let fs = pool.remount(options(store));
            let big = object(&fs, fs.root(), "big");
            object(&fs, fs.root(), "dir");
            // Reads needed to find the file do not count.
            for name in ["one", "two", "three"] {
                let _ = fs.lookup(big, name.as_bytes());
            }
            pool.faults.fail_after(reads);
            let result = operation(&fs, big);
            pool.faults.heal();
            let now = snapshot(&fs);
            pool.sync();
            let on_disk = snapshot(&pool.remount(options(store)));
            assert!(now == on_disk, "{name} with {reads} reads is not on disk: {result:?}");
            match result {
                Err(errno) => {
                    assert_eq!(errno, 5, "{name} with {reads} reads");
                    assert!(now == before, "{name} with {reads} reads changed things");
                }
                Ok(()) => {
                    assert!(now != before, "{name} does nothing");
                    before = now;
                    break;
                }
            }
            assert!(reads < 100, "{name} reads too much");
        }
    }
}

#[test]
fn what_fails_changes_nothing() {
    run(XattrStore::SystemAttribute);
}

#[test]
fn nor_does_it_with_attributes_in_directories() {
    run(XattrStore::Directory);
}
