//! Freeing over many groups, interrupted by a crash: nothing leaks, and it resumes.

use super::cloning::dataset;
use super::{make, put};
use rzfs_dsl::live::{Destruction, LiveOptions as PoolOptions, NewClone, NewSnapshots};
use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::live::{Caller, LiveFileSystem, LiveOptions, NewKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum blocks freed by files in a group.
const PACE: u64 = 20;
const RECORD: usize = 4096;
/// Blocks of the file; they have two indirect blocks.
const BLOCKS: usize = 1500;
/// Only a hang takes this long.
const A_HANG: Duration = Duration::from_secs(120);

fn options() -> LiveOptions {
    let reading = FileSystemOptions { record_size: RECORD as u32, ..FileSystemOptions::default() };
    LiveOptions::new(reading, 42)
}

fn open(world: &ImagePool) -> Session {
    let mut options = PoolOptions::default();
    options.tunables.zfs_txg_timeout = Duration::from_secs(3600);
    options.tunables.rzfs_per_txg_frees_max = PACE;
    world.open_files(self::options(), &options)
}

/// The incompressible contents of a block.
fn noise(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..RECORD).map(next).collect()
}

/// A pool with a long file.
fn filled() -> (ImagePool, Session, ObjectId) {
    let world = ImagePool::new("A");
    world.create().export();
    let session = open(&world);
    let file = make(&session.fs, session.fs.root(), "long", NewKind::Regular);
    for number in 0..BLOCKS {
        put(&session.fs, file, (number * RECORD) as u64, &noise(number));
    }
    session.pool.sync().unwrap();
    (world, session, file)
}

/// Waits for this many more groups.
fn wait_groups(session: &Session, groups: u64) {
    let (begin, first) = (Instant::now(), session.pool.synced_txg().get());
    while session.pool.synced_txg().get() < first + groups {
        assert!(begin.elapsed() < A_HANG, "nothing goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_removal_goes_on_after_a_crash() {
    let (world, session, file) = filled();
    session.fs.unlink(session.fs.root(), b"long").unwrap();
    wait_groups(&session, 5);
    session.abandon();
    let left = world.read().objset().object(file).unwrap().dnode().max_block_id.0;
    assert!((100..BLOCKS as u64 - 50).contains(&left), "{left} blocks are left");
    world.judge();
    let session = open(&world);
    assert_eq!(session.fs.drain_unlinked().unwrap(), 1);
    let (begin, first) = (Instant::now(), session.pool.synced_txg().get());
    while session.fs.objset().object(file).is_ok() {
        assert!(begin.elapsed() < A_HANG, "the file is never gone");
        session.pool.sync().unwrap();
    }
    let groups = session.pool.synced_txg().get() - first;
    assert!(groups >= left / PACE, "{left} blocks in {groups} groups");
    session.export();
    world.judge();
}

#[test]
fn a_file_that_was_being_shortened_in_a_crash_has_its_beginning_and_no_more() {
    let (world, session, file) = filled();
    let fs = Arc::clone(&session.fs);
    let truncation = std::thread::spawn(move || fs.truncate(file, 100, Caller::SUPERUSER).is_ok());
    wait_groups(&session, 5);
    session.abandon();
    assert!(!truncation.join().unwrap(), "nothing was in between");
    let fs = world.read();
    let size = fs.attributes(file).unwrap().size as usize;
    assert!((100 * RECORD..(BLOCKS - 50) * RECORD).contains(&size), "{size}");
    let whole: Vec<u8> = (0..BLOCKS).flat_map(noise).collect();
    let mut bytes = vec![0; size];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), size);
    assert!(whole.starts_with(&bytes));
    drop(fs);
    world.judge();
    // Truncated data does not come back.
    let session = open(&world);
    session.fs.truncate(file, whole.len() as u64, Caller::SUPERUSER).unwrap();
    let mut bytes = vec![1; whole.len()];
    assert_eq!(session.fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes[..size] == whole[..size] && bytes[size..].iter().all(|byte| *byte == 0));
    session.export();
    world.judge();
}

/// Blocks of destroyed datasets that are freed in a group.
const DESTRUCTIONS_PACE: u64 = 9;
/// What a file of these tests has.
const OWN: u64 = 100;

/// A pool that frees slowly, also what clones had.
fn open_slowly(world: &ImagePool) -> Session {
    let mut options = PoolOptions::default();
    options.tunables.zfs_txg_timeout = Duration::from_secs(3600);
    options.tunables.zfs_async_block_max_blocks = DESTRUCTIONS_PACE as usize;
    world.open_files(self::options(), &options)
}

