//! How long does a write of 4 KiB take until it is durable, and how many threads can have that at
//! once? On image files, with and without a log device; for comparison, what `fdatasync` of a plain
//! file takes. Percentiles are printed, as the worst matters more than the mean.

use criterion::{Criterion, criterion_group, criterion_main};
use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::live::{Caller, LiveFileSystem, LiveOptions, NewFile, NewKind, WriteAt};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of each image, which is sparse.
const SIZE: u64 = 16 << 30;
const BLOCK: [u8; 4096] = [7; 4096];
/// Blocks that are written over and over.
const BLOCKS: u64 = 256;
const SAMPLES: usize = 2000;
const THREADS: usize = 8;

/// A pool whose file system logs.
fn open(shape: &str) -> (ImagePool, Session, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory for images");
    let world = ImagePool::in_directory(directory.path(), shape, SIZE);
    let Session { pool, fs } = world.create();
    drop(fs);
    let root = pool.dataset_tree().and_then(|tree| tree.root()).expect("the root dataset");
    let dataset = pool.open_dataset(&root).expect("the root dataset");
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(&pool, &dataset, options).expect("the file system");
    (world, Session { pool, fs }, directory)
}

fn make(fs: &LiveFileSystem, name: &str) -> ObjectId {
    let kind = NewKind::Regular;
    let new = NewFile { kind, permissions: 0o644, umask: 0, caller: Caller::SUPERUSER };
    let file = fs.create(fs.root(), name.as_bytes(), &new).expect("a new file").object;
    fs.commit(&[file]).expect("the log begins");
    file
}

fn write_durably(fs: &LiveFileSystem, file: ObjectId, block: u64) {
    let at = WriteAt::Offset(block % BLOCKS * BLOCK.len() as u64);
    fs.write(file, at, &BLOCK, Caller::SUPERUSER).expect("a write");
    fs.commit(&[file]).expect("a commit");
}

/// Prints how long `work` takes.
fn percentiles(name: &str, mut work: impl FnMut(u64)) {
    let sample = |number| {
        let start = Instant::now();
        work(number);
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..SAMPLES as u64).map(sample).collect();
    times.sort();
    let at = |percent: usize| times[(SAMPLES - 1) * percent / 100];
    println!("{name}: p50 {:?}, p99 {:?}, worst {:?}", at(50), at(99), at(100));
}

fn one_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("durable write of 4 KiB");
    let directory = tempfile::tempdir().expect("a directory");
    let plain = File::create(directory.path().join("plain")).expect("a file");
    plain.set_len(BLOCKS * BLOCK.len() as u64).expect("a length");
    let write = |block: u64| {
        plain.write_all_at(&BLOCK, block % BLOCKS * BLOCK.len() as u64).expect("a write");
        plain.sync_data().expect("a flush");
    };
    percentiles("plain file", write);
    group.bench_function("plain file", |bencher| {
        let mut block = 0;
        bencher.iter(|| {
            block += 1;
            write(block);
        });
    });
    for (name, shape) in
        [("no log device", "A"), ("log device", "A log B"), ("mirror", "mirror A B")]
    {
        let (_world, session, _directory) = open(shape);
        let file = make(&session.fs, "file");
        percentiles(name, |block| write_durably(&session.fs, file, block));
        group.bench_function(name, |bencher| {
            let mut block = 0;
            bencher.iter(|| {
                block += 1;
                write_durably(&session.fs, file, block);
            });
        });
        session.export();
    }
    group.finish();
}

/// Each of the threads has its file. The time is that of one write of all of them.
fn many_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("durable writes of 4 KiB by 8 threads");
    let (_world, session, _directory) = open("A");
    let fs = Arc::clone(&session.fs);
    let files: Vec<ObjectId> =
        (0..THREADS).map(|number| make(&fs, &format!("file-{number}"))).collect();
    group.bench_function("no log device", |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for file in &files {
                    let fs = &fs;
                    scope.spawn(move || {
                        (0..rounds).for_each(|block| write_durably(fs, *file, block))
                    });
                }
            });
            start.elapsed()
        });
    });
    group.finish();
    drop(fs);
    session.export();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(5));
    targets = one_thread, many_threads
}
criterion_main!(benches);
