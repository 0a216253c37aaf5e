//! Mounts pools that OpenZFS made, and compares what the kernel sees with their manifests.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetKind, KeyStatus};
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_fuse::{InUse, Mount, MountOptions};
use rzfs_testkit::{MountedTree, ReferencePool, differences};
use rzfs_zpl::{ControlTree, DatasetSnapshots, FileCaches, FileSystem, ReadAhead};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a mount may stay in use by a child process that has not called exec yet.
const PATIENCE: Duration = Duration::from_secs(60);

fn import(golden: &ReferencePool) -> Pool {
    let images = golden.images().expect("images");
    let sources: Vec<_> = images.into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [pool] = found.pools() else { panic!("{}: not one pool", golden.name()) };
    let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
    Pool::import(pool, &options).expect("import")
}

fn load_keys(golden: &ReferencePool, datasets: &[Dataset]) {
    for dataset in datasets {
        if dataset.key_status().unwrap() != KeyStatus::Unavailable {
            continue;
        }
        let root = dataset.encryption_root().unwrap().expect("an encryption root");
        let key = match root.name() {
            "g10/raw" => golden.text("raw.key").unwrap(),
            "g10/hex" => golden.text("hex.key").unwrap(),
            _ => b"correct horse battery\n".to_vec(),
        };
        dataset.load_key(&key).unwrap();
    }
}

/// Mounts every file system of a pool below `root`, each at its name.
fn mount_all(pool: &Pool, datasets: &[Dataset], root: &Path) -> Vec<Mount> {
    let read_ahead = ReadAhead::start(1).unwrap();
    let caches = FileCaches::default();
    let mut mounts = Vec::new();
    for dataset in datasets {
        if dataset.kind().unwrap() != DatasetKind::FileSystem {
            continue;
        }
        let file_system = Arc::new(FileSystem::of_dataset(dataset, pool.version()).unwrap());
        let (reader, caches) = (Some(Arc::clone(&read_ahead)), caches.clone());
        let snapshots = DatasetSnapshots::new(dataset.clone(), pool.version(), reader, caches);
        let control = ControlTree::new(Arc::clone(&file_system), Box::new(snapshots));
        let options = MountOptions::new(dataset.name());
        let directory = directory_of(root, dataset.name());
        mounts.push(Mount::new(file_system, Some(control), &directory, &options).unwrap());
    }
    mounts
}

/// Nested; or side by side for an ordinary user, whose `fusermount3` may not look into his own
/// mounts.
fn directory_of(root: &Path, dataset: &str) -> PathBuf {
    if !rustix::process::geteuid().is_root() {
        let directory = root.join(dataset.replace('/', "+"));
        std::fs::create_dir_all(&directory).unwrap();
        return directory;
    }
    match dataset.split_once('/') {
        Some((_, below)) => root.join(below),
        None => root.to_owned(),
    }
}

/// Mounts a pool, compares every file system and snapshot in its manifest, and returns the
/// differences, each prefixed with the name of its dataset.
fn differences_when_mounted(golden: &ReferencePool) -> Vec<String> {
    let pool = import(golden);
    let datasets = pool.datasets().root().unwrap().descendants().unwrap();
    load_keys(golden, &datasets);
    let root = tempfile::tempdir().unwrap();
    let mut mounts = mount_all(&pool, &datasets, root.path());

    let manifest = golden.manifest().unwrap();
    let mut problems = Vec::new();
    let mut compared = 0;
    for (dataset, files) in manifest.datasets() {
        let directory = match dataset.split_once('@') {
            Some((head, snapshot)) => {
                directory_of(root.path(), head).join(".zfs/snapshot").join(snapshot)
            }
            None => directory_of(root.path(), dataset),
        };
        let wrong = differences(files, &MountedTree(directory));
        problems.extend(wrong.into_iter().map(|problem| format!("{dataset}: {problem}")));
        compared += 1;
    }
    while let Some(mount) = mounts.pop() {
        // A child of another test that has not called exec yet holds our files open.
        let begun = Instant::now();
        while let Err(error) = mount.request_unmount(InUse::Refuse) {
            assert!(error.is_in_use() && begun.elapsed() < PATIENCE, "{error}");
            sleep(Duration::from_millis(10));
        }
        while !mount.is_finished() {
            sleep(Duration::from_millis(1));
        }
    }
    assert!(compared > 0, "{}: an empty manifest", golden.name());
    problems
}

fn check(name: &str) {
    let Some(golden) = ReferencePool::golden(name) else { return };
    let problems = differences_when_mounted(&golden);
    let shown = problems[..problems.len().min(40)].join("\n");
    assert!(problems.is_empty(), "{name}: {} differences:\n{shown}", problems.len());
}

macro_rules! pools {
    ($($test:ident: $pool:literal,)*) => {
        $(#[test]
        fn $test() {
            check($pool);
        })*
    };
}

pools! {
    every_file_shape: "g01-default",
    compression: "g02-compress",
    checksums: "g03-checksum",
    three_way_mirror: "g04-mirror3",
    raidz1: "g05-raidz1",
    raidz2: "g06-raidz2",
    raidz3: "g07-raidz3",
    draid2: "g08-draid2",
    stripe: "g09-stripe",
    encrypted: "g10-encrypted",
    dedup: "g11-dedup",
    fast_dedup_and_clones: "g12-fdt-clone",
    classes: "g13-classes",
    names: "g14-names",
    removed_device: "g15-removed",
    expanded_raidz: "g16-expanded",
    checkpoint: "g17-checkpoint",
    gang_blocks: "g18-gang",
    log_space_maps: "g19-logspacemap",
    no_features: "g20-nofeatures",
    version_28: "g21-v28",
    version_8: "g22-v8",
    many_snapshots: "g23-many",
}

/// The manifest describes the state after the intent log was replayed. A read-only mount does not
/// replay it, so exactly the files that the log changes are as they were before.
#[test]
fn intent_log_that_was_not_replayed() {
    const CHANGED: [&str; 8] =
        ["b131072", "b131073", "b4096", "b512", "b513", "dir/hardlink", "empty", "one"];
    const CREATED: [&str; 8] =
        ["zil", "zil/created", "zil/d", "zil/data", "zil/link", "zil/moved", "zil/sym", "zil/sync"];
    let Some(golden) = ReferencePool::golden("g24-zil") else { return };
    let mut problems = differences_when_mounted(&golden);
    for path in CREATED {
        let missing = format!("g24/fs: {path:?}: missing");
        assert!(problems.contains(&missing), "{path}: {problems:?}");
        problems.retain(|problem| *problem != missing);
    }
    for path in CHANGED {
        let place = format!("g24/fs: {path:?}: ");
        let (of_path, others): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(|problem| problem.starts_with(&place));
        assert!(!of_path.is_empty(), "{path} is as if the log had been replayed");
        problems = others;
    }
    assert!(problems.is_empty(), "{problems:?}");
}
