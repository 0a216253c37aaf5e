//! Discovering pools made by OpenZFS.

use super::{device, images, property};
use rzfs_blockdev::OpenOptions;
use rzfs_dsl::import::{
    DeviceSource, Discovery, LabelTrust, read_boot_environment, read_labels, read_rings,
};
use rzfs_format::label::{BootEnvironment, UberblockRing};
use rzfs_format::pool_state::PoolState;
use rzfs_testkit::ReferencePool;

#[test]
fn every_golden_pool_is_found_by_its_directory() {
    for pool in ReferencePool::all_golden() {
        let directory = images(&pool)[0].parent().expect("a directory").to_path_buf();
        let found = Discovery::search(&[DeviceSource::Path(directory)], &OpenOptions::new());
        assert!(found.unopened().is_empty() && found.damaged().is_empty(), "{}", pool.name());
        let [only] = found.pools() else { panic!("{}: {:?}", pool.name(), found.pools()) };
        assert_eq!(Some(only.guid().to_string()), property(&pool, "guid"), "{}", pool.name());
        let short_name = pool.name().split('-').next().expect("a name");
        assert_eq!(only.name(), short_name);
        let expected = if short_name == "g24" { PoolState::Active } else { PoolState::Exported };
        assert_eq!(only.state(), expected, "{}", pool.name());
        assert_eq!(found.matching(short_name).count(), 1);
        assert_eq!(found.matching(&only.guid().to_string()).count(), 1);
        assert_eq!(found.matching("nope").count(), 0);
    }
}

#[test]
fn all_labels_of_golden_pools_verify_and_agree() {
    for pool in ReferencePool::all_golden() {
        for image in images(&pool) {
            let labels = read_labels(&device(&image)).expect("labels");
            let labels = labels.map(|label| label.expect("a label"));
            assert!(labels.iter().all(|label| label.trust == LabelTrust::Verified));
            assert!(labels.iter().all(|label| label.config == labels[0].config));
        }
    }
}

#[test]
fn rings_hold_the_uberblocks_that_zdb_shows() {
    let Some(pool) = ReferencePool::golden("g01-default") else { return };
    let device = device(&images(&pool)[0]);
    let slots = read_rings(&device, UberblockRing::of_ashift(12));
    assert!(slots.len() > 8 && slots.len().is_multiple_of(4));
    for slot in &slots {
        let txg = slot.uberblock.txg.get();
        assert_eq!(slot.slot as u64, txg % 32, "txg {txg}");
        assert_eq!(slot.uberblock.version, 5000);
    }
    assert_eq!(read_rings(&device, UberblockRing::of_ashift(9)), []);
}

#[test]
fn an_untouched_boot_environment_is_empty() {
    let Some(pool) = ReferencePool::golden("g01-default") else { return };
    let environment = read_boot_environment(&device(&images(&pool)[0]));
    assert_eq!(environment, Some(BootEnvironment::Grub(Vec::new())));
}

#[test]
fn old_and_damaged_pools_are_found() {
    for pool in ReferencePool::all_openzfs() {
        let sources: Vec<_> = images(&pool).into_iter().map(DeviceSource::Path).collect();
        let found = Discovery::search(&sources, &OpenOptions::new());
        let names: Vec<_> = found.pools().iter().map(|found| found.name()).collect();
        assert_eq!(names, [pool.name()]);
    }
}
