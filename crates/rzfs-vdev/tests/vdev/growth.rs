//! Trees that get more top-level vdevs.

use crate::pool::{Layout, Pool, assert_readable, contents};
use rzfs_blockdev::BlockDevice;
use rzfs_format::{Guid, Txg, VdevId};
use rzfs_testkit::SparseDevice;
use rzfs_vdev::{ConfigError, CurrentTree, LeafEvent, Persistence, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

const SIZE: u64 = 64 << 20;

/// A top-level disk for a position.
fn disk(id: u64, guid: u64) -> VdevConfig {
    let mut disk = VdevConfig::new(VdevKind::File, Guid(guid));
    disk.id = id;
    disk.top.ashift = Some(12);
    disk.top.asize = Some(32 << 20);
    disk
}

fn grown(tree: &VdevTree, tops: Vec<VdevConfig>) -> Result<VdevTree, ConfigError> {
    let device = |top: &VdevConfig| {
        let device: Arc<dyn BlockDevice> = SparseDevice::new(SIZE);
        (top.guid, device)
    };
    let devices: HashMap<_, _> = tops.iter().map(device).collect();
    tree.grown(tops, &devices)
}

#[test]
fn a_grown_tree_has_the_old_vdevs_and_the_new() {
    let mut pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let block = pool.write(contents(1, 4096), Txg(5));
    let old = pool.open();
    let before = old.top_levels().count() as u64;
    let new = grown(&old, vec![disk(before, 901), disk(before + 1, 902)]).unwrap();
    assert_eq!(new.top_levels().count() as u64, before + 2);
    assert_eq!(old.top_levels().count() as u64, before, "the old tree stays as it is");
    assert_readable(&new, std::slice::from_ref(&block));
    let sum = old.guid_sum().wrapping_add(901 + 902);
    assert_eq!(new.guid_sum(), sum);
    let added = new.by_guid(Guid(902)).unwrap();
    assert_eq!(added.vdev_id(), Some(VdevId(u32::try_from(before).unwrap() + 1)));
    assert_eq!(added.parent().unwrap().guid(), old.root().guid());
    assert_eq!(new.config().children.len() as u64, before + 2);
}

#[test]
fn states_marks_and_counts_are_those_of_both_trees() {
    let pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let old = pool.open();
    let new = grown(&old, vec![disk(old.top_levels().count() as u64, 901)]).unwrap();
    let leaf = old.leaves().next().unwrap().guid();
    old.apply(leaf, LeafEvent::TakenOffline, Persistence::Persistent);
    assert_eq!(new.by_guid(leaf).unwrap().health().to_string(), "OFFLINE");
    assert_eq!(new.dirty_configs(), old.dirty_configs());
    assert!(!new.dirty_configs().is_empty());
    old.set_root_guid(Guid(77));
    assert_eq!(new.root().guid(), Guid(77));
}

#[test]
fn vdevs_that_do_not_fit_are_refused() {
    let pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let tree = pool.open();
    let next = tree.top_levels().count() as u64;
    assert!(grown(&tree, vec![disk(next + 1, 901)]).is_err(), "a gap");
    let taken = tree.leaves().next().unwrap().guid().get();
    assert!(grown(&tree, vec![disk(next, taken)]).is_err(), "a guid twice");
}

#[test]
fn whoever_has_taken_a_tree_keeps_it() {
    let pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let current = CurrentTree::new(Arc::new(pool.open()));
    let taken = current.get();
    let next = taken.top_levels().count() as u64;
    current.replace(Arc::new(grown(&taken, vec![disk(next, 901)]).unwrap()));
    assert_eq!(taken.top_levels().count() as u64, next);
    assert_eq!(current.get().top_levels().count() as u64, next + 1);
}
