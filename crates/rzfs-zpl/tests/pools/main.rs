//! Whole pools: created, filled, exported, checked by OpenZFS's zdb, read and changed again.

mod cloning;
mod datasets;
mod dedup;
mod encryption;
mod frees;
mod golden;
mod intent_log;
mod logged_lists;
mod logged_sharing;
mod logged_xattrs;
mod placed;
mod records;
mod replay;
mod rollback;
mod snapshots;
mod space;
mod sweeps;
mod volumes;

use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::live::{Caller, LiveFileSystem, NewFile, NewKind, WriteAt};
use rzfs_zpl::{FileSystem, NameTarget};

const SHAPES: [&str; 9] = [
    "A",
    "A B C",
    "mirror A B C",
    "raidz1 A B C",
    "raidz2 A B C D",
    "raidz3 A B C D E",
    "draid1:2d:5c:1s A B C D E",
    "mirror A B special mirror C D",
    "A log B",
];

fn make(fs: &LiveFileSystem, parent: ObjectId, name: &str, kind: NewKind<'_>) -> ObjectId {
    let new = NewFile { kind, permissions: 0o755, umask: 0o022, caller: Caller::SUPERUSER };
    fs.create(parent, name.as_bytes(), &new).unwrap().object
}

fn put(fs: &LiveFileSystem, file: ObjectId, offset: u64, data: &[u8]) {
    fs.write(file, WriteAt::Offset(offset), data, Caller::SUPERUSER).unwrap();
}

/// The contents of a file block, compressible by half.
fn block(number: u64) -> Vec<u8> {
    (0..128_u64 << 10)
        .map(|at| if at % 2 == 0 { number as u8 } else { (at.wrapping_mul(number | 1) >> 7) as u8 })
        .collect()
}

/// Creates a tree in the root directory, below `name`.
fn fill(session: &Session, name: &str) {
    let fs = &session.fs;
    let dir = make(fs, fs.root(), name, NewKind::Directory);
    for number in 0..120 {
        let file = make(fs, dir, &format!("small-{number}"), NewKind::Regular);
        put(fs, file, 0, format!("contents of {number}").as_bytes());
    }
    let large = make(fs, dir, "large", NewKind::Regular);
    for number in 0..40 {
        put(fs, large, number * (128 << 10), &block(number));
    }
    put(fs, large, 1 << 40, b"far away");
    make(fs, dir, "link", NewKind::Symlink(b"large"));
    session.pool.sync().unwrap();
    for number in (0..120).step_by(3) {
        fs.unlink(dir, format!("small-{number}").as_bytes()).unwrap();
    }
    put(fs, large, 3 << 17, &block(99));
    session.pool.sync().unwrap();
}

fn find(fs: &FileSystem, dir: ObjectId, name: &str) -> Option<ObjectId> {
    match fs.lookup(dir, name.as_bytes()) {
        Ok(NameTarget::Object(object)) => Some(object),
        _ => None,
    }
}

/// Checks a tree made by [`fill`].
fn check(world: &ImagePool, name: &str) {
    let fs = world.read();
    let dir = find(&fs, fs.root(), name).unwrap();
    for number in 0..120 {
        let found = find(&fs, dir, &format!("small-{number}"));
        assert_eq!(found.is_some(), number % 3 != 0, "small-{number}");
        if let Some(found) = found {
            let mut bytes = vec![0; 100];
            let len = fs.read(found, 0, &mut bytes).unwrap();
            assert_eq!(&bytes[..len], format!("contents of {number}").as_bytes());
        }
    }
    let large = find(&fs, dir, "large").unwrap();
    for number in 0..40 {
        let mut bytes = vec![0; 128 << 10];
        fs.read(large, number * (128 << 10), &mut bytes).unwrap();
        assert!(bytes == block(if number == 3 { 99 } else { number }), "block {number}");
    }
    let mut bytes = vec![0; 20];
    let len = fs.read(large, 1 << 40, &mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"far away");
}

#[test]
fn files_of_every_kind_of_pool_are_there_afterwards() {
    for shape in SHAPES {
        let world = ImagePool::new(shape);
        let session = world.create();
        fill(&session, "first");
        session.export();
        check(&world, "first");
        world.judge();
        let session = world.open();
        fill(&session, "second");
        session.export();
        check(&world, "first");
        check(&world, "second");
        world.judge();
    }
}

#[test]
fn what_was_synced_is_there_without_an_export() {
    let world = ImagePool::new("mirror A B");
    let session = world.create();
    fill(&session, "kept");
    make(&session.fs, session.fs.root(), "lost", NewKind::Directory);
    session.abandon();
    check(&world, "kept");
    world.judge();
}

/// Writes missed by an offline device are recorded, to be repaired later.
#[test]
fn a_device_that_was_away_is_known_to_lack_what_was_written() {
    for shape in ["mirror A B", "raidz1 A B C"] {
        let world = ImagePool::new(shape);
        let session = world.create();
        fill(&session, "before");
        session.export();
        assert!(world.missing("B").is_empty());
        world.swap_away("B");
        let session = world.open();
        let first = session.pool.synced_txg();
        fill(&session, "meanwhile");
        let last = session.pool.synced_txg();
        session.export();
        world.swap_away("B");
        let missing = world.missing("B");
        assert!(missing.contains(first.next()) && missing.contains(last), "{shape}: {missing:?}");
        assert!(world.missing("A").is_empty(), "{shape}");
        check(&world, "before");
        check(&world, "meanwhile");
        world.judge();
        // They are also kept while the device is present.
        let session = world.open();
        fill(&session, "after");
        session.export();
        assert!(world.missing("B").contains(last), "{shape}");
        world.judge();
    }
}
