//! Pools without an export: their intent logs are replayed when they are opened.

use crate::golden::Copy;
use rzfs_blockdev::OpenOptions;
use rzfs_dsl::import::{ImportError, MissingLogs};
use rzfs_dsl::live::LivePool;
use rzfs_proof::FileSystemTree;
use rzfs_testkit::{ReferencePool, differences_but_times};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions};
use rzfs_zpl::{FileSystem, FileSystemOptions};

/// Opens all file systems for writing, which replays their logs.
fn open_all(pool: &LivePool) {
    let root = pool.dataset_tree().unwrap().root().unwrap();
    for dataset in root.descendants().unwrap() {
        let live = pool.open_dataset(&dataset).unwrap();
        let options = LiveOptions::new(FileSystemOptions::default(), 42);
        let fs = LiveFileSystem::open_dataset(pool, &live, options).unwrap();
        fs.drain_unlinked().unwrap();
        assert!(live.objset().log_header().unwrap().first.is_hole(), "{}", dataset.name());
    }
}

/// The differences from what OpenZFS showed before the crash.
fn differences_of(copy: &Copy) -> Vec<String> {
    let manifest = ReferencePool::golden("g24-zil").unwrap().manifest().unwrap();
    let pool = copy.import(&OpenOptions::new());
    let mut found = Vec::new();
    for (name, expected) in manifest.datasets() {
        let dataset = pool.datasets().open(name).unwrap();
        let fs = FileSystem::of_dataset(&dataset, pool.version()).unwrap();
        found.extend(differences_but_times(expected, FileSystemTree(&fs)));
    }
    found
}

#[test]
fn the_log_of_a_frozen_pool_is_replayed() {
    let Some(copy) = Copy::golden("g24-zil") else { return };
    assert!(!differences_of(&copy).is_empty(), "there is nothing to replay");
    let pool = copy.open();
    open_all(&pool);
    pool.export().unwrap();
    assert_eq!(differences_of(&copy), Vec::<String>::new());
    copy.judge();
}

/// The logged changes are older than the property.
#[test]
fn logs_of_read_only_file_systems_are_replayed() {
    let Some(copy) = Copy::golden("g24-zil") else { return };
    let pool = copy.open();
    pool.set_property("g24", "readonly", 1.into()).unwrap();
    open_all(&pool);
    pool.export().unwrap();
    assert_eq!(differences_of(&copy), Vec::<String>::new());
    copy.judge();
}

#[test]
fn a_claimed_log_waits_for_whoever_opens_the_file_system() {
    let Some(copy) = Copy::golden("g24-zil") else { return };
    for _ in 0..2 {
        copy.open().export().unwrap();
        copy.judge();
        assert!(!differences_of(&copy).is_empty());
    }
    let pool = copy.open();
    open_all(&pool);
    drop(pool);
    assert_eq!(differences_of(&copy), Vec::<String>::new());
    copy.judge();
}

#[test]
fn a_dataset_takes_its_log_with_it() {
    let Some(copy) = Copy::golden("g24-zil") else { return };
    let pool = copy.open();
    pool.destroy_dataset("g24/fs").unwrap();
    for _ in 0..6 {
        pool.sync().unwrap();
    }
    pool.export().unwrap();
    copy.judge();
}

#[test]
fn without_the_log_device_logs_are_given_up_when_that_is_asked_for() {
    let Some(copy) = Copy::golden("g24-zil") else { return };
    copy.lose("1.img");
    let refused = copy.open_anyway(MissingLogs::Refuse).unwrap_err();
    assert!(matches!(*refused.error, ImportError::MissingLogs { .. }), "{refused}");
    for _ in 0..2 {
        let pool = copy.open_anyway(MissingLogs::Ignore).unwrap();
        open_all(&pool);
        let dataset = pool.dataset_tree().unwrap().open("g24/fs").unwrap();
        let live = pool.open_dataset(&dataset).unwrap();
        let options = LiveOptions::new(FileSystemOptions::default(), 42);
        let fs = LiveFileSystem::open_dataset(&pool, &live, options).unwrap();
        assert!(fs.lookup(fs.root(), b"zil").is_err(), "it was in the log");
        assert!(fs.lookup(fs.root(), b"one").is_ok());
        drop((fs, live));
        pool.export().unwrap();
        copy.judge_without_log(1);
    }
}
