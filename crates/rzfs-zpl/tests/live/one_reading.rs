//! A live file system reads like a read-only one: the same results, the same errors, as few reads.

use crate::operations::{contents, make, put};
use crate::pool::{Pool, reading};
use rzfs_dmu::live::LiveObject;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_zap::{IntegerSize, ZapValue};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewKind, XattrMode, XattrStore};
use rzfs_zpl::{DirCookie, FileSystem, FileSystemOptions, ReadAhead, ZplError};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Several of them are one read of a device.
const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 64;

/// Calls `spoil` to change an object behind the file system's back, then opens the state on disk,
/// as live and as read-only.
fn spoiled(
    mut pool: Pool,
    object: ObjectId,
    spoil: impl FnOnce(&Pool, &LiveObject),
) -> (Pool, Arc<LiveFileSystem>, FileSystem) {
    pool.sync();
    spoil(&pool, &pool.objset.object(object).unwrap());
    pool.sync();
    let live = pool.remount(Pool::options());
    let fixed = pool.reopened();
    (pool, live, fixed)
}

/// Checks that both return the same result, and returns it.
fn same<T: std::fmt::Debug>(
    live: Result<T, ZplError>,
    fixed: Result<T, ZplError>,
) -> (i32, String) {
    let (live, fixed) = (live.unwrap_err(), fixed.unwrap_err());
    assert_eq!((live.errno(), live.to_string()), (fixed.errno(), fixed.to_string()));
    (live.errno(), live.to_string())
}

const EIO: i32 = 5;
const ENXIO: i32 = 6;

#[test]
fn a_parent_that_is_no_directory_is_damage() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    // Its number is found in its attributes, where small numbers have other meanings.
    for number in 0..40 {
        make(&fs, fs.root(), &number.to_string(), NewKind::Regular);
    }
    let above = make(&fs, fs.root(), "above", NewKind::Directory);
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let below = make(&fs, above, "below", NewKind::Directory);
    drop(fs);
    let (_pool, live, fixed) = spoiled(pool, below, |pool, object| {
        let mut bonus = object.bonus().unwrap().to_vec();
        let parent = above.0.to_ne_bytes();
        let at = bonus.windows(8).position(|bytes| *bytes == parent).unwrap();
        bonus[at..at + 8].copy_from_slice(&file.0.to_ne_bytes());
        let tx = pool.engine.begin(&[object]).unwrap();
        object.set_bonus(&tx, ObjectType::SA, &bonus).unwrap();
    });
    let (errno, message) = same(live.lookup(below, b".."), fixed.lookup(below, b".."));
    assert_eq!(errno, EIO);
    assert!(message.contains("is not a directory"), "{message}");
}

/// Adds the entry `bad` to a directory.
fn add_entry(pool: &Pool, directory: &LiveObject, name: &[u8], value: ZapValue) {
    let mut zap = directory.zap().unwrap();
    let tx = pool.engine.begin(&[directory]).unwrap();
    zap.writer(directory.zap_blocks(&tx)).insert(name, value).unwrap();
}

#[test]
fn an_entry_that_is_no_number_is_damage() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let directory = make(&fs, fs.root(), "directory", NewKind::Directory);
    drop(fs);
    let (_pool, live, fixed) = spoiled(pool, directory, |pool, object| {
        add_entry(pool, object, b"bad", ZapValue::new(IntegerSize::One, &[1, 2, 3]));
    });
    assert_eq!(same(live.lookup(directory, b"bad"), fixed.lookup(directory, b"bad")).0, EIO);
    let on = |_: rzfs_zpl::DirEntry<'_>| ControlFlow::Continue(());
    let start = DirCookie::START;
    let listed = same(live.read_dir(directory, start, on), fixed.read_dir(directory, start, on));
    assert_eq!(listed.0, ENXIO);
}

