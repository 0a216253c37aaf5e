//! Rolling back file systems of OpenZFS's pools to their last snapshots while they are in use.

#![expect(clippy::result_large_err, reason = "errors of rzfs-zpl are handed on as they are")]

use crate::cloning::dataset;
use crate::golden::Copy;
use crate::{block, make, put};
use rzfs_dsl::live::{LivePool, NewSnapshots};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::features::Feature;
use rzfs_proof::ImagePool;
use rzfs_testkit::SetWhenDropped;
use rzfs_zpl::live::{Caller, LiveFileSystem, LiveOptions, NewFile, NewKind, WriteAt};
use rzfs_zpl::{DirCookie, FileSystem, FileSystemOptions, NameTarget, ZplError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ESTALE: i32 = 116;
/// How long a writer writes without a pause.
const PATIENCE: Duration = Duration::from_secs(8);

fn try_open(pool: &LivePool, name: &str) -> Result<Arc<LiveFileSystem>, ZplError> {
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(pool, &live, options)
}

fn open(pool: &LivePool, name: &str) -> Arc<LiveFileSystem> {
    try_open(pool, name).unwrap()
}

/// The last snapshot of a dataset.
fn snapshot(pool: &LivePool, name: &str) -> FileSystem {
    let snapshots = pool.dataset_tree().unwrap().open(name).unwrap().snapshots().unwrap();
    let last = snapshots.iter().max_by_key(|snapshot| snapshot.dsl_dataset().creation_txg);
    FileSystem::of_dataset(last.unwrap(), 5000).unwrap()
}

/// The files below a directory, by path: sizes, modes, change times, and a part of the contents.
fn tree<S: rzfs_zpl::Source>(fs: &FileSystem<S>) -> BTreeMap<Vec<u8>, String> {
    fn below<S: rzfs_zpl::Source>(
        fs: &FileSystem<S>,
        (directory, path): (ObjectId, &[u8]),
        found: &mut BTreeMap<Vec<u8>, String>,
    ) {
        let mut names = Vec::new();
        fs.read_dir(directory, DirCookie::START, |entry| {
            names.push((entry.name.to_vec(), entry.kind, entry.object));
            ControlFlow::Continue(())
        })
        .unwrap();
        for (name, kind, object) in names {
            if matches!(&name[..], b"." | b"..") {
                continue;
            }
            let path = [path, b"/", &name].concat();
            let attributes = fs.attributes(object).unwrap();
            let mut contents = vec![0; 300 << 10];
            let len = match kind {
                FileKind::Regular => fs.read(object, 0, &mut contents).unwrap(),
                _ => 0,
            };
            let sum: u64 = contents[..len].iter().map(|byte| u64::from(*byte)).sum();
            let (size, mode, ctime) = (attributes.size, attributes.permissions, attributes.ctime);
            found.insert(path.clone(), format!("{object} {size} {mode:o} {ctime:?} {sum}"));
            if kind == FileKind::Directory {
                below(fs, (object, &path), found);
            }
        }
    }
    let mut found = BTreeMap::new();
    below(fs, (fs.root(), b""), &mut found);
    found
}

/// Changes a file system: partly on disk, partly in the intent log, partly in memory only.
fn change(pool: &LivePool, fs: &LiveFileSystem) -> ObjectId {
    let new = make(fs, fs.root(), "younger", NewKind::Regular);
    for number in 0..8 {
        put(fs, new, number * (128 << 10), &block(number + 1));
    }
    for old in [&b"text200k"[..], b"b131073", b"b4096"] {
        if let Ok(NameTarget::Object(old)) = fs.lookup(fs.root(), old) {
            put(fs, old, 1000, b"changed");
        }
    }
    for old in [&b"text1m"[..], b"b131072", b"sparse"] {
        let _ = fs.unlink(fs.root(), old);
    }
    pool.sync().unwrap();
    for number in 0..5 {
        put(fs, new, number * (128 << 10), &block(number + 77));
        fs.commit(&[new]).unwrap();
    }
    make(fs, fs.root(), "never synced", NewKind::Directory);
    new
}

fn errno<T: std::fmt::Debug>(result: Result<T, ZplError>) -> i32 {
    result.unwrap_err().errno()
}

fn roll_back_and_judge(copy: &Copy, name: &str) {
    let pool = copy.open();
    let expected = tree(&snapshot(&pool, name));
    assert!(!expected.is_empty());
    for round in 0..2 {
        let fs = open(&pool, name);
        let new = change(&pool, &fs);
        assert_ne!(tree(&**fs), expected);
        pool.roll_back(name).unwrap();
        assert_eq!(errno(fs.attributes(new)), ESTALE);
        assert_eq!(errno(fs.lookup(fs.root(), b"younger")), ESTALE);
        assert_eq!(errno(fs.commit(&[new])), ESTALE);
        let now = open(&pool, name);
        assert!(tree(&**now) == expected, "round {round}");
        put(&now, make(&now, now.root(), "after", NewKind::Regular), 0, &block(3));
        for _ in 0..4 {
            pool.sync().unwrap();
        }
        assert_eq!(errno(fs.attributes(new)), ESTALE);
    }
    pool.export().unwrap();
    copy.judge();
    let pool = copy.open();
    pool.roll_back(name).unwrap();
    assert!(tree(&**open(&pool, name)) == expected);
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    pool.export().unwrap();
    copy.judge();
}

#[test]
fn a_file_system_in_use_has_what_its_snapshot_has() {
    let datasets = [
        ("g01-default", "g01"),
        // A snapshot of it has a clone and a bookmark.
        ("g01-default", "g01/sa"),
        // Without features its old blocks are freed at once.
        ("g21-v28", "g21"),
    ];
    for (golden, name) in datasets {
        let Some(copy) = Copy::golden(golden) else { continue };
        roll_back_and_judge(&copy, name);
    }
}

#[test]
fn what_has_no_snapshot_of_its_own_is_not_rolled_back() {
    let Some(copy) = Copy::golden("g01-default") else { return };
    let pool = copy.open();
    assert_eq!(pool.roll_back("g01/clone").unwrap_err().errno(), 3);
    assert_eq!(pool.roll_back("g01/nowhere").unwrap_err().errno(), 2);
    assert_eq!(pool.roll_back("g01/sa@nowhere").unwrap_err().errno(), 2);
    // A named snapshot must be the last one.
    let names = vec!["g01/sa@since".to_owned()];
    let before = tree(&**open(&pool, "g01/sa"));
    pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
    assert_eq!(pool.roll_back("g01/sa@s1").unwrap_err().errno(), 17);
    assert!(tree(&**open(&pool, "g01/sa")) == before);
    pool.roll_back("g01/sa@since").unwrap();
    pool.export().unwrap();
    copy.judge();
}

/// A concurrent writer eventually gets an error, and none of its changes remain.
#[test]
fn nothing_that_is_written_meanwhile_comes_through() {
    let Some(copy) = Copy::golden("g01-default") else { return };
    let pool = copy.open();
    let expected = tree(&snapshot(&pool, "g01"));
    let (ends, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = Mutex::default();
    let write = |thread: u64| {
        while !ends.load(Ordering::Relaxed) {
            let written = current(&pool, &shared).and_then(|fs| {
                (0..)
                    .take_while(|_| !ends.load(Ordering::Relaxed))
                    .try_for_each(|number| write_something(&fs, thread, number))
            });
            if let Err(error) = written {
                assert_eq!(error.errno(), ESTALE, "{error}");
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|thread| {
            scope.spawn({
                let write = &write;
                move || write(thread)
            })
        });
        let _end = SetWhenDropped(&ends);
        while told.load(Ordering::Relaxed) < 9 && writers.iter().all(|one| !one.is_finished()) {
            pool.roll_back("g01").unwrap();
        }
    });
    drop(shared);
    pool.roll_back("g01").unwrap();
    assert!(tree(&**open(&pool, "g01")) == expected);
    for _ in 0..6 {
        pool.sync().unwrap();
    }
    pool.export().unwrap();
    copy.judge();
}

/// The file system shared by all writers, reopened when it is superseded.
fn current(
    pool: &LivePool,
    shared: &Mutex<Option<Arc<LiveFileSystem>>>,
) -> Result<Arc<LiveFileSystem>, ZplError> {
    let mut shared = shared.lock().unwrap();
    match &*shared {
        Some(fs) if !fs.objset().is_superseded() => Ok(Arc::clone(fs)),
        _ => {
            let fs = try_open(pool, "g01")?;
            *shared = Some(Arc::clone(&fs));
            Ok(fs)
        }
    }
}

fn write_something(fs: &LiveFileSystem, thread: u64, number: u64) -> Result<(), ZplError> {
    let caller = Caller::SUPERUSER;
    let new = NewFile { kind: NewKind::Regular, permissions: 0o644, umask: 0o022, caller };
    let name = format!("meanwhile-{thread}-{number}");
    let file = fs.create(fs.root(), name.as_bytes(), &new)?.object;
    for part in 0..3 {
        fs.write(file, WriteAt::Offset(part * (128 << 10)), &block(number + part), caller)?;
        fs.commit(&[file])?;
    }
    if number.is_multiple_of(3) {
        fs.unlink(fs.root(), name.as_bytes())?;
    }
    Ok(())
}

/// Blocks to be freed may be of this very txg, and must be found where there is no background
/// destruction.
#[test]
fn who_writes_all_the_time_does_not_put_it_off() {
    let sharing = vec![Feature::AsyncDestroy];
    let plain = vec![Feature::AsyncDestroy, Feature::BlockCloning];
    for without in [vec![], plain, sharing] {
        let world = ImagePool::new("A");
        let world = without.into_iter().fold(world, ImagePool::without_feature);
        let session = world.create();
        let (pool, root) = (&session.pool, session.fs.root());
        let names = ["a", "b", "c", "d"];
        let files = names.map(|name| make(&session.fs, root, name, NewKind::Regular));
        files.into_iter().for_each(|file| put(&session.fs, file, 0, b"before"));
        let names = vec!["made@s".to_owned()];
        pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
        let (is_over, start) = (AtomicBool::new(false), Instant::now());
        let in_time = std::thread::scope(|scope| {
            for file in files {
                let (fs, is_over) = (&session.fs, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
                        // It is stale in the end.
                        let at = WriteAt::Offset(0);
                        let _ = fs.write(file, at, b"and more", Caller::SUPERUSER);
                    }
                });
            }
            let _end = SetWhenDropped(&is_over);
            pool.roll_back("made@s").unwrap();
            start.elapsed() < PATIENCE
        });
        assert!(in_time);
        let fs = open(pool, "made");
        let sizes = files.map(|file| fs.attributes(file).unwrap().size);
        assert_eq!(sizes, ["before".len() as u64; 4]);
        drop(fs);
        session.export();
        world.judge();
    }
}

/// An open file system is kept and reported as busy, even if it is written all the time.
#[test]
fn what_is_in_use_is_not_destroyed() {
    let world = ImagePool::new("A");
    let session = world.create();
    let fs = dataset(&session, "made/a", &[]);
    let files = ["a", "b", "c", "d"].map(|name| make(&fs, fs.root(), name, NewKind::Regular));
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    let refused = std::thread::scope(|scope| {
        for file in files {
            let (fs, is_over) = (&fs, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
                    put(fs, file, 0, b"more");
                }
            });
        }
        let _end = SetWhenDropped(&is_over);
        session.pool.destroy_dataset("made/a")
    });
    assert_eq!(refused.unwrap_err().errno(), 16);
    assert!(start.elapsed() < PATIENCE);
    drop(fs);
    session.pool.destroy_dataset("made/a").unwrap();
    session.export();
    world.judge();
}
