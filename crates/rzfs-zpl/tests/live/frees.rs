//! The number of blocks that die in a group when much is freed.

use crate::golden_shapes::noise;
use crate::operations::{contents, make, put};
use crate::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_zpl::FileSystem;
use rzfs_zpl::live::{Allocation, Caller, LiveFileSystem, LiveOptions, NewKind};
use std::time::{Duration, Instant};

/// Maximum blocks freed by files in a group.
const PACE: u64 = 64;
/// Maximum blocks that then die in a group: besides data there are indirect blocks, and blocks that
/// every group rewrites.
const DIE_TOGETHER: usize = PACE as usize + 32;
const RECORD: usize = 512;
/// Blocks of a long file.
const BLOCKS: usize = 1000;
/// Only a hang takes this long.
const A_HANG: Duration = Duration::from_secs(120);

fn options() -> LiveOptions {
    let mut options = Pool::options();
    options.reading.record_size = RECORD as u32;
    options
}

fn pool() -> Pool {
    Pool::freeing(&Pool::ordinary_file_system(), PACE)
}

fn long_file(fs: &LiveFileSystem) -> ObjectId {
    let file = make(fs, fs.root(), "long", NewKind::Regular);
    put(fs, file, 0, &noise(BLOCKS * RECORD));
    file
}

/// Syncs until `is_done`; returns the maximum number of blocks that died in one group, and the
/// number of groups with deaths.
fn sync_until(pool: &Pool, is_done: impl Fn() -> bool) -> (usize, usize) {
    let (mut most, mut groups) = (0, 0);
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < A_HANG, "it never ends");
        let before = pool.blocks();
        pool.sync();
        let died = before.saturating_sub(pool.blocks());
        most = most.max(died);
        groups += usize::from(died > PACE as usize / 2);
    }
    (most, groups)
}

/// Syncs during an operation that waits for groups.
fn sync_during(pool: &Pool, work: impl FnOnce() + Send, between: impl Fn()) -> (usize, usize) {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        let died = sync_until(pool, || {
            between();
            work.is_finished()
        });
        work.join().unwrap();
        let before = pool.blocks();
        pool.sync();
        (died.0.max(before.saturating_sub(pool.blocks())), died.1)
    })
}

#[track_caller]
fn check((most, groups): (usize, usize), blocks: usize) {
    assert!((PACE as usize / 2..=DIE_TOGETHER).contains(&most), "{most} blocks died together");
    assert!(groups + 2 >= blocks / PACE as usize, "{blocks} blocks in {groups} groups");
}

#[test]
fn long_files_are_removed_over_many_groups() {
    let pool = pool();
    let fs = pool.open(options());
    let objects = pool.on_disk().root().fill();
    long_file(&fs);
    pool.sync();
    assert!(pool.blocks() > BLOCKS);
    fs.unlink(fs.root(), b"long").unwrap();
    check(sync_until(&pool, || pool.on_disk().root().fill() == objects), BLOCKS);
}

#[test]
fn the_next_mount_goes_on_with_what_is_being_removed() {
    let mut pool = pool();
    let fs = pool.open(options());
    let objects = pool.on_disk().root().fill();
    let file = long_file(&fs);
    pool.sync();
    fs.unlink(fs.root(), b"long").unwrap();
    let is_begun = || fs.objset().object(file).unwrap().blocks_on_disk() < BLOCKS as u64 * 3 / 4;
    sync_until(&pool, is_begun);
    fs.pause_reclaiming();
    drop(fs);
    pool.sync();
    pool.sync();
    let left = pool.on_disk().object(file).unwrap().dnode().pointers[0].fill() as usize;
    assert!((BLOCKS / 4..BLOCKS * 3 / 4).contains(&left), "{left} blocks are left");
    let fs = pool.remount(options());
    assert_eq!(fs.drain_unlinked().unwrap(), 1);
    check(sync_until(&pool, || pool.on_disk().root().fill() == objects), left);
}

