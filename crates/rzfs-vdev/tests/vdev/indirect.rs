//! Removed vdevs: blocks through mappings, split blocks, chains of removals.

use crate::pool::{Block, DEVICE, LEAF, assert_readable, child_guid, contents, leaf_config, read};
use rzfs_blockdev::BlockDevice;
use rzfs_format::indirect::{BirthEntry, MappingEntry};
use rzfs_format::{Dva, Guid, Txg, VdevId};
use rzfs_testkit::{Defect, SparseDevice};
use rzfs_vdev::{IndirectMapping, TreeOptions, TxgSet, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

/// Vdevs 0 and 1 were removed; 2 is a mirror of devices 0 and 1, and 3 one of 2 and 3.
struct Removed {
    devices: Vec<Arc<SparseDevice>>,
}

fn sized(mut config: VdevConfig) -> VdevConfig {
    config.top.ashift = Some(12);
    config.top.asize = Some(LEAF);
    config
}

impl Removed {
    fn new() -> Self {
        Self { devices: (0..4).map(|_| SparseDevice::new(DEVICE)).collect() }
    }

    fn open(&self) -> VdevTree {
        let removed = |guid| sized(VdevConfig::new(VdevKind::Indirect, Guid(guid)));
        let mirror = |guid, a, b| {
            let leaves = [leaf_config(a), leaf_config(b)];
            sized(VdevConfig::new(VdevKind::Mirror, Guid(guid)).with_children(leaves))
        };
        let tops = [removed(10), removed(11), mirror(12, 0, 1), mirror(13, 2, 3)];
        let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children(tops);
        let devices: HashMap<Guid, Arc<dyn BlockDevice>> = (0..)
            .zip(&self.devices)
            .map(|(child, device)| (child_guid(child), Arc::clone(device) as Arc<dyn BlockDevice>))
            .collect();
        VdevTree::open(root, &devices, TreeOptions::default()).unwrap()
    }

    /// Writes to both sides of mirror 2 or 3.
    fn write(&self, vdev: usize, offset: u64, bytes: &[u8]) {
        let first = (vdev - 2) * 2;
        for device in &self.devices[first..first + 2] {
            device.write((4 << 20) + offset, bytes);
        }
    }
}

fn entry(source: u64, len: u64, vdev: u32, offset: u64) -> MappingEntry {
    MappingEntry::new(source, Dva::new(VdevId(vdev), offset, len, false))
}

fn block(vdev: u32, offset: u64, data: Vec<u8>) -> Block {
    let asize = (data.len() as u64).next_multiple_of(4096);
    Block { dva: Dva::new(VdevId(vdev), offset, asize, false), birth: Txg(10), data }
}

/// A block of vdev 0 in one piece, one in two pieces, and one with a piece moved to vdev 1, which
/// was removed later.
fn three_blocks(pool: &Removed, tree: &VdevTree) -> Vec<Block> {
    let whole = contents(1, 10_000);
    let split = contents(2, 0x4000);
    let chained = contents(3, 0x6000);
    let mut padded = whole.clone();
    padded.resize(0x3000, 0);
    pool.write(2, 0x10_0000, &padded);
    pool.write(2, 0x20_0000, &split[..0x1000]);
    pool.write(3, 0x30_0000, &split[0x1000..]);
    pool.write(3, 0x40_0000, &chained[..0x2000]);
    pool.write(2, 0x50_0000, &chained[0x2000..0x5000]);
    pool.write(3, 0x60_0000, &chained[0x5000..]);
    let first = vec![
        entry(0x1000, 0x3000, 2, 0x10_0000),
        entry(0x8000, 0x1000, 2, 0x20_0000),
        entry(0x9000, 0x3000, 3, 0x30_0000),
        entry(0x2_0000, 0x2000, 3, 0x40_0000),
        entry(0x2_2000, 0x4000, 1, 0x7000),
    ];
    let second = vec![entry(0x7000, 0x3000, 2, 0x50_0000), entry(0xa000, 0x1000, 3, 0x60_0000)];
    tree.set_mapping(VdevId(0), IndirectMapping::new(first, vec![]).unwrap()).unwrap();
    tree.set_mapping(VdevId(1), IndirectMapping::new(second, vec![]).unwrap()).unwrap();
    vec![block(0, 0x1000, whole), block(0, 0x8000, split), block(0, 0x2_0000, chained)]
}

#[test]
fn blocks_are_found_where_they_were_copied_to() {
    let pool = Removed::new();
    let tree = pool.open();
    let blocks = three_blocks(&pool, &tree);
    assert_readable(&tree, &blocks);
    assert_eq!(tree.health().to_string(), "ONLINE");
}

#[test]
fn each_piece_of_a_split_block_can_come_from_another_side() {
    let pool = Removed::new();
    let tree = pool.open();
    let blocks = three_blocks(&pool, &tree);
    pool.devices[0].damage((4 << 20) + 0x20_0000..(4 << 20) + 0x20_1000, Defect::Garbage);
    pool.devices[3].damage((4 << 20) + 0x30_0000..(4 << 20) + 0x30_3000, Defect::Garbage);
    pool.devices[1].damage((4 << 20) + 0x50_0000..(4 << 20) + 0x50_1000, Defect::Garbage);
    pool.devices[2].damage((4 << 20) + 0x60_0000..(4 << 20) + 0x60_1000, Defect::Garbage);
    pool.devices[3].damage((4 << 20) + 0x40_0000..(4 << 20) + 0x40_1000, Defect::Errno(5));
    for _ in 0..4 {
        assert_readable(&tree, &blocks);
    }
    pool.devices[1].damage((4 << 20) + 0x20_0000..(4 << 20) + 0x20_1000, Defect::Garbage);
    let results = read(&tree, &blocks);
    assert!(results[0].is_ok() && results[2].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err().errno(), 52);
}

#[test]
fn the_time_of_the_copy_decides_who_lacks_it() {
    let pool = Removed::new();
    let tree = pool.open();
    let data = contents(1, 0x1000);
    pool.write(2, 0x10_0000, &data);
    let births = vec![BirthEntry { end: 0x10_0000, birth: Txg(77) }];
    let mapping = IndirectMapping::new(vec![entry(0x1000, 0x1000, 2, 0x10_0000)], births).unwrap();
    tree.set_mapping(VdevId(0), mapping).unwrap();
    // The block is of txg 10, but its copy of 77: device 0 lacks it.
    tree.set_missing_txgs(child_guid(0), TxgSet::from_ranges([(Txg(70), Txg(80))]));
    tree.set_missing_txgs(child_guid(1), TxgSet::from_ranges([(Txg(5), Txg(20))]));
    assert_readable(&tree, &[block(0, 0x1000, data)]);
    assert!(pool.devices[0].take_reads().is_empty());
}

#[test]
fn what_no_mapping_has_is_an_error() {
    let pool = Removed::new();
    let tree = pool.open();
    let errno = |offset| {
        let wanted = block(0, offset, vec![0; 0x2000]);
        read(&tree, &[wanted]).remove(0).map_err(|error| error.errno())
    };
    assert_eq!(errno(0x1000), Err(5));
    // Vdev 0 leads to vdev 1 and back.
    let there = IndirectMapping::new(vec![entry(0x1000, 0x2000, 1, 0x1000)], vec![]).unwrap();
    let back = IndirectMapping::new(vec![entry(0x1000, 0x2000, 0, 0x1000)], vec![]).unwrap();
    tree.set_mapping(VdevId(0), there.clone()).unwrap();
    tree.set_mapping(VdevId(1), back).unwrap();
    assert_eq!(errno(0x1000), Err(5));
    assert_eq!(errno(0x2000), Err(5));
    assert!(tree.set_mapping(VdevId(0), there.clone()).is_err());
    assert!(tree.set_mapping(VdevId(2), there.clone()).is_err());
    assert!(tree.set_mapping(VdevId(9), there).is_err());
}
