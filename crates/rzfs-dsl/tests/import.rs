//! Opening pools that OpenZFS made.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, DiscoveredPool, Discovery, HostCheck, ImportOptions};
use rzfs_testkit::ReferencePool;

fn discover(pool: &ReferencePool) -> DiscoveredPool {
    let images = pool.images().expect("images");
    let sources: Vec<_> = images.into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [only] = found.pools() else { panic!("{}: {:?}", pool.name(), found.pools()) };
    only.clone()
}

fn options() -> ImportOptions {
    ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() }
}

#[test]
fn every_golden_pool_can_be_imported() {
    for golden in ReferencePool::all_golden() {
        let pool = match Pool::import(&discover(&golden), &options()) {
            Ok(pool) => pool,
            Err(failure) => panic!("{failure}"),
        };
        println!(
            "{} txg {} {} errors {:?} space {:?}",
            pool.name(),
            pool.txg(),
            pool.health(),
            pool.errors().unwrap(),
            pool.space().unwrap()
        );
    }
}