#[test]
fn what_devices_do_not_let_go_for_a_moment_goes_when_they_are_back() {
    let mut pool = pool();
    let fs = pool.open(options());
    let objects = pool.on_disk().root().fill();
    drop(fs);
    for reads in 0.. {
        let fs = pool.remount(options());
        let file = long_file(&fs);
        pool.sync();
        let hold = fs.hold(file).unwrap();
        fs.unlink(fs.root(), b"long").unwrap();
        pool.sync();
        // The next mount has nothing in memory.
        fs.pause_reclaiming();
        drop((hold, fs));
        pool.sync();
        let fs = pool.remount(options());
        pool.faults.refuse_after(reads);
        let drained = fs.drain_unlinked();
        let is_last = !pool.faults.were_reached();
        pool.faults.heal();
        match drained {
            Ok(found) => assert_eq!(found, 1),
            Err(_) => assert_eq!(fs.drain_unlinked().unwrap(), 1),
        }
        sync_until(&pool, || pool.on_disk().root().fill() == objects);
        if is_last {
            return;
        }
    }
}

#[test]
fn many_files_that_are_removed_together_share_what_a_group_may_free() {
    const FILES: usize = 100;
    let pool = pool();
    let fs = pool.open(options());
    let dir = make(&fs, fs.root(), "dir", NewKind::Directory);
    let objects = pool.on_disk().root().fill() + 1;
    for number in 0..FILES {
        let file = make(&fs, dir, &format!("{number}"), NewKind::Regular);
        put(&fs, file, 0, &noise(8 * RECORD));
    }
    pool.sync();
    for number in 0..FILES {
        fs.unlink(dir, format!("{number}").as_bytes()).unwrap();
    }
    check(sync_until(&pool, || pool.on_disk().root().fill() == objects), 8 * FILES);
}

/// Checks that the file on disk is a prefix of the contents.
fn is_beginning(fs: &FileSystem, file: ObjectId, whole: &[u8]) -> usize {
    let mut bytes = vec![0; fs.attributes(file).unwrap().size as usize];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    assert!(whole.starts_with(&bytes), "{} bytes are no beginning", bytes.len());
    bytes.len()
}

#[test]
fn files_are_made_much_shorter_over_many_groups_step_by_step() {
    let pool = pool();
    let fs = pool.open(options());
    let file = long_file(&fs);
    pool.sync();
    let whole = noise(BLOCKS * RECORD);
    let truncate = || fs.truncate(file, 700, Caller::SUPERUSER).unwrap();
    let died = sync_during(&pool, truncate, || {
        is_beginning(&pool.reopened(), file, &whole);
        // Readers of attributes do not wait for it.
        assert!(fs.attributes(file).unwrap().size >= 700);
    });
    check(died, BLOCKS);
    assert_eq!(contents(&fs, file), whole[..700]);
    fs.truncate(file, 2000, Caller::SUPERUSER).unwrap();
    assert_eq!(contents(&fs, file), [&whole[..700], &[0; 1300]].concat());
    pool.sync();
    assert_eq!(pool.on_disk().object(file).unwrap().dnode().max_block_id.0, 1);
}

#[test]
fn large_holes_are_made_over_many_groups() {
    let pool = pool();
    let fs = pool.open(options());
    let file = long_file(&fs);
    pool.sync();
    let mut expected = noise(BLOCKS * RECORD);
    let (first, last) = (700, BLOCKS * RECORD - 900);
    let punch = || {
        let (offset, len) = (first as u64, (last - first) as u64);
        fs.allocate(file, offset, len, Allocation::Punch, Caller::SUPERUSER).unwrap();
    };
    check(sync_during(&pool, punch, || ()), BLOCKS);
    expected[first..last].fill(0);
    assert_eq!(contents(&fs, file), expected);
    let on_disk = pool.on_disk();
    assert_eq!(on_disk.object(file).unwrap().dnode().pointers[0].fill(), 4);
}

#[test]
fn a_length_that_is_set_with_other_attributes_takes_many_groups_too() {
    let pool = pool();
    let fs = pool.open(options());
    let file = long_file(&fs);
    pool.sync();
    let change = rzfs_zpl::live::AttributeChange {
        size: Some(0),
        permissions: Some(0o600),
        ..rzfs_zpl::live::AttributeChange::default()
    };
    let change = || {
        fs.set_attributes(file, &change, Caller::SUPERUSER).unwrap();
    };
    check(sync_during(&pool, change, || ()), BLOCKS);
    let attributes = fs.attributes(file).unwrap();
    assert_eq!((attributes.size, attributes.permissions), (0, 0o600));
}
