//! Files that share blocks: copies of ranges, their counts, and freeing each block with its last
//! owner.

use crate::golden::Copy;
use crate::{block, make, put};
use rzfs_dsl::live::LiveOptions as PoolOptions;
use rzfs_dsl::live::{Destruction, NewDataset, NewSnapshots};
use rzfs_format::ObjectId;
use rzfs_format::features::Feature;
use rzfs_format::znode::Timestamp;
use rzfs_proof::{ImagePool, Session};
use rzfs_testkit::SetWhenDropped;
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{Caller, FilePlace, LiveFileSystem, LiveOptions, NewFileSystem, NewKind};
use rzfs_zpl::{FileSystem, FileSystemOptions, Files, NameTarget, ZplError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const RECORD: u64 = 128 << 10;

pub(crate) fn dataset(
    session: &Session,
    name: &str,
    properties: &[(&str, ZapValue)],
) -> Arc<LiveFileSystem> {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let new = NewDataset::new(Arc::new(NewFileSystem::new(now, 7)), properties);
    let live = session.pool.create_dataset(name, new).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(&session.pool, &live, options).unwrap()
}

fn reopen(session: &Session, name: &str) -> Arc<LiveFileSystem> {
    let dataset = session.pool.dataset_tree().unwrap().open(name).unwrap();
    let live = session.pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(&session.pool, &live, options).unwrap()
}

/// A file of this many records.
pub(crate) fn write(fs: &LiveFileSystem, name: &str, records: u64) -> ObjectId {
    let file = make(fs, fs.root(), name, NewKind::Regular);
    for number in 0..records {
        put(fs, file, number * RECORD, &block(number + 1));
    }
    file
}

pub(crate) fn copy(
    to: (&LiveFileSystem, ObjectId, u64),
    from: (&Arc<LiveFileSystem>, ObjectId, u64),
    len: u64,
) -> Result<u64, Box<ZplError>> {
    let source = Files::Live(Arc::clone(from.0));
    let target = FilePlace { object: to.1, offset: to.2 };
    let place = FilePlace { object: from.1, offset: from.2 };
    let copied = to.0.copy_range(target, (&source, place), len, Caller::SUPERUSER);
    copied.map_err(Box::new)
}

pub(crate) fn contents(fs: &LiveFileSystem, file: ObjectId) -> Vec<u8> {
    let size = fs.attributes(file).unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Bytes of shared blocks, and the savings.
fn savings(session: &Session) -> (u64, u64) {
    let savings = session.pool.view().unwrap().clone_savings().unwrap();
    (savings.used, savings.saved)
}

pub(crate) fn settle(session: &Session) {
    for _ in 0..4 {
        let synced = session.pool.sync();
        assert!(synced.is_ok(), "{:?}", session.pool.failure());
    }
}

#[test]
fn copies_share_blocks_until_the_last_owner_is_gone() {
    for shape in ["A", "mirror A B", "raidz1 A B C"] {
        let world = ImagePool::new(shape);
        let session = world.create();
        let fs = dataset(&session, "made/a", &[("compression", 2.into())]);
        let other = dataset(&session, "made/b", &[("compression", 2.into())]);
        let source = write(&fs, "source", 10);
        put(&fs, source, 10 * RECORD, b"the end");
        settle(&session);
        let before = session.pool.view().unwrap().space().unwrap();
        let whole = 10 * RECORD + 7;
        let first = make(&fs, fs.root(), "first", NewKind::Regular);
        let second = make(&other, other.root(), "second", NewKind::Regular);
        assert_eq!(copy((&fs, first, 0), (&fs, source, 0), u64::MAX).unwrap(), whole);
        assert_eq!(copy((&other, second, 0), (&fs, source, 0), whole).unwrap(), whole);
        // A copy of data not on disk yet, but shared.
        let third = make(&fs, fs.root(), "third", NewKind::Regular);
        assert_eq!(copy((&fs, third, 0), (&fs, first, 0), whole).unwrap(), whole);
        let expected = contents(&fs, source);
        for (fs, file) in [(&fs, first), (&other, second), (&fs, third)] {
            assert!(contents(fs, file) == expected, "{shape}");
        }
        settle(&session);
        let (used, saved) = savings(&session);
        assert_eq!(saved, 3 * used, "{shape}");
        assert!(used >= 10 * RECORD, "{used}");
        let after = session.pool.view().unwrap().space().unwrap();
        let more = after.iter().map(|v| v.allocated).sum::<u64>()
            - before.iter().map(|v| v.allocated).sum::<u64>();
        assert!(more < 10 * RECORD, "{shape}: {more}");
        // Overwritten in one of them, gone in others.
        put(&fs, first, RECORD, &block(77));
        fs.unlink(fs.root(), b"source").unwrap();
        fs.truncate(third, 5 * RECORD, Caller::SUPERUSER).unwrap();
        settle(&session);
        assert!(contents(&other, second) == expected);
        drop((fs, other));
        session.export();
        world.judge();
        let session = world.open();
        let (fs, other) = (reopen(&session, "made/a"), reopen(&session, "made/b"));
        assert!(contents(&other, second) == expected, "{shape}");
        assert!(contents(&fs, third) == expected[..5 * RECORD as usize], "{shape}");
        for name in [&b"first"[..], b"third"] {
            fs.unlink(fs.root(), name).unwrap();
        }
        settle(&session);
        assert_eq!(savings(&session), (0, 0), "{shape}");
        assert!(contents(&other, second) == expected);
        drop((fs, other));
        session.pool.destroy_dataset("made/b").unwrap();
        settle(&session);
        session.export();
        world.judge();
        assert!(!world.zdb(&["-TTT", "-e"]).is_some_and(|text| text.contains("refcnt ")));
    }
}

/// Embedded blocks are copied with their pointers, whatever words these use.
#[test]
fn copies_of_short_blocks_are_whole() {
    const LEN: u64 = 4096;
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[("compression", 15.into())]);
    // Incompressible bytes, then zeros: blocks of 1 to 112 bytes are embedded in their pointers.
    let sources: Vec<_> = (1..=120_u64)
        .map(|len| {
            let mixed = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            let bytes: Vec<u8> = (len..2 * len).map(mixed).collect();
            let file = make(&fs, fs.root(), &format!("source {len}"), NewKind::Regular);
            put(&fs, file, 0, &bytes);
            put(&fs, file, len, &vec![0; (LEN - len) as usize]);
            file
        })
        .collect();
    settle(&session);
    let copies: Vec<_> = sources
        .iter()
        .map(|source| {
            let file = make(&fs, fs.root(), &format!("copy {}", source.0), NewKind::Regular);
            assert_eq!(copy((&fs, file, 0), (&fs, *source, 0), LEN).unwrap(), LEN);
            (*source, file)
        })
        .collect();
    settle(&session);
    drop(fs);
    session.export();
    world.judge();
    let session = world.open();
    let fs = reopen(&session, "made/a");
    for (source, copied) in copies {
        assert!(contents(&fs, source) == contents(&fs, copied), "{source}");
    }
    drop(fs);
    session.export();
}

#[test]
fn a_destroyed_dataset_leaves_what_others_share() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[]);
    let source = write(&fs, "source", 8);
    settle(&session);
    let other = dataset(&session, "made/b", &[]);
    let copied = make(&other, other.root(), "copied", NewKind::Regular);
    copy((&other, copied, 0), (&fs, source, 0), 8 * RECORD).unwrap();
    let expected = contents(&fs, source);
    settle(&session);
    assert!(savings(&session).1 > 0);
    drop(fs);
    session.pool.destroy_dataset("made/a").unwrap();
    settle(&session);
    assert_eq!(savings(&session), (0, 0));
    assert!(contents(&other, copied) == expected);
    drop(other);
    session.export();
    world.judge();
}

