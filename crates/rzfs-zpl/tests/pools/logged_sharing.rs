//! Shared blocks in intent logs: references are counted when a log is claimed, blocks are shared
//! again when it is replayed, and the log's own references are dropped with it.

use super::cloning::{RECORD, contents, copy, write};
use super::intent_log::{begin, judge, new, noise, quiet};
use super::{make, put};
use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::NameTarget;
use rzfs_zpl::live::{Caller, LiveOptions, NewKind};

fn replay(copy: &ImagePool) -> Session {
    copy.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet())
}

fn named(session: &Session, name: &str) -> ObjectId {
    match session.fs.lookup(session.fs.root(), name.as_bytes()).unwrap() {
        NameTarget::Object(object) => object,
        NameTarget::Control => panic!("{name}"),
    }
}

/// A file on disk, and a copy of it that is only in the log.
fn copied(records: u64) -> (ImagePool, Session, ObjectId) {
    let (world, session) = new("A");
    begin(&session);
    let fs = &session.fs;
    let source = write(fs, "source", records);
    put(fs, source, records * RECORD, &noise(1000, 3));
    session.pool.sync().unwrap();
    let synced = session.pool.synced_txg();
    let target = make(fs, fs.root(), "target", NewKind::Regular);
    let len = records * RECORD + 1000;
    assert_eq!(copy((fs, target, 0), (fs, source, 0), len).unwrap(), len);
    fs.commit(&[target]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    (world, session, source)
}

#[test]
fn shared_blocks_are_there_after_a_crash() {
    let (world, session, source) = copied(5);
    let crash = world.copy();
    judge(&crash, &["TX_CREATE", "TX_CLONE_RANGE"]);
    let expected = contents(&session.fs, source);
    session.export();
    world.judge();
    // A claimed log waits, and is not a leak.
    crash.claim();
    crash.judge();
    let session = replay(&crash);
    assert!(contents(&session.fs, named(&session, "target")) == expected);
    // It is shared again: the blocks have no other owner once both files are gone.
    session.export();
    crash.judge();
    let session = replay(&crash);
    session.fs.unlink(session.fs.root(), b"source").unwrap();
    (0..5).for_each(|_| session.pool.sync().unwrap());
    assert!(contents(&session.fs, named(&session, "target")) == expected);
    session.fs.unlink(session.fs.root(), b"target").unwrap();
    (0..5).for_each(|_| session.pool.sync().unwrap());
    session.export();
    crash.judge();
}

#[test]
fn blocks_whose_first_owner_is_gone_are_there_after_a_crash() {
    let (world, session, source) = copied(3);
    let fs = &session.fs;
    let expected = contents(fs, source);
    let target = named(&session, "target");
    put(fs, source, RECORD, &noise(RECORD as usize, 9));
    put(fs, target, 5, b"changed");
    fs.unlink(fs.root(), b"source").unwrap();
    fs.commit(&[target]).unwrap();
    let crash = world.copy();
    judge(&crash, &["TX_CLONE_RANGE", "TX_WRITE"]);
    let replayed = replay(&crash);
    let mut changed = expected.clone();
    changed[5..12].copy_from_slice(b"changed");
    assert!(contents(&replayed.fs, named(&replayed, "target")) == changed);
    assert!(replayed.fs.lookup(replayed.fs.root(), b"source").is_err());
    replayed.export();
    crash.judge();
    // The same when the log is dropped with its dataset's last txg on disk.
    session.pool.sync().unwrap();
    judge(&world.copy(), &[]);
    session.export();
    world.judge();
}

#[test]
fn so_many_blocks_are_several_records() {
    let (world, session) = new("A log B");
    begin(&session);
    let fs = &session.fs;
    fs.change_options(|options| options.reading.record_size = 4096);
    let source = make(fs, fs.root(), "source", NewKind::Regular);
    let data = noise(1500 << 12, 11);
    put(fs, source, 0, &data);
    session.pool.sync().unwrap();
    let target = make(fs, fs.root(), "target", NewKind::Regular);
    let len = data.len() as u64;
    assert_eq!(copy((fs, target, 0), (fs, source, 0), len).unwrap(), len);
    fs.truncate(target, len - 10, Caller::SUPERUSER).unwrap();
    let synced = session.pool.synced_txg();
    fs.commit(&[target]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced);
    let crash = world.copy();
    judge(&crash, &["TX_CLONE_RANGE", "TX_CLONE_RANGE", "TX_SETATTR"]);
    let replayed = replay(&crash);
    let found = contents(&replayed.fs, named(&replayed, "target"));
    assert!(found == data[..data.len() - 10]);
    replayed.export();
    crash.judge();
}
