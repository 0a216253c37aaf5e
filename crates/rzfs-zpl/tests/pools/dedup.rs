//! Datasets with `dedup`: equal blocks are written once, and freed with their last owner.

use crate::cloning::{RECORD, contents, copy, dataset, settle, write};
use crate::{block, make, put};
use rzfs_dsl::live::PruneLimit;
use rzfs_dsl::pool::Attributes;
use rzfs_format::ddt::log::LogHeader;
use rzfs_format::features::Feature;
use rzfs_proof::{ImagePool, Session};
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{Caller, NewKind};

const OFF: u64 = 2;

fn allocated(session: &Session) -> u64 {
    session.pool.view().unwrap().space().unwrap().iter().map(|vdev| vdev.allocated).sum()
}

/// Blocks in the tables, and references to them.
fn counts(session: &Session) -> (u64, u64) {
    let tables = session.pool.view().unwrap().dedup_tables().unwrap();
    let totals = tables.iter().map(|table| table.histogram.total());
    totals.fold((0, 0), |(blocks, all), sum| (blocks + sum.blocks, all + sum.ref_blocks))
}

/// The headers of the logs of the table for SHA-256.
fn logs(session: &Session) -> Vec<LogHeader> {
    let view = session.pool.view().unwrap();
    let Some(own) = view.directory().object("DDT-sha256").unwrap() else { return Vec::new() };
    let own = Attributes::open(view.mos(), own).unwrap();
    let log = |index| {
        let log = own.object(&format!("DDT-log-sha256-{index}")).unwrap().unwrap();
        let object = view.mos().object(log).unwrap();
        LogHeader::decode(object.bonus(), object.order()).unwrap()
    };
    vec![log(0), log(1)]
}

/// Entries in the ZAPs of that table.
fn stored(session: &Session) -> u64 {
    let view = session.pool.view().unwrap();
    let Some(own) = view.directory().object("DDT-sha256").unwrap() else { return 0 };
    let own = Attributes::open(view.mos(), own).unwrap();
    let zaps = ["unique", "duplicate"].map(|class| format!("DDT-sha256-zap-{class}"));
    let zaps = zaps.iter().filter_map(|name| own.object(name).unwrap());
    zaps.map(|zap| view.mos().object(zap).unwrap().zap().unwrap().entry_count()).sum()
}

/// Moves everything from the logs to the ZAPs.
fn drain(session: &Session) {
    // One log after the other becomes due for flushing.
    for _ in 0..24 {
        session.pool.sync().unwrap();
    }
    let logs = logs(session);
    assert!(logs.iter().all(|log| log.length == 0), "{logs:?}");
}

