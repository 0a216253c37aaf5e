//! Freeing over many groups, interrupted by a crash: nothing leaks, and it resumes.

use super::{make, put};
use rzfs_dsl::live::LiveOptions as PoolOptions;
use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::live::{Caller, LiveOptions, NewKind};
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