/// A file with blocks that nobody else has.
fn put_own(session: &Session, fs: &LiveFileSystem, name: &str) {
    let file = make(fs, fs.root(), name, NewKind::Regular);
    for number in 0..OWN as usize {
        put(fs, file, (number * RECORD) as u64, &noise(number));
    }
    session.pool.sync().unwrap();
}

fn take(session: &Session, name: &str) {
    let new = NewSnapshots { names: vec![name.to_owned()], properties: Vec::new() };
    session.pool.take_snapshots(&new).unwrap();
}

fn reopen(session: &Session, name: &str) -> Arc<LiveFileSystem> {
    let dataset = session.pool.dataset_tree().unwrap().open(name).unwrap();
    let live = session.pool.open_dataset(&dataset).unwrap();
    LiveFileSystem::open_dataset(&session.pool, &live, options()).unwrap()
}

fn allocated(session: &Session) -> u64 {
    session.pool.view().unwrap().space().unwrap().iter().map(|vdev| vdev.allocated).sum()
}

/// Has a file system `made/a`, does something with it, has something of it be given up, and looks how
/// fast so many files of [`OWN`] blocks are freed.
fn check_pace(files: u64, prepare: impl FnOnce(&Session), give_up: impl FnOnce(&Session)) {
    let world = ImagePool::new("A");
    world.create().export();
    let session = open_slowly(&world);
    drop(dataset(&session, "made/a", &[("recordsize", (RECORD as u64).into())]));
    prepare(&session);
    (0..4).for_each(|_| session.pool.sync().unwrap());
    let before = allocated(&session);
    let (mut last, mut txg) = (before, session.pool.synced_txg().get());
    give_up(&session);
    let (begin, mut least) = (Instant::now(), before);
    while least + files * OWN * RECORD as u64 > before {
        assert!(begin.elapsed() < A_HANG, "{} of {before} are left", least);
        session.pool.sync().unwrap();
        let (now, at) = (allocated(&session), session.pool.synced_txg().get());
        // What the txgs have written themselves, and freed of what earlier ones have, comes on top.
        let most = (at - txg + 1) * DESTRUCTIONS_PACE * RECORD as u64 + (256 << 10);
        assert!(last.saturating_sub(now) <= most, "{last} {now} in txgs {txg} to {at}");
        (last, txg, least) = (now, at, least.min(now));
    }
    session.export();
    world.judge();
}

#[test]
fn destroyed_file_systems_and_their_snapshots_are_freed_at_their_pace() {
    let all = ["made/a@1", "made/a@2"].map(str::to_owned);
    check_pace(
        3,
        |session| {
            let fs = reopen(session, "made/a");
            for snapshot in &all {
                put_own(session, &fs, "file");
                take(session, snapshot);
                fs.unlink(fs.root(), b"file").unwrap();
            }
            put_own(session, &fs, "last");
        },
        |session| {
            session.pool.destroy_snapshots(&all, Destruction::AtOnce).unwrap();
            session.pool.destroy_dataset("made/a").unwrap();
        },
    );
}

#[test]
fn a_destroyed_snapshot_is_freed_at_its_pace() {
    check_pace(
        2,
        |session| {
            let fs = reopen(session, "made/a");
            ["one", "two"].iter().for_each(|name| put_own(session, &fs, name));
            take(session, "made/a@1");
            ["one", "two"].iter().for_each(|name| fs.unlink(fs.root(), name.as_bytes()).unwrap());
        },
        |session| {
            let names = ["made/a@1".to_owned()];
            session.pool.destroy_snapshots(&names, Destruction::AtOnce).unwrap();
        },
    );
}

#[test]
fn what_a_rollback_gives_up_is_freed_at_its_pace() {
    check_pace(
        2,
        |session| {
            take(session, "made/a@1");
            let fs = reopen(session, "made/a");
            ["one", "two"].iter().for_each(|name| put_own(session, &fs, name));
        },
        |session| session.pool.roll_back("made/a@1").unwrap(),
    );
}

#[test]
fn a_destroyed_clone_is_freed_at_its_pace() {
    check_pace(
        2,
        |session| {
            take(session, "made/a@1");
            let origin = "made/a@1".to_owned();
            let properties = vec![("recordsize".to_owned(), (RECORD as u64).into())];
            let new = NewClone { origin, properties };
            session.pool.clone_snapshot("made/clone", &new).unwrap();
            let fs = reopen(session, "made/clone");
            ["one", "two"].iter().for_each(|name| put_own(session, &fs, name));
        },
        |session| session.pool.destroy_dataset("made/clone").unwrap(),
    );
}