fn properties(dedup: u64) -> [(&'static str, ZapValue); 2] {
    [("dedup", dedup.into()), ("compression", OFF.into())]
}

/// Writes, shares, overwrites and removes equal blocks; leaves one file.
fn run(session: &Session, dedup: u64) {
    let fs = dataset(session, "made/a", &properties(dedup));
    let other = dataset(session, "made/b", &properties(dedup));
    let first = write(&fs, "first", 12);
    // The same again in the same txg, and in another file system in a later one.
    let second = write(&fs, "second", 12);
    settle(session);
    assert_eq!(counts(session), (12, 24), "{dedup:x}");
    let before = allocated(session);
    let third = write(&other, "third", 12);
    put(&other, third, 12 * RECORD, &vec![0; RECORD as usize]);
    settle(session);
    assert_eq!(counts(session), (12, 36), "{dedup:x}");
    assert!(allocated(session) < before + 4 * RECORD, "{dedup:x}");
    for (fs, file) in [(&fs, first), (&fs, second), (&other, third)] {
        let bytes = contents(fs, file);
        for number in 0..12_usize {
            let at = number * RECORD as usize;
            assert!(bytes[at..at + RECORD as usize] == block(number as u64 + 1), "{number}");
        }
    }
    // Rewritten as they were, written anew, cloned, removed.
    for number in 0..6 {
        put(&fs, first, number * RECORD, &block(number + 1));
    }
    put(&fs, second, 0, &block(50));
    let cloned = make(&fs, fs.root(), "cloned", NewKind::Regular);
    settle(session);
    assert_eq!(copy((&fs, cloned, 0), (&fs, first, 0), 12 * RECORD).unwrap(), 12 * RECORD);
    settle(session);
    assert_eq!(counts(session), (13, 48), "{dedup:x}");
    fs.unlink(fs.root(), b"first").unwrap();
    fs.truncate(cloned, 3 * RECORD, Caller::SUPERUSER).unwrap();
    settle(session);
    assert_eq!(counts(session), (13, 27), "{dedup:x}");
    drop(other);
    session.pool.destroy_dataset("made/b").unwrap();
    settle(session);
    assert_eq!(counts(session), (13, 15), "{dedup:x}");
}

#[test]
fn equal_blocks_are_written_once() {
    const VERIFY: u64 = 1 << 8;
    let flat = [("A", None)];
    let both = [("A", None), ("mirror A B", Some(Feature::FastDedup))];
    for (dedup, pools) in
        [(1, &both[..]), (8 | VERIFY, &both[..]), (13 | VERIFY, &both[..]), (14, &flat[..])]
    {
        for &(shape, feature) in pools {
            let mut world = ImagePool::new(shape);
            if let Some(feature) = feature {
                world = world.without_feature(feature);
            }
            let session = world.create();
            run(&session, dedup);
            session.export();
            world.judge();
            if let Some(text) = world.zdb(&["-DDD", "-e"]) {
                assert!(text.contains("DDT"), "{text}");
            }
            let session = world.open();
            session.pool.destroy_dataset("made/a").unwrap();
            settle(&session);
            assert_eq!(counts(&session), (0, 0));
            drain(&session);
            assert!(session.pool.view().unwrap().dedup_tables().unwrap().is_empty());
            session.export();
            world.judge();
        }
    }
}

#[test]
fn other_numbers_of_copies_are_other_blocks() {
    for feature in [None, Some(Feature::FastDedup)] {
        let mut world = ImagePool::new("A");
        if let Some(feature) = feature {
            world = world.without_feature(feature);
        }
        let session = world.create();
        let one = dataset(&session, "made/one", &properties(1));
        let two = dataset(&session, "made/two", &[("dedup", 1.into()), ("copies", 2.into())]);
        write(&one, "a", 3);
        settle(&session);
        write(&two, "a", 3);
        write(&two, "b", 3);
        write(&one, "b", 3);
        settle(&session);
        drop((one, two));
        session.export();
        world.judge();
        let session = world.open();
        for name in ["made/one", "made/two"] {
            session.pool.destroy_dataset(name).unwrap();
            settle(&session);
        }
        assert_eq!(counts(&session), (0, 0));
        session.export();
        world.judge();
    }
}

#[test]
fn a_quota_keeps_new_blocks_out_of_the_tables() {
    const AUTO: u64 = u64::MAX;
    for shape in ["A", "A dedup B"] {
        let world = ImagePool::new(shape);
        let session = world.create();
        let set = |quota: u64| session.pool.set_pool_property("dedup_table_quota", quota.into());
        let fs = dataset(&session, "made/a", &properties(1));
        write(&fs, "first", 4);
        settle(&session);
        set(1).unwrap();
        let file = write(&fs, "second", 8);
        settle(&session);
        assert_eq!(counts(&session), (4, 8), "{shape}");
        assert!(contents(&fs, file)[5 * RECORD as usize..][..RECORD as usize] == block(6));
        // Then room decides, and there is enough.
        set(AUTO).unwrap();
        write(&fs, "third", 8);
        settle(&session);
        assert_eq!(counts(&session), (8, 16), "{shape}");
        drop(fs);
        session.export();
        world.judge();
    }
}

#[test]
fn entries_that_only_a_log_has_are_found_also_after_a_crash() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &properties(8));
    write(&fs, "first", 20);
    session.pool.sync().unwrap();
    assert!(logs(&session).iter().any(|log| log.length > 0), "{:?}", logs(&session));
    assert_eq!((stored(&session), counts(&session)), (0, (20, 20)));
    drop(fs);
    session.abandon();
    world.judge();
    let session = world.open();
    assert_eq!((stored(&session), counts(&session)), (0, (20, 20)));
    let fs = dataset(&session, "made/b", &properties(8));
    let before = allocated(&session);
    write(&fs, "second", 20);
    session.pool.sync().unwrap();
    assert_eq!(counts(&session), (20, 40));
    assert!(allocated(&session) < before + 8 * RECORD);
    drain(&session);
    assert_eq!((stored(&session), counts(&session)), (20, (20, 40)));
    // Blocks that change between the two are there once.
    let third = write(&fs, "third", 30);
    session.pool.sync().unwrap();
    fs.truncate(third, 25 * RECORD, Caller::SUPERUSER).unwrap();
    session.pool.sync().unwrap();
    assert_eq!(counts(&session), (25, 65));
    drop(fs);
    session.export();
    world.judge();
    if let Some(text) = world.zdb(&["-DD", "-e"]) {
        assert!(text.contains("DDT-log"), "{text}");
    }
    let session = world.open();
    assert_eq!(counts(&session), (25, 65));
    drain(&session);
    assert_eq!((stored(&session), counts(&session)), (25, (25, 65)));
    session.export();
    world.judge();
}

