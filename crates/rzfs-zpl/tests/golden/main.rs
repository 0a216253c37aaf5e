//! Reads pools made by OpenZFS and compares every file with OpenZFS's view.

mod degraded;

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, KeyStatus};
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_proof::FileSystemTree;
use rzfs_testkit::{Manifest, ReferencePool, differences};
use rzfs_zpl::FileSystem;

/// Imports a reference pool.
fn import(reference: &ReferencePool) -> Pool {
    let sources: Vec<_> =
        reference.images().expect("images").into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [discovered] = found.pools() else { panic!("{}: {:?}", reference.name(), found.pools()) };
    let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
    match Pool::import(discovered, &options) {
        Ok(pool) => pool,
        Err(failure) => panic!("{}: {failure}", reference.name()),
    }
}

fn golden(name: &str) -> Option<(ReferencePool, Pool)> {
    let reference = ReferencePool::golden(name)?;
    let pool = import(&reference);
    Some((reference, pool))
}

fn open(pool: &Pool, dataset: &str) -> FileSystem {
    let dataset = pool.datasets().open(dataset).unwrap();
    open_dataset(pool, &dataset)
}

fn open_dataset(pool: &Pool, dataset: &Dataset) -> FileSystem {
    FileSystem::of_dataset(dataset, pool.version())
        .unwrap_or_else(|error| panic!("{}: {error}", dataset.name()))
}

/// Compares every dataset and snapshot in the manifest.
fn check(pool: &Pool, manifest: &Manifest) -> usize {
    let mut files = 0;
    let mut wrong = Vec::new();
    for (name, expected) in manifest.datasets() {
        let file_system = open(pool, name);
        let found = differences(expected, &FileSystemTree(&file_system));
        wrong.extend(found.into_iter().map(|difference| format!("{name}: {difference}")));
        files += expected.entries.len();
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    files
}

fn check_golden(name: &str) {
    let Some((reference, pool)) = golden(name) else { return };
    assert!(check(&pool, &reference.manifest().unwrap()) > 0, "{name} is empty");
}

macro_rules! golden_pools {
    ($($test:ident = $name:literal;)*) => {
        $(#[test]
        fn $test() {
            check_golden($name);
        })*
    };
}

golden_pools! {
    files_of_g01_default = "g01-default";
    files_of_g02_compress = "g02-compress";
    files_of_g03_checksum = "g03-checksum";
    files_of_g04_mirror3 = "g04-mirror3";
    files_of_g05_raidz1 = "g05-raidz1";
    files_of_g06_raidz2 = "g06-raidz2";
    files_of_g07_raidz3 = "g07-raidz3";
    files_of_g08_draid2 = "g08-draid2";
    files_of_g09_stripe = "g09-stripe";
    files_of_g11_dedup = "g11-dedup";
    files_of_g12_fdt_clone = "g12-fdt-clone";
    files_of_g13_classes = "g13-classes";
    files_of_g14_names = "g14-names";
    files_of_g15_removed = "g15-removed";
    files_of_g16_expanded = "g16-expanded";
    files_of_g17_checkpoint = "g17-checkpoint";
    files_of_g18_gang = "g18-gang";
    files_of_g19_logspacemap = "g19-logspacemap";
    files_of_g20_nofeatures = "g20-nofeatures";
    files_of_g21_v28 = "g21-v28";
    files_of_g22_v8 = "g22-v8";
    files_of_g23_many = "g23-many";
}

/// Pools of OpenZFS's own test suite: of versions 1 to 15, damaged ones, encrypted ones without
/// their keys. Pools that OpenZFS does not import are not imported here either.
#[test]
fn files_of_openzfs_own_pools() {
    let mut files = 0;
    for reference in ReferencePool::all_openzfs() {
        let Ok(manifest) = reference.manifest() else {
            assert_eq!(reference.name(), "v999-pool", "the only one that cannot be imported");
            continue;
        };
        let pool = import(&reference);
        for dataset in pool.datasets().root().unwrap().descendants().unwrap() {
            // The passphrase of two of them; that of a third one is unknown.
            if dataset.key_status().unwrap() == KeyStatus::Unavailable {
                drop(dataset.load_key(b"password\n"));
            }
        }
        files += check(&pool, &manifest);
        eprintln!("{}: {} file systems", reference.name(), manifest.datasets().count());
    }
    assert!(files > 100 || ReferencePool::all_openzfs().is_empty(), "{files} files");
}
