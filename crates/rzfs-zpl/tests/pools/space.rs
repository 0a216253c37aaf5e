//! Full pools and datasets: nothing breaks, and removing data frees room.

use crate::{block, make};
use rzfs_dsl::live::{ChangeError, NewDataset, NewSnapshots};
use rzfs_format::ObjectId;
use rzfs_format::znode::Timestamp;
use rzfs_proof::{ImagePool, Session};
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{
    Caller, LiveFileSystem, LiveOptions, NewFile, NewFileSystem, NewKind, WriteAt,
};
use rzfs_zpl::{FileSystemOptions, ZplError};
use std::sync::Arc;

const RECORD: u64 = 128 << 10;

fn dataset(session: &Session, name: &str, properties: &[(&str, ZapValue)]) -> Arc<LiveFileSystem> {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let new = NewDataset::new(Arc::new(NewFileSystem::new(now, 7)), properties);
    let live = session.pool.create_dataset(name, new).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(&session.pool, &live, options).unwrap()
}

/// Writes to a file until there is no room; returns the number of blocks written, and the error.
fn write_until_full(fs: &LiveFileSystem, file: ObjectId) -> (u64, ZplError) {
    for number in 0.. {
        let at = WriteAt::Offset(number * RECORD);
        if let Err(error) = fs.write(file, at, &block(number + 1), Caller::SUPERUSER) {
            return (number, error);
        }
    }
    unreachable!("a pool has an end");
}

fn available(fs: &LiveFileSystem) -> u64 {
    fs.options().space.usage().available
}

/// Waits until removed data is free.
fn settle(session: &Session) {
    for _ in 0..4 {
        let synced = session.pool.sync();
        assert!(synced.is_ok(), "{:?}", session.pool.failure());
    }
}

#[test]
fn a_full_pool_says_so_and_can_be_emptied() {
    for shape in ["A", "raidz1 A B C"] {
        let world = ImagePool::new(shape);
        let session = world.create();
        let fs = dataset(&session, "made/a", &[("compression", 2.into())]);
        settle(&session);
        let before = available(&fs);
        for round in 0..3 {
            let file = make(&fs, fs.root(), "large", NewKind::Regular);
            let (blocks, error) = write_until_full(&fs, file);
            assert!(matches!(error, ZplError::NoSpace { .. }), "{error}");
            assert!(blocks * RECORD > before / 2, "{shape}: {blocks} of {before}");
            let new = NewFile {
                kind: NewKind::Directory,
                permissions: 0o755,
                umask: 0,
                caller: Caller::SUPERUSER,
            };
            let mut made = 0;
            while made < 100 && fs.create(fs.root(), format!("{made}").as_bytes(), &new).is_ok() {
                made += 1;
            }
            settle(&session);
            assert!(session.pool.failure().is_none());
            for number in 0..made {
                fs.rmdir(fs.root(), format!("{number}").as_bytes()).unwrap();
            }
            fs.unlink(fs.root(), b"large").unwrap();
            settle(&session);
            let after = available(&fs);
            assert!(after + (2 << 20) > before, "{shape}, round {round}: {after} of {before}");
        }
        drop(fs);
        session.export();
        world.judge();
    }
}

#[test]
fn quotas_stop_writers_and_removal_lets_them_go_on() {
    const QUOTA: u64 = 8 << 20;
    let world = ImagePool::new("mirror A B");
    let session = world.create();
    for (name, property) in [("made/q", "quota"), ("made/r", "refquota")] {
        let fs = dataset(&session, name, &[("compression", 2.into()), (property, QUOTA.into())]);
        settle(&session);
        assert!(available(&fs) <= QUOTA);
        for _ in 0..2 {
            let file = make(&fs, fs.root(), "large", NewKind::Regular);
            let (blocks, error) = write_until_full(&fs, file);
            assert!(matches!(error, ZplError::Quota { .. }), "{error}");
            assert!(blocks * RECORD <= QUOTA && blocks * RECORD > QUOTA / 2, "{blocks}");
            settle(&session);
            let used = fs.options().space.usage().referenced;
            assert!(used <= QUOTA, "{used}");
            fs.unlink(fs.root(), b"large").unwrap();
            settle(&session);
        }
        session.pool.set_property(name, property, 0.into()).unwrap();
        assert!(available(&fs) > 2 * QUOTA);
    }
    session.export();
    world.judge();
}

#[test]
fn reservations_keep_room_from_others() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[("compression", 2.into())]);
    let reserved = 20_u64 << 20;
    let kept = dataset(&session, "made/kept", &[("refreservation", reserved.into())]);
    settle(&session);
    let file = make(&fs, fs.root(), "large", NewKind::Regular);
    write_until_full(&fs, file);
    settle(&session);
    assert!(available(&fs) < 1 << 20);
    assert!(available(&kept) + (1 << 20) > reserved, "{}", available(&kept));
    let file = make(&kept, kept.root(), "large", NewKind::Regular);
    let (blocks, _) = write_until_full(&kept, file);
    assert!(blocks * RECORD > reserved * 3 / 4, "{blocks}");
    drop((fs, kept));
    session.export();
    world.judge();
}

/// Writes this many bytes to a new file.
fn fill(fs: &LiveFileSystem, bytes: u64) {
    let file = make(fs, fs.root(), "large", NewKind::Regular);
    for number in 0..bytes / RECORD {
        let at = WriteAt::Offset(number * RECORD);
        fs.write(file, at, &block(number + 1), Caller::SUPERUSER).unwrap();
    }
}

