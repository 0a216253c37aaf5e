//! How long does it take to make many small files, to look at them, and to remove them? In the
//! process of the pool, on an image file: what a FUSE mount adds is the same for every file system.
//!
//! With `--test` everything is done once, for programs that count instructions.

use criterion::{Criterion, criterion_group, criterion_main};
use rzfs_format::ObjectId;
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::live::{Caller, LiveFileSystem, LiveOptions, NewFile, NewKind, WriteAt};
use rzfs_zpl::{DirCookie, FileSystemOptions, NameTarget};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Of the image, which is sparse: so small that claims for space would be seen.
const SIZE: u64 = 3 << 30;
const FILES: usize = 2000;
const CONTENTS: [u8; 100] = [7; 100];

/// A pool whose file system keeps within its space and logs.
fn open() -> (ImagePool, Session, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory for the image");
    let world = ImagePool::in_directory(directory.path(), "A", SIZE);
    let Session { pool, fs } = world.create();
    drop(fs);
    let root = pool.dataset_tree().and_then(|tree| tree.root()).expect("the root dataset");
    let dataset = pool.open_dataset(&root).expect("the root dataset");
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(&pool, &dataset, options).expect("the file system");
    (world, Session { pool, fs }, directory)
}

fn names() -> Vec<String> {
    (0..FILES).map(|number| format!("file-{number:06}")).collect()
}

fn new(kind: NewKind<'_>) -> NewFile<'_> {
    NewFile { kind, permissions: 0o755, umask: 0o022, caller: Caller::SUPERUSER }
}

/// As a program does it through FUSE: the kernel asks for the name before it makes the file.
fn make(fs: &LiveFileSystem, directory: ObjectId, name: &str) {
    let name = name.as_bytes();
    assert!(fs.lookup(directory, name).is_err());
    let file = fs.create(directory, name, &new(NewKind::Regular)).expect("a new file").object;
    fs.write(file, WriteAt::Offset(0), &CONTENTS, Caller::SUPERUSER).expect("a write");
}

fn look_at(fs: &LiveFileSystem, directory: ObjectId, name: &str) {
    match fs.lookup(directory, name.as_bytes()) {
        Ok(NameTarget::Object(file)) => drop(fs.attributes(file).expect("attributes")),
        other => panic!("{name}: {other:?}"),
    }
}

fn list(fs: &LiveFileSystem, directory: ObjectId) {
    let mut found = 0;
    let visit = |_: rzfs_zpl::DirEntry<'_>| {
        found += 1;
        ControlFlow::Continue(())
    };
    fs.read_dir(directory, DirCookie::default(), visit).expect("a listing");
    assert!(found >= FILES);
}

fn remove(fs: &LiveFileSystem, directory: ObjectId, name: &str) {
    fs.lookup(directory, name.as_bytes()).expect("the file");
    fs.unlink(directory, name.as_bytes()).expect("removed");
}

/// One of the steps, for all files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Make,
    LookAt,
    List,
    Remove,
}

impl Step {
    const ALL: [(&'static str, Self); 4] = [
        ("make", Self::Make),
        ("look at", Self::LookAt),
        ("list", Self::List),
        ("remove", Self::Remove),
    ];

    fn take(self, fs: &LiveFileSystem, directory: ObjectId, names: &[String]) {
        match self {
            Self::Make => names.iter().for_each(|name| make(fs, directory, name)),
            Self::LookAt => names.iter().for_each(|name| look_at(fs, directory, name)),
            Self::List => list(fs, directory),
            Self::Remove => names.iter().for_each(|name| remove(fs, directory, name)),
        }
    }
}

fn small_files(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("2000 files of 100 bytes");
    let names = names();
    let (_world, session, _directory) = open();
    let fs = &session.fs;
    let mut round = 0;
    for (name, wanted) in Step::ALL {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut time = Duration::ZERO;
                for _ in 0..rounds {
                    round += 1;
                    let name = format!("round-{round}");
                    let made = fs.create(fs.root(), name.as_bytes(), &new(NewKind::Directory));
                    let directory = made.expect("a directory").object;
                    for (_, step) in Step::ALL {
                        let start = Instant::now();
                        step.take(fs, directory, &names);
                        if step == wanted {
                            time += start.elapsed();
                        }
                    }
                    fs.rmdir(fs.root(), name.as_bytes()).expect("an empty directory");
                }
                time
            });
        });
    }
    group.finish();
    session.export();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(5));
    targets = small_files
}
criterion_main!(benches);