#[test]
fn tables_forget_blocks_that_there_are_once() {
    let world = ImagePool::new("mirror A B");
    let session = world.create();
    let fs = dataset(&session, "made/a", &properties(8));
    let first = write(&fs, "first", 40);
    write(&fs, "second", 10);
    settle(&session);
    // Entries in the logs are kept.
    assert_eq!(session.pool.prune_dedup(PruneLimit::Percent(100)).unwrap(), 0);
    drain(&session);
    assert_eq!(counts(&session), (40, 50));
    assert_eq!(session.pool.prune_dedup(PruneLimit::Age(3600)).unwrap(), 0);
    assert_eq!(session.pool.prune_dedup(PruneLimit::Percent(50)).unwrap(), 15);
    assert_eq!((stored(&session), counts(&session)), (25, (25, 35)));
    let bytes = contents(&fs, first);
    for number in 0..40_usize {
        let at = number * RECORD as usize;
        assert!(bytes[at..at + RECORD as usize] == block(number as u64 + 1), "{number}");
    }
    // Pruned blocks are restored when they are shared.
    let cloned = make(&fs, fs.root(), "cloned", NewKind::Regular);
    settle(&session);
    assert_eq!(copy((&fs, cloned, 0), (&fs, first, 0), 40 * RECORD).unwrap(), 40 * RECORD);
    settle(&session);
    assert_eq!(counts(&session), (40, 90));
    assert_eq!(session.pool.view().unwrap().clone_savings().unwrap().saved, 0);
    fs.unlink(fs.root(), b"cloned").unwrap();
    settle(&session);
    drain(&session);
    assert_eq!(counts(&session), (40, 50));
    assert_eq!(session.pool.prune_dedup(PruneLimit::Percent(50)).unwrap(), 15);
    // Pruned blocks are written again, and the old ones have no other owner.
    write(&fs, "third", 40);
    settle(&session);
    assert_eq!(counts(&session), (40, 75));
    let before = allocated(&session);
    fs.unlink(fs.root(), b"first").unwrap();
    settle(&session);
    assert!(allocated(&session) + 12 * RECORD < before);
    assert_eq!(counts(&session), (40, 50));
    drop(fs);
    session.export();
    world.judge();
    let session = world.open();
    session.pool.destroy_dataset("made/a").unwrap();
    drain(&session);
    assert_eq!(counts(&session), (0, 0));
    session.export();
    world.judge();
}
