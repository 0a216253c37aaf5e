//! Long fsynced writes: their blocks are in place before the txg is, and the log points to them.
//! The state after a crash is examined in copies of the images.

use super::intent_log::{begin, judge, new, noise, quiet};
use super::{make, put};
use rzfs_blockdev::OpenOptions;
use rzfs_dmu::intent_log::LogChain;
use rzfs_format::zil::{Body, RecordKind};
use rzfs_format::{BlockPointer, ObjectId};
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::live::{Caller, LiveOptions, NewKind};

const RECORD: u64 = 128 << 10;

/// The writes in the log of a copy: first byte, length, and the location of the data if not in the
/// record.
fn writes(world: &ImagePool) -> Vec<(u64, u64, Option<BlockPointer>)> {
    let pool = world.import(&OpenOptions::new());
    let objset = pool.datasets().root().unwrap().open_objset().unwrap();
    let header = objset.log_header().unwrap();
    let mut writes = Vec::new();
    for block in LogChain::new(pool.pipeline(), objset.id(), &header) {
        for record in block.records().filter(|record| record.kind == Some(RecordKind::Write)) {
            let Body::Write(write) = record.body().unwrap() else { panic!() };
            let pointer = write.is_indirect().then_some(write.pointer);
            writes.push((write.offset, write.length, pointer));
        }
    }
    writes
}

fn contents(session: &Session, name: &str) -> Vec<u8> {
    let fs = &session.fs;
    let rzfs_zpl::NameTarget::Object(file) = fs.lookup(fs.root(), name.as_bytes()).unwrap() else {
        panic!()
    };
    let mut bytes = vec![0; fs.attributes(file).unwrap().size as usize];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Opens a copy as after a crash, replays its log, and checks it.
fn replayed(copy: &ImagePool, name: &str) -> Vec<u8> {
    let session = copy.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet());
    let bytes = contents(&session, name);
    session.export();
    copy.judge();
    bytes
}

fn commit(session: &Session, file: ObjectId) {
    let synced = session.pool.synced_txg();
    session.fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
}

#[test]
fn long_writes_are_placed_however_much_they_are() {
    for shape in ["A", "raidz1 A B C"] {
        let (world, session) = new(shape);
        let fs = &session.fs;
        begin(&session);
        let file = make(fs, fs.root(), "file", NewKind::Regular);
        let data = noise(20 << 20, 7);
        put(fs, file, 0, &data);
        commit(&session, file);
        let copy = world.copy();
        let logged = writes(&copy);
        assert_eq!(logged.len() as u64, (20 << 20) / RECORD);
        assert!(logged.iter().all(|(_, length, at)| *length == RECORD && at.is_some()));
        judge(&copy, &["TX_CREATE", "TX_WRITE"]);
        assert!(replayed(&copy, "file") == data, "{shape}");
        // The txg takes them over: it only writes their parents.
        session.pool.sync().unwrap();
        let object = fs.objset().synced().object(file).unwrap();
        let synced: Vec<_> = object.pointers(0, 0..logged.len() as u64);
        for (pointer, (_, _, logged)) in synced.into_iter().zip(&logged) {
            assert_eq!(pointer.unwrap().dvas().next(), logged.unwrap().dvas().next());
        }
        session.export();
        world.judge();
    }
}

#[test]
fn blocks_that_change_after_they_were_placed_are_written_anew() {
    let (world, session) = new("A");
    let fs = &session.fs;
    begin(&session);
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    let mut data = noise(1 << 20, 3);
    put(fs, file, 0, &data);
    commit(&session, file);
    let first = writes(&world.copy());
    // Short ones are copied, long ones placed again; unchanged ones stay where they are.
    for (offset, len) in [(3 * RECORD + 5, 100), (5 * RECORD, RECORD as usize), (1 << 20, 2000)] {
        let more = noise(len, offset);
        data.resize(data.len().max(offset as usize + len), 0);
        data[offset as usize..offset as usize + len].copy_from_slice(&more);
        put(fs, file, offset, &more);
    }
    commit(&session, file);
    let copy = world.copy();
    let later = writes(&copy).split_off(first.len());
    let kinds: Vec<_> =
        later.iter().map(|(at, len, pointer)| (*at, *len, pointer.is_some())).collect();
    assert_eq!(
        kinds,
        [(3 * RECORD + 5, 100, false), (5 * RECORD, RECORD, true), (1 << 20, 2000, false)]
    );
    judge(&copy, &["TX_WRITE"]);
    assert!(replayed(&copy, "file") == data);
    // The whole file at once: unchanged placed blocks are not placed twice.
    fs.unlink(fs.root(), b"first").unwrap();
    session.pool.sync().unwrap();
    judge(&world.copy(), &[]);
    put(fs, file, 0, &data);
    commit(&session, file);
    put(fs, file, 7, b"!");
    data[7] = b'!';
    commit(&session, file);
    fs.truncate(file, RECORD + 1, Caller::SUPERUSER).unwrap();
    data.truncate(RECORD as usize + 1);
    commit(&session, file);
    let copy = world.copy();
    judge(&copy, &["TX_WRITE", "TX_SETATTR"]);
    assert!(replayed(&copy, "file") == data);
    fs.unlink(fs.root(), b"file").unwrap();
    session.pool.sync().unwrap();
    judge(&world.copy(), &[]);
    session.export();
    world.judge();
}

#[test]
fn where_throughput_counts_all_writes_are_placed() {
    let world = ImagePool::new("A log B").with_property("logbias", 1);
    world.create().export();
    let session = world.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet());
    let file = begin(&session);
    put(&session.fs, file, 0, &noise(300_000, 5));
    session.pool.sync().unwrap();
    put(&session.fs, file, RECORD + 9, b"short");
    commit(&session, file);
    let logged = writes(&world.copy());
    let [(offset, 5, Some(pointer))] = logged.as_slice() else { panic!("{logged:?}") };
    assert_eq!((*offset, pointer.logical_size()), (RECORD + 9, RECORD));
    judge(&world.copy(), &["TX_WRITE"]);
    assert_eq!(&replayed(&world.copy(), "first")[RECORD as usize + 9..][..5], b"short");
    session.export();
    world.judge();
}

#[test]
fn zeros_and_what_is_deduplicated_are_copied() {
    // A hole is not placed.
    let (world, session) = new("A");
    let file = begin(&session);
    put(&session.fs, file, 0, &[0; 1 << 18]);
    commit(&session, file);
    assert!(writes(&world.copy()).iter().all(|(_, _, pointer)| pointer.is_none()));
    assert!(replayed(&world.copy(), "first") == [0; 1 << 18]);
    session.export();

    let world = ImagePool::new("A").with_property("dedup", 1);
    world.create().export();
    let session = world.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet());
    let file = begin(&session);
    let data = noise(1 << 18, 9);
    put(&session.fs, file, 0, &data);
    commit(&session, file);
    assert!(writes(&world.copy()).iter().all(|(_, _, pointer)| pointer.is_none()));
    assert!(replayed(&world.copy(), "first") == data);
    session.export();
    world.judge();
}