/// Blocks of a destroyed file system may be shared until the following txg: they are not freed
/// before, even where there is no background destruction.
#[test]
fn what_is_copied_from_a_file_system_that_goes_is_whole() {
    let world = ImagePool::new("A").without_feature(Feature::AsyncDestroy);
    let session = world.create();
    let (pool, other) = (&session.pool, dataset(&session, "made/b", &[]));
    let mut copies = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("made/a{round}");
        let fs = dataset(&session, &name, &[]);
        let file = write(&fs, "file", 8);
        let expected = contents(&fs, file);
        let target = make(&other, other.root(), &format!("copy{round}"), NewKind::Regular);
        settle(&session);
        // Enough that it takes a while until a task has its turn.
        write(&session.fs, &format!("large{round}"), 40);
        let txg = pool.engine().open_txg();
        std::thread::scope(|scope| {
            let destroying = scope.spawn(|| pool.destroy_dataset(&name));
            while pool.engine().open_txg() == txg {
                std::thread::yield_now();
            }
            copy((&other, target, 0), (&fs, file, 0), 8 * RECORD).unwrap();
            drop(fs);
            if destroying.join().unwrap().is_err() {
                pool.destroy_dataset(&name).unwrap();
            }
        });
        copies.push((target, expected));
    }
    settle(&session);
    drop(other);
    session.export();
    world.judge();
    let session = world.open();
    let other = reopen(&session, "made/b");
    for (target, expected) in copies {
        assert!(contents(&other, target) == expected);
    }
    drop(other);
    session.export();
}

