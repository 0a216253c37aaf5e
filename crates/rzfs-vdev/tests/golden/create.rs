//! New vdevs compared with OpenZFS's: the arguments that created golden pools yield the vdev trees
//! of their labels.

use crate::images::ImagePool;
use rzfs_blockdev::{Access, FileIdentity};
use rzfs_format::Txg;
use rzfs_testkit::SparseDevice;
use rzfs_vdev::create::{NewDevice, PlanOptions, TopSpec, VdevSpec};
use rzfs_vdev::{VdevConfig, VdevKind};
use std::collections::VecDeque;

/// All guids of a vdev, itself first.
fn guids(vdev: &VdevConfig, found: &mut VecDeque<u64>) {
    found.push_back(vdev.guid.get());
    vdev.children.iter().for_each(|child| guids(child, found));
}

fn check(pool: &str, words: &str, size: u64, ashift: u64) {
    let Some(images) = ImagePool::find(pool) else { return };
    let mut random = VecDeque::new();
    let expected = images.top_levels();
    expected.iter().for_each(|top| guids(top, &mut random));
    let device = |name: &String| NewDevice {
        path: format!("/tmp/v/{name}.img"),
        kind: VdevKind::File,
        identity: FileIdentity::RegularFile { device: 0, inode: 0 },
        access: Access::ReadWrite,
        device: SparseDevice::new(size),
    };
    let words: Vec<&str> = words.split(' ').collect();
    let spec = VdevSpec::parse(&words).unwrap();
    let tops = spec.tops.iter().map(|top| TopSpec {
        layout: top.layout,
        bias: top.bias,
        devices: top.devices.iter().map(device).collect(),
    });
    let spec = VdevSpec { tops: tops.collect(), spares: Vec::new(), caches: Vec::new() };
    let options = PlanOptions { ashift, create_txg: Txg(4), ..PlanOptions::default() };
    let mut extra = 1;
    let mut next = || {
        random.pop_front().unwrap_or_else(|| {
            extra += 1;
            extra
        })
    };
    let mut new = spec.plan(&options, &mut next).unwrap();
    new.take_biases();
    for (planned, expected) in new.tops.iter_mut().zip(&expected) {
        // These are set by the pool.
        planned.top.metaslab_array = expected.top.metaslab_array;
        planned.top.metaslab_shift = expected.top.metaslab_shift;
    }
    assert_eq!(new.tops, expected, "{pool}");
}

#[test]
fn vdevs_are_planned_as_openzfs_plans_them() {
    let mib = 1 << 20;
    check("g01-default", "0", 256 * mib, 12);
    check("g04-mirror3", "mirror 0 1 2", 96 * mib, 12);
    check("g05-raidz1", "raidz 0 1 2", 96 * mib, 12);
    check("g06-raidz2", "raidz2 0 1 2 3 4", 96 * mib, 0);
    check("g07-raidz3", "raidz3 0 1 2 3 4 5 6", 96 * mib, 12);
    check("g08-draid2", "draid2:4d:9c:1s 0 1 2 3 4 5 6 7 8", 128 * mib, 12);
    check("g09-stripe", "0 1 2", 96 * mib, 12);
    check("g13-classes", "mirror 0 1 special mirror 2 3 log mirror 4 5 dedup 8", 96 * mib, 12);
}
