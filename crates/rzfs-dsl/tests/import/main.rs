//! Finding, listing and opening pools, compared with OpenZFS's output for the same pools.

mod discovery;
mod golden;
mod listing;
mod overlay;
mod recovery;

use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, DiscoveredPool, Discovery, HostIdentity, ImportOptions};
use rzfs_testkit::ReferencePool;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn images(pool: &ReferencePool) -> Vec<PathBuf> {
    pool.images().expect("images")
}

fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(path, &OpenOptions::new()).expect("an image"))
}

/// The only pool on these devices.
fn discover(sources: Vec<DeviceSource>) -> DiscoveredPool {
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [only] = found.pools() else { panic!("not one pool: {:?}", found.pools()) };
    only.clone()
}

fn discover_images(pool: &ReferencePool) -> DiscoveredPool {
    discover(images(pool).into_iter().map(DeviceSource::Path).collect())
}

/// Options of a host that owns all pools.
fn options(discovered: &DiscoveredPool) -> ImportOptions {
    let id = u32::try_from(discovered.label().host.id).expect("a host id");
    ImportOptions { host: HostIdentity { id, name: None }, ..ImportOptions::default() }
}

fn import(discovered: &DiscoveredPool) -> Pool {
    Pool::import(discovered, &options(discovered)).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The lines of a text about a reference pool, split at tabs.
fn table(pool: &ReferencePool, name: &str) -> Vec<Vec<String>> {
    let text = pool.text(name).map(|text| String::from_utf8(text).expect("UTF-8"));
    let rows = text.unwrap_or_default();
    rows.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// The value of a pool property shown by OpenZFS.
fn property(pool: &ReferencePool, name: &str) -> Option<String> {
    let mut rows = table(pool, "zpool").into_iter();
    rows.find(|row| row.get(1).is_some_and(|known| known == name))?.into_iter().nth(2)
}
