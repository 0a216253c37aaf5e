//! What an intent log says is there after a crash, also where devices fail when it is read; and
//! nobody is blamed for where it ends.

use rzfs_blockdev::simulated::{Fault, FaultKind};
use rzfs_dmu::intent_log::LogChain;
use rzfs_dsl::Pool;
use rzfs_dsl::import::MissingLogs;
use rzfs_dsl::live::{LivePool, NewDataset, NotWritable};
use rzfs_format::BlockPointer;
use rzfs_format::znode::Timestamp;
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, ProofError, Rig, change_durably, record};
use rzfs_testkit::FileSystemManifest;
use rzfs_vdev::ErrorCounts;
use rzfs_zpl::live::NewFileSystem;
use std::sync::Arc;

const EIO: i32 = 5;
/// Where the allocatable space of a device begins, behind two labels and the boot area.
const DATA_START: u64 = 4 << 20;

/// A machine that stopped with a log of several blocks, and what was synced.
fn crashed() -> (Rig, FileSystemManifest) {
    crashed_on(Workload::Single)
}

fn crashed_on(workload: Workload) -> (Rig, FileSystemManifest) {
    let rig = Rig::new(workload);
    let open = rig.create().unwrap();
    let (_, fs) = open.root().unwrap();
    Files(fs).put("source", &[7; 300_000]).unwrap();
    open.sync().unwrap();
    change_durably(fs, "logged", "source", 1).unwrap();
    let expected = record(&**fs).unwrap().timeless();
    (rig.copy(), expected)
}

fn sees(rig: &Rig) -> FileSystemManifest {
    let seen = sees_with_leaks(rig);
    assert_eq!(rzfs_proof::walk(&rig.read().unwrap()).unwrap(), None);
    seen
}

/// The same where nobody can say what blocks a log had.
fn sees_with_leaks(rig: &Rig) -> FileSystemManifest {
    let open = rig.open().unwrap();
    let seen = record(&**open.root().unwrap().1).unwrap().timeless();
    open.export().unwrap();
    seen
}

/// The blocks of the log, but for the one that was never written.
fn log_blocks(pool: &Pool) -> Vec<BlockPointer> {
    let objset = pool.datasets().root().unwrap().open_objset().unwrap();
    let header = objset.log_header().unwrap();
    let chain = LogChain::new(pool.pipeline(), objset.id(), &header);
    chain.filter(|block| block.contents.is_some()).map(|block| block.pointer).collect()
}

/// Blocks outside of the log that its records point to.
fn logged_data(pool: &Pool) -> Vec<BlockPointer> {
    let objset = pool.datasets().root().unwrap().open_objset().unwrap();
    let header = objset.log_header().unwrap();
    let chain = LogChain::new(pool.pipeline(), objset.id(), &header);
    let data = |block: rzfs_dmu::intent_log::LogBlock| -> Vec<BlockPointer> {
        block.records().filter_map(|record| record.data_pointer()).collect()
    };
    chain.flat_map(data).filter(|data| !data.is_embedded() && !data.is_hole()).collect()
}

/// Where a block is on its devices.
fn place(pointer: &BlockPointer) -> u64 {
    pointer.dvas().next().unwrap().offset() + DATA_START
}

/// Has reads of a block fail.
fn fail_reads(rig: &Rig, pointer: &BlockPointer) {
    let offset = place(pointer);
    let fault = Fault::new(FaultKind::FailRead(EIO)).within(offset..offset + 512);
    rig.devices["A"].inject(fault);
}

fn errors(pool: &Pool) -> Vec<ErrorCounts> {
    pool.vdevs().leaves().map(|leaf| leaf.errors()).collect()
}

#[test]
fn the_end_of_an_intent_log_is_nobodys_error() {
    let (rig, _) = crashed();
    let healthy = [ErrorCounts::default()];
    let pool = rig.read().unwrap();
    assert_eq!(pool.unreplayed_logs().unwrap().len(), 1);
    assert_eq!(errors(&pool), healthy, "a log with records");
    let open = rig.open().unwrap();
    let found: Vec<_> = open.pool.vdevs().leaves().map(|leaf| leaf.errors()).collect();
    assert_eq!(found, healthy, "a log is claimed and replayed");
    open.root().unwrap().1.commit_all().unwrap();
    open.export().unwrap();
    let open = rig.open().unwrap();
    Files(open.root().unwrap().1).put("more", b"x").unwrap();
    open.root().unwrap().1.commit_all().unwrap();
    open.export().unwrap();
    // The first block of the log was set aside, and never written.
    let pool = rig.read().unwrap();
    assert_eq!(pool.unreplayed_logs().unwrap(), []);
    assert_eq!(errors(&pool), healthy, "a log without records");
}