/// Each reserves as much again as its head has.
#[test]
fn snapshots_that_are_taken_together_fit_together_into_what_is_left() {
    let world = ImagePool::new("A");
    let session = world.create();
    let plain = ("compression", 2.into());
    let probe = dataset(&session, "made/probe", &[]);
    let part = available(&probe) / 11;
    drop(probe);
    for name in ["made/a", "made/b", "made/c"] {
        let fs = dataset(&session, name, &[plain.clone(), ("refreservation", (2 * part).into())]);
        fill(&fs, 2 * part);
    }
    settle(&session);
    let of = |heads: &[&str]| NewSnapshots {
        names: heads.iter().map(|head| format!("made/{head}@s")).collect(),
        properties: vec![("a:b".to_owned(), ZapValue::from("c"))],
    };
    let refused = session.pool.take_snapshots(&of(&["a", "b", "c"])).unwrap_err();
    let ChangeError::Each(refused) = refused else { panic!("{refused}") };
    assert!(matches!(refused.as_slice(), [(name, ChangeError::NoSpace)] if name == "made/c@s"));
    let count = |name: &str| {
        session.pool.dataset_tree().unwrap().open(name).unwrap().snapshots().unwrap().len()
    };
    assert_eq!([count("made/a"), count("made/b"), count("made/c")], [0; 3]);
    session.pool.take_snapshots(&of(&["a", "b"])).unwrap();
    assert_eq!([count("made/a"), count("made/b"), count("made/c")], [1, 1, 0]);
    assert!(session.pool.take_snapshots(&of(&["c"])).is_err());
    session.export();
    world.judge();
}

/// Its additional reservation is already included in the branch.
#[test]
fn what_leaves_a_reserved_branch_needs_room_of_its_own() {
    let world = ImagePool::new("A");
    let session = world.create();
    let probe = dataset(&session, "made/probe", &[]);
    let part = available(&probe) / 11;
    drop(probe);
    drop(dataset(&session, "made/kept", &[("reservation", (8 * part).into())]));
    let fs = dataset(&session, "made/kept/x", &[("compression", 2.into())]);
    fill(&fs, 5 * part);
    settle(&session);
    let refused = session.pool.rename_dataset("made/kept/x", "made/x").unwrap_err();
    assert!(matches!(refused, ChangeError::NoSpace), "{refused}");
    session.pool.rename_dataset("made/kept/x", "made/kept/y").unwrap();
    session.pool.set_property("made/kept", "reservation", (5 * part).into()).unwrap();
    session.pool.rename_dataset("made/kept/y", "made/x").unwrap();
    drop(fs);
    session.export();
    world.judge();
}

#[test]
fn an_open_file_system_does_as_its_properties_say() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[("recordsize", (16_u64 << 10).into())]);
    assert_eq!(fs.options().reading.record_size, 16 << 10);
    session.pool.set_property("made/a", "recordsize", (64_u64 << 10).into()).unwrap();
    assert_eq!(fs.options().reading.record_size, 64 << 10);
    session.pool.set_property("made", "recordsize", (32_u64 << 10).into()).unwrap();
    assert_eq!(fs.options().reading.record_size, 64 << 10);
    session.pool.inherit_property("made/a", "recordsize", rzfs_dsl::live::Inherit::Parent).unwrap();
    assert_eq!(fs.options().reading.record_size, 32 << 10);
    let long = "n".repeat(600);
    let new =
        NewFile { kind: NewKind::Regular, permissions: 0o644, umask: 0, caller: Caller::SUPERUSER };
    let refused = fs.create(fs.root(), long.as_bytes(), &new);
    assert!(matches!(refused, Err(ZplError::NameTooLong { length: 600, .. })));
    session.pool.set_property("made/a", "longname", 1.into()).unwrap();
    fs.create(fs.root(), long.as_bytes(), &new).unwrap();
    assert_eq!(fs.statistics(fs.root()).unwrap().max_name, 1023);
    session.pool.set_property("made/a", "longname", 0.into()).unwrap();
    fs.lookup(fs.root(), long.as_bytes()).unwrap();
    let other = "o".repeat(600);
    let refused = fs.lookup(fs.root(), other.as_bytes());
    assert!(matches!(refused, Err(ZplError::NameTooLong { length: 600, .. })));
    fs.unlink(fs.root(), long.as_bytes()).unwrap();
    drop(fs);
    session.export();
    world.judge();
}

#[test]
fn freed_space_is_given_back_to_devices() {
    let world = ImagePool::new("raidz1 A B C");
    let session = world.create();
    session.pool.set_pool_property("autotrim", 1.into()).unwrap();
    let fs = dataset(&session, "made/a", &[("compression", 2.into())]);
    let file = make(&fs, fs.root(), "large", NewKind::Regular);
    for number in 0..80 {
        let at = WriteAt::Offset(number * RECORD);
        fs.write(file, at, &block(number + 1), Caller::SUPERUSER).unwrap();
    }
    let small = make(&fs, fs.root(), "small", NewKind::Regular);
    fs.write(small, WriteAt::Offset(0), b"stays", Caller::SUPERUSER).unwrap();
    settle(&session);
    fs.unlink(fs.root(), b"large").unwrap();
    settle(&session);
    let report = session.pool.trim_freed();
    assert!(report.trimmed > 40 * RECORD, "{report:?}");
    assert!(report.failures.is_empty(), "{report:?}");
    drop(fs);
    session.export();
    world.judge();
}
