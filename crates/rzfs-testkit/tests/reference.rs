//! The reference pools that are there can be read.

use rzfs_testkit::ReferencePool;

#[test]
fn every_manifest_parses_and_describes_something() {
    for pool in ReferencePool::all_golden().iter().chain(&ReferencePool::all_openzfs()) {
        // OpenZFS refuses this one, so there is nothing to describe.
        if pool.name() == "v999-pool" {
            continue;
        }
        let manifest = pool.manifest().unwrap_or_else(|error| panic!("{}: {error}", pool.name()));
        let entries: usize = manifest.datasets().map(|(_, files)| files.entries.len()).sum();
        if pool.name().starts_with('g') {
            assert!(entries > 0, "{} is empty", pool.name());
        }
    }
}

#[test]
fn images_unpack_once() {
    let Some(pool) = ReferencePool::golden("g20-nofeatures") else { return };
    let images = pool.images().unwrap();
    assert_eq!(images.len(), 1);
    assert_eq!(std::fs::metadata(&images[0]).unwrap().len(), 128 << 20);
    assert_eq!(pool.images().unwrap(), images);
}