#[test]
fn a_log_that_cannot_be_read_is_not_given_up() {
    let (crash, expected) = crashed();
    let pool = crash.read().unwrap();
    let (blocks, data) = (log_blocks(&pool), logged_data(&pool));
    assert!(blocks.len() > 2 && !data.is_empty(), "{} {}", blocks.len(), data.len());
    for unreadable in [&blocks[0], &blocks[1], blocks.last().unwrap(), &data[0]] {
        let rig = crash.copy();
        fail_reads(&rig, unreadable);
        match rig.open() {
            Err(ProofError::NotWritable(error)) => {
                assert!(matches!(*error, NotWritable::UnreadableLog { .. }), "{error}");
                assert!(error.to_string().contains("import -m"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.devices["A"].counts().writes, 0, "nothing was changed");
        rig.devices["A"].heal_all();
        assert!(sees(&rig) == expected);
    }
}

#[test]
fn a_log_that_cannot_be_read_can_be_given_up() {
    let (mut rig, _) = crashed();
    let blocks = log_blocks(&rig.read().unwrap());
    fail_reads(&rig, &blocks[1]);
    rig.settings.pool.missing_logs = MissingLogs::Ignore;
    let seen = sees(&rig);
    assert!(seen.entries.keys().any(|path| path.ends_with(b"source")), "{seen:?}");
    assert!(!seen.entries.keys().any(|path| path.ends_with(b"renamed")), "{seen:?}");
}

/// Has the log of a pool claimed, without a look at its file systems.
fn claim(rig: &Rig) {
    let options = rzfs_blockdev::OpenOptions::new().access(rzfs_blockdev::Access::ReadWrite);
    let discovery = rzfs_dsl::import::Discovery::search(&rig.sources(), &options);
    let found = discovery.matching(rig.name()).next().unwrap();
    let host = rig.settings.environment.host().clone();
    let import = rzfs_dsl::import::ImportOptions {
        host,
        host_check: rzfs_dsl::import::HostCheck::Override,
        ..Default::default()
    };
    let pool = Pool::import(found, &import).unwrap();
    let environment = Arc::clone(&rig.settings.environment);
    LivePool::open(&pool, environment, &rig.settings.pool).unwrap().export().unwrap();
}

#[test]
fn a_claimed_log_that_cannot_be_read_waits_for_its_device() {
    let (crash, expected) = crashed();
    let pool = crash.read().unwrap();
    let (blocks, data) = (log_blocks(&pool), logged_data(&pool));
    claim(&crash);
    for unreadable in [&blocks[0], &blocks[1], blocks.last().unwrap(), &data[0]] {
        let rig = crash.copy();
        fail_reads(&rig, unreadable);
        assert!(matches!(rig.open(), Err(ProofError::File { .. })));
        rig.devices["A"].heal_all();
        assert!(sees(&rig) == expected);
    }
    let mut rig = crash.copy();
    fail_reads(&rig, &blocks[1]);
    rig.settings.pool.missing_logs = MissingLogs::Ignore;
    let seen = sees_with_leaks(&rig);
    assert!(!seen.entries.keys().any(|path| path.ends_with(b"renamed")), "{seen:?}");
}

/// Whether a manifest has a file whose path ends like this.
fn has(seen: &FileSystemManifest, name: &str) -> bool {
    seen.entries.keys().any(|path| path.ends_with(name.as_bytes()))
}

#[test]
fn a_claimed_log_that_is_damaged_is_cut_by_leave_only() {
    let (crash, _) = crashed();
    let blocks = log_blocks(&crash.read().unwrap());
    claim(&crash);
    crash.devices["A"].damage(place(&blocks[1]), vec![0xa5; 512]);
    for _ in 0..2 {
        match crash.open() {
            Err(error @ ProofError::File { .. }) => {
                assert!(error.to_string().contains("import -m"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut rig = crash.copy();
    rig.settings.pool.missing_logs = MissingLogs::Ignore;
    let seen = sees_with_leaks(&rig);
    // What was logged before the damage is there.
    assert!(has(&seen, "logged/long") && !has(&seen, "renamed"), "{seen:?}");
}

#[test]
fn a_claimed_log_waits_for_the_side_of_a_mirror_that_may_have_it() {
    let (crash, expected) = crashed_on(Workload::Mirror);
    let pool = crash.read().unwrap();
    let (blocks, data) = (log_blocks(&pool), logged_data(&pool));
    drop(pool);
    claim(&crash);
    for damaged in [&blocks[1], &data[0]] {
        let rig = crash.copy();
        rig.devices["A"].damage(place(damaged), vec![0xa5; 512]);
        rig.devices["B"].detach();
        assert!(matches!(rig.open(), Err(ProofError::File { .. })));
        rig.devices["B"].attach();
        assert!(sees(&rig) == expected);
    }
}

#[test]
fn a_damaged_write_in_a_log_costs_nothing_but_itself() {
    let (crash, expected) = crashed();
    let data = logged_data(&crash.read().unwrap());
    claim(&crash);
    crash.devices["A"].damage(place(&data[0]), vec![0xa5; 512]);
    let seen = sees(&crash);
    let is_same = |path: &&Vec<u8>| seen.entries.get(*path) == expected.entries.get(*path);
    let others: Vec<_> = expected.entries.keys().filter(|path| !is_same(path)).collect();
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(others[0].ends_with(b"logged/long"), "{others:?}");
}

/// What was acknowledged is not refused when it is done again.
#[test]
fn a_log_is_replayed_whatever_quotas_and_reservations_say() {
    let (crash, expected) = crashed();
    let rig = crash.copy();
    let pool = rig.open_pool().unwrap();
    let limits = |kib: &u64| pool.set_property(rig.name(), "refquota", (kib << 10).into()).is_ok();
    // No more than there is.
    assert!((1..4096_u64).any(|kib| limits(&kib)));
    pool.export().unwrap();
    assert!(sees(&rig) == expected);

    let rig = crash.copy();
    let pool = rig.open_pool().unwrap();
    let other = format!("{}/other", rig.name());
    let created = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let new = NewDataset::new(Arc::new(NewFileSystem::new(created, 7)), Vec::new());
    pool.create_dataset(&other, new).unwrap();
    let reserves = |mib: &u64| pool.set_property(&other, "reservation", (mib << 20).into()).is_ok();
    // All that there is.
    let reserved = (1..4096_u64).rev().find(reserves);
    assert!(reserved.is_some());
    pool.export().unwrap();
    assert!(sees(&rig) == expected);
}