#[test]
fn ranges_are_copied_whatever_they_are() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[]);
    let small = dataset(&session, "made/small", &[("recordsize", 4096.into())]);
    let sha = dataset(&session, "made/sha", &[("checksum", 8.into())]);
    let source = write(&fs, "source", 6);
    // A hole in the middle.
    put(&fs, source, 20 * RECORD, &block(9));
    settle(&session);
    // Data not on disk yet.
    put(&fs, source, 2 * RECORD + 100, b"dirty");
    let expected = contents(&fs, source);
    let size = expected.len() as u64;
    for (number, (from, to, len)) in [
        (0, 0, size),
        (0, 0, size + 12345),
        (1, 1, 3 * RECORD),
        (5, 7, 4 * RECORD),
        (RECORD, 0, 2 * RECORD),
        (RECORD, 3 * RECORD, RECORD + 5),
        (size - 10, 0, 100),
        (size, 0, 100),
        (size + RECORD, RECORD, 100),
        (0, 0, 0),
    ]
    .into_iter()
    .enumerate()
    {
        for target in [&fs, &small, &sha] {
            let name = format!("copy-{number}");
            let file = make(target, target.root(), &name, NewKind::Regular);
            put(target, file, 0, b"before");
            let mut model = b"before".to_vec();
            let copied = copy((target, file, to), (&fs, source, from), len).unwrap();
            let part = expected.get(from as usize..).unwrap_or_default();
            let part = &part[..part.len().min(len as usize)];
            assert_eq!(copied, part.len() as u64, "{name}");
            if !part.is_empty() {
                let end = to as usize + part.len();
                model.resize(model.len().max(end), 0);
                model[to as usize..end].copy_from_slice(part);
            }
            assert!(contents(target, file) == model, "{name}");
        }
    }
    // Within a file: without overlap it works, otherwise not.
    assert_eq!(copy((&fs, source, 30 * RECORD), (&fs, source, 0), RECORD).unwrap(), RECORD);
    let refused = copy((&fs, source, RECORD), (&fs, source, 0), 2 * RECORD);
    assert!(matches!(*refused.unwrap_err(), ZplError::Invalid { .. }));
    let after = contents(&fs, source);
    assert!(after[..expected.len()] == expected[..]);
    assert!(after[30 * RECORD as usize..] == expected[..RECORD as usize]);
    settle(&session);
    assert!(contents(&fs, source) == after);
    drop((fs, small, sha));
    session.export();
    world.judge();
}

#[test]
fn shared_blocks_count_for_quotas_but_take_no_room() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[("compression", 2.into())]);
    let source = write(&fs, "source", 160);
    settle(&session);
    let quota = 30 * RECORD;
    let policy = [("compression", ZapValue::from(2_u64)), ("refquota", quota.into())];
    let bounded = dataset(&session, "made/q", &policy);
    settle(&session);
    let file = make(&bounded, bounded.root(), "copy", NewKind::Regular);
    let refused = copy((&bounded, file, 0), (&fs, source, 0), 160 * RECORD);
    assert!(matches!(*refused.unwrap_err(), ZplError::Quota { .. }));
    assert_eq!(copy((&bounded, file, 0), (&fs, source, 0), quota / 2).unwrap(), quota / 2);
    // More than the pool has room for as copies.
    for number in 0..8 {
        let file = make(&fs, fs.root(), &format!("copy-{number}"), NewKind::Regular);
        let copied = copy((&fs, file, 0), (&fs, source, 0), 160 * RECORD).unwrap();
        assert_eq!(copied, 160 * RECORD, "{number}");
    }
    settle(&session);
    let (used, saved) = savings(&session);
    assert!(saved >= 8 * used && used >= 160 * RECORD, "{used} {saved}");
    drop((fs, bounded));
    session.export();
    world.judge();
}

/// How often a snapshot is destroyed while it is copied from.
const ROUNDS: u64 = 4;
/// Threads ahead of the copy.
const WRITERS: u64 = 16;