#[test]
fn an_attribute_whose_file_is_missing_is_damage() {
    let pool = Pool::ordinary();
    let fs = pool.open(LiveOptions { xattr_store: XattrStore::Directory, ..Pool::options() });
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    fs.set_xattr(file, b"user.one", b"1", XattrMode::Create).unwrap();
    drop(fs);
    pool.sync();
    // It was created after its owner, and so was its own file.
    let hidden = (file.0 + 1..file.0 + 16)
        .map(ObjectId)
        .find(|id| {
            let object = pool.objset.object(*id);
            object.is_ok_and(|object| object.object_type().unwrap().is_zap())
        })
        .unwrap();
    let nowhere = ZapValue::from(4000_u64 | 8 << 60);
    let (_pool, live, fixed) = spoiled(pool, hidden, |pool, object| {
        add_entry(pool, object, b"user.lost", nowhere);
    });
    assert_eq!(live.xattr(file, b"user.one").unwrap(), b"1");
    assert_eq!(fixed.xattr(file, b"user.one").unwrap(), b"1");
    let lost = same(live.xattr(file, b"user.lost"), fixed.xattr(file, b"user.lost"));
    assert_eq!(lost.0, EIO);
}

#[test]
fn attributes_are_read_ahead_together() {
    const FILES: usize = 400;
    let mut pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let files: Vec<ObjectId> = (0..FILES)
        .map(|number| make(&fs, fs.root(), &format!("file {number}"), NewKind::Regular))
        .collect();
    drop(fs);
    pool.sync();
    let live = pool.remount(Pool::options());
    let reads = pool.faults.reads_of(|| live.prefetch_attributes(&files));
    let dnode_blocks = FILES as i64 * 512 / (16 << 10);
    assert!(reads <= dnode_blocks / 2, "{reads} reads of {dnode_blocks} blocks");
    let more = pool.faults.reads_of(|| {
        for (number, file) in files.iter().enumerate() {
            assert_eq!(live.attributes(*file).unwrap().object, *file, "{number}");
        }
    });
    assert_eq!(more, 0);
}

/// A file of many blocks on disk, the last of which has changed since.
fn partly_dirty(
    read_ahead: Option<Arc<ReadAhead>>,
) -> (Pool, Arc<LiveFileSystem>, ObjectId, Vec<u8>) {
    let mut pool = Pool::ordinary();
    let options = FileSystemOptions { record_size: BLOCK as u32, read_ahead, ..reading() };
    let options = LiveOptions { reading: options, ..Pool::options() };
    let fs = pool.open(options.clone());
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let mut data: Vec<u8> = noise.take(BLOCKS * BLOCK).collect();
    put(&fs, file, 0, &data);
    drop(fs);
    pool.sync();
    let live = pool.remount(options);
    let last = data.len() - 1;
    data[last] = !data[last];
    put(&live, file, last as u64, &data[last..]);
    (pool, live, file, data)
}

#[test]
fn a_file_that_is_partly_dirty_is_read_in_batches() {
    let (pool, live, file, data) = partly_dirty(None);
    let mut read = Vec::new();
    let reads = pool.faults.reads_of(|| read = contents(&live, file));
    assert!(read == data);
    assert!(reads <= BLOCKS as i64 / 2, "{reads} reads of {BLOCKS} blocks");
    let segments = live.read_segments(file, 0, data.len() as u64).unwrap();
    assert!(segments.concat() == data);
}

#[test]
fn what_follows_in_a_file_that_is_partly_dirty_is_read_ahead() {
    let read_ahead = Some(ReadAhead::start(1).unwrap());
    let (_pool, live, file, data) = partly_dirty(read_ahead);
    for block in 0..BLOCKS / 2 {
        let mut bytes = vec![0; BLOCK];
        live.read(file, (block * BLOCK) as u64, &mut bytes).unwrap();
        assert!(bytes == data[block * BLOCK..][..BLOCK]);
    }
    let stats = live.objset().pipeline().prefetching().stats();
    assert!(stats.io_issued > 0 && stats.hits > 0, "{stats:?}");
}