/// A copy of a file that is only in a snapshot waits while others write all the time, and the
/// snapshot is destroyed meanwhile: the blocks are shared in time, or not at all.
#[test]
fn what_is_copied_from_a_snapshot_that_goes_is_whole_or_not_there() {
    let world = ImagePool::new("A");
    world.create().export();
    let mut options = PoolOptions::default();
    // Nothing may be dirty when a change begins: each has its own txg.
    options.tunables.zfs_dirty_data_max_max = 1;
    let session = world.open_files(LiveOptions::new(FileSystemOptions::default(), 42), &options);
    let pool = &session.pool;
    let fs = &*dataset(&session, "made/child", &[]);
    let files: Vec<_> = (0..WRITERS).map(|n| write(fs, &format!("busy{n}"), 1)).collect();
    let (mut copies, is_over) = (Vec::new(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for file in files {
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    put(fs, file, 0, &block(number));
                }
            });
        }
        let _end = SetWhenDropped(is_over);
        for round in 0..ROUNDS {
            let name = format!("file{round}");
            let file = write(fs, &name, 3);
            let expected = contents(fs, file);
            pool.sync().unwrap();
            let snapshot = format!("made/child@{round}");
            let new = NewSnapshots { names: vec![snapshot.clone()], ..NewSnapshots::default() };
            pool.take_snapshots(&new).unwrap();
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
            while fs.objset().object(file).is_ok() {
                pool.sync().unwrap();
            }
            let dataset = pool.dataset_tree().unwrap().open(&snapshot).unwrap();
            let source = Files::Fixed(Arc::new(FileSystem::of_dataset(&dataset, 5000).unwrap()));
            let target = make(fs, fs.root(), &format!("copy{round}"), NewKind::Regular);
            let place = |object| FilePlace { object, offset: 0 };
            let copying = scope.spawn(move || {
                let len = 3 * RECORD;
                let from = (&source, place(file));
                fs.copy_range(place(target), from, len, Caller::SUPERUSER).unwrap_or(0)
            });
            pool.destroy_snapshots(&[snapshot], Destruction::AtOnce).unwrap();
            copies.push((target, copying.join().unwrap(), expected));
        }
    });
    settle(&session);
    for (target, copied, expected) in copies {
        assert!(contents(fs, target) == expected[..copied as usize]);
    }
    session.export();
    world.judge();
}

/// Blocks of an OpenZFS snapshot can be shared with its live file system, and no other.
#[test]
fn blocks_of_snapshots_are_shared_with_their_file_system() {
    let Some(pool) = Copy::golden("g01-default") else { return };
    let session = pool.open();
    let view = session.view().unwrap();
    let snapshots = view.datasets().open("g01").unwrap().snapshots().unwrap();
    let snapshot = snapshots.first().unwrap();
    let source = Files::Fixed(Arc::new(FileSystem::of_dataset(snapshot, 5000).unwrap()));
    let NameTarget::Object(file) = source.lookup(source.root(), b"text1m").unwrap() else {
        panic!("a file of the root directory")
    };
    let size = source.attributes(file).unwrap().size;
    let expected = source.read_segments(file, 0, size).unwrap().concat();
    let saved = || session.view().unwrap().clone_savings().unwrap().saved;
    let (before, mut found) = (saved(), Vec::new());
    for name in ["g01", "g01/sa"] {
        let dataset = session.dataset_tree().unwrap().open(name).unwrap();
        let live = session.open_dataset(&dataset).unwrap();
        let options = LiveOptions::new(FileSystemOptions::default(), 42);
        let fs = LiveFileSystem::open_dataset(&session, &live, options).unwrap();
        let restored = make(&fs, fs.root(), "restored", NewKind::Regular);
        let place = |object| FilePlace { object, offset: 0 };
        let copied =
            fs.copy_range(place(restored), (&source, place(file)), size, Caller::SUPERUSER);
        assert_eq!(copied.unwrap(), size);
        for _ in 0..3 {
            session.sync().unwrap();
        }
        assert!(contents(&fs, restored) == expected);
        found.push(saved() - before);
        if name == "g01" {
            fs.unlink(fs.root(), b"text1m").unwrap();
        }
    }
    let [own, with_another] = found[..] else { panic!("{found:?}") };
    assert!(own > 0);
    assert_eq!(with_another, own, "only the file system of the snapshot shares its blocks");
    drop((view, snapshots, source));
    session.export().unwrap();
    pool.judge();
    let session = pool.open();
    let dataset = session.dataset_tree().unwrap().open("g01").unwrap();
    let live = session.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(&session, &live, options).unwrap();
    fs.unlink(fs.root(), b"restored").unwrap();
    drop((fs, live));
    for _ in 0..4 {
        session.sync().unwrap();
    }
    assert_eq!(session.view().unwrap().clone_savings().unwrap().saved, before);
    session.export().unwrap();
    pool.judge();
}
