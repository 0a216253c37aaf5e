//! `replacing`, `spare` and distributed spares below other vdevs.

use crate::pool::{
    Block, DEVICE, Layout, Pool, assert_readable, child_guid, contents, leaf_config, read,
};
use rzfs_format::nvlist::NvString;
use rzfs_format::{Guid, Txg};
use rzfs_testkit::{Defect, SparseDevice};
use rzfs_vdev::draid::{DraidGeometry, DraidShape};
use rzfs_vdev::{TxgSet, VdevConfig, VdevKind};
use std::sync::Arc;

/// Replaces a child by a pair of `kind`; the second one is a new device, with the next number.
fn pair_up(pool: &mut Pool, child: usize, kind: VdevKind) -> usize {
    let new = pool.devices.len();
    let top = &mut pool.config.children[0];
    let original = top.children[child].clone();
    let mut pair =
        VdevConfig::new(kind, Guid(900 + child as u64)).with_children([original, leaf_config(new)]);
    pair.id = child as u64;
    top.children[child] = pair;
    pool.devices.push(SparseDevice::new(DEVICE));
    new
}

/// Copies the contents of a device to another.
fn copy(from: &Arc<SparseDevice>, to: &Arc<SparseDevice>, len: usize) {
    let bytes = rzfs_blockdev::read_exact_at(from.as_ref(), 4 << 20, len).unwrap();
    to.write(4 << 20, &bytes);
    from.take_reads();
}

fn raidz1(blocks: usize) -> (Pool, Vec<Block>) {
    let layout = Layout::Raidz { parity: 1, children: 4, expansions: Vec::new(), reflow: None };
    let mut pool = Pool::new(&layout, 12);
    let blocks =
        (0..blocks as u64).map(|seed| pool.write(contents(seed, 50_000), Txg(10))).collect();
    (pool, blocks)
}

#[test]
fn either_side_of_a_replacement_will_do() {
    for lost in [0, 1] {
        let (mut pool, blocks) = raidz1(4);
        let new = pair_up(&mut pool, 1, VdevKind::Replacing);
        copy(&pool.devices[1], &pool.devices[new], 1 << 20);
        pool.missing.push([1, new][lost]);
        // With another child gone there is no parity to help.
        pool.missing.push(3);
        assert_readable(&pool.open(), &blocks);
    }
}

#[test]
fn a_new_device_without_data_is_not_asked() {
    let (mut pool, blocks) = raidz1(4);
    let new = pair_up(&mut pool, 2, VdevKind::Spare);
    let tree = pool.open();
    tree.set_missing_txgs(child_guid(new), TxgSet::all());
    assert_readable(&tree, &blocks);
    assert!(pool.devices[new].take_reads().is_empty());
    assert!(tree.leaves().all(|leaf| leaf.errors().checksum == 0));
}

#[test]
fn the_copy_that_fits_the_checksum_is_found_without_parity() {
    // The old device has silent damage, the new one is good, and another child is missing: only
    // the combination of the right copy with parity is the block.
    for bad_is_old in [true, false] {
        let (mut pool, blocks) = raidz1(6);
        let new = pair_up(&mut pool, 1, VdevKind::Replacing);
        copy(&pool.devices[1], &pool.devices[new], 1 << 20);
        let bad = if bad_is_old { 1 } else { new };
        pool.devices[bad].damage_all(Defect::Garbage);
        pool.missing.push(3);
        let tree = pool.open();
        assert_readable(&tree, &blocks);
        assert_readable(&tree, &blocks);
        let wrong: Vec<Guid> = tree
            .leaves()
            .filter(|leaf| leaf.errors().checksum > 0)
            .map(|leaf| leaf.guid())
            .collect();
        assert!(wrong.iter().all(|guid| *guid == child_guid(bad)), "{wrong:?}");
    }
}

/// A dRAID whose child 2 is replaced by its distributed spare.
fn draid_on_spare() -> (Pool, Vec<Block>, DraidGeometry) {
    let layout = Layout::Draid { parity: 2, data: 4, children: 9, spares: 1 };
    let mut pool = Pool::new(&layout, 12);
    // Slices are 384 MiB of the vdev: the blocks lie in the first one and in the second.
    let mut blocks = Vec::new();
    for (seed, start) in [(0, 0), (8, 0x5ff_a000), (16, 0x1800_0000)] {
        pool.next = start;
        for seed in seed..seed + 8 {
            blocks.push(pool.write(contents(seed, 70_000), Txg(10)));
        }
    }
    let shape = DraidShape { ashift: 12, parity: 2, data: 4, spares: 1, groups: 4, children: 9 };
    let geometry = DraidGeometry::new(shape).unwrap();

    let mut spare = VdevConfig::new(VdevKind::DistributedSpare, Guid(800));
    spare.top_guid = Some(Guid(2));
    spare.leaf.spare_id = Some(0);
    spare.hints.path = Some(NvString::new("draid2-0-0").unwrap());
    let top = &mut pool.config.children[0];
    let mut pair =
        VdevConfig::new(VdevKind::Spare, Guid(900)).with_children([top.children[2].clone(), spare]);
    pair.id = 2;
    top.children[2] = pair;
    (pool, blocks, geometry)
}

/// Performs the rebuild: copies child 2 to the spare's location.
fn rebuild(pool: &Pool, geometry: &DraidGeometry) {
    let row = 16 << 20;
    for range in [0..1 << 18, row - (1 << 14)..row + (1 << 18), 3 * row..3 * row + (1 << 18)] {
        for offset in range.step_by(4096) {
            let from = pool.devices[2].as_ref();
            let bytes = rzfs_blockdev::read_exact_at(from, (4 << 20) + offset, 4096).unwrap();
            if bytes.iter().any(|byte| *byte != 0) {
                let device = geometry.spare_device(0, offset).unwrap();
                pool.devices[device].write((4 << 20) + offset, &bytes);
            }
        }
    }
    pool.devices.iter().for_each(|device| drop(device.take_reads()));
}

#[test]
fn a_distributed_spare_stands_in_for_its_child() {
    let (mut pool, blocks, geometry) = draid_on_spare();
    rebuild(&pool, &geometry);
    pool.missing.push(2);
    let tree = pool.open();
    assert_eq!(tree.health().to_string(), "DEGRADED");
    assert_readable(&tree, &blocks);
    let read_parity = pool.devices.iter().flat_map(|device| device.take_reads()).count();
    assert!(read_parity > 0);
    // The redundancy is the same as with the child.
    for lost in [[0, 5], [7, 8], [3, 4]] {
        pool.missing = vec![2, lost[0], lost[1]];
        assert_readable(&pool.open(), &blocks);
    }
}

#[test]
fn a_distributed_spare_that_is_not_rebuilt_is_not_asked() {
    let (mut pool, blocks, _) = draid_on_spare();
    pool.missing = vec![2, 0];
    let tree = pool.open();
    tree.set_missing_txgs(Guid(800), TxgSet::all());
    assert_readable(&tree, &blocks);
    assert!(tree.leaves().all(|leaf| leaf.errors().checksum == 0));
}

#[test]
fn spares_of_spares_end() {
    // Two children on spares that refer to each other's dRAID: resolution must stop.
    let (mut pool, blocks, _) = draid_on_spare();
    for child in [0, 1, 3] {
        let top = &mut pool.config.children[0];
        let mut spare = top.children[2].children[1].clone();
        spare.guid = Guid(810 + child as u64);
        let mut pair = VdevConfig::new(VdevKind::Spare, Guid(910 + child as u64))
            .with_children([top.children[child].clone(), spare]);
        pair.id = child as u64;
        top.children[child] = pair;
    }
    pool.missing = vec![0, 1, 2, 3];
    let results = read(&pool.open(), &blocks);
    // Group 0 has lost three columns, the group of the last blocks two.
    assert!(results[..8].iter().all(Result::is_err));
    assert!(results[16..].iter().all(Result::is_ok));
}

/// A mirror of two raidz1 vdevs of three devices each, with the same contents.
fn mirror_of_raidz() -> (Pool, Vec<Block>) {
    let layout = Layout::Raidz { parity: 1, children: 3, expansions: Vec::new(), reflow: None };
    let (mut one, mut two) = (Pool::new(&layout, 12), Pool::new(&layout, 12));
    let write = |pool: &mut Pool, seed| pool.write(contents(seed, 30_000), Txg(10));
    let blocks: Vec<Block> = (0..6).map(|seed| write(&mut one, seed)).collect();
    (0..6).for_each(|seed| drop(write(&mut two, seed)));
    let side = |guid, first: usize, raidz: &VdevConfig| {
        let mut side = VdevConfig::new(VdevKind::Raidz, Guid(guid))
            .with_children((first..first + 3).map(leaf_config));
        side.nparity = raidz.nparity;
        side
    };
    let raidz = one.config.children.remove(0);
    let sides = [side(20, 0, &raidz), side(21, 3, &raidz)];
    let mut mirror = VdevConfig::new(VdevKind::Mirror, Guid(2)).with_children(sides);
    mirror.top = raidz.top;
    one.config = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([mirror]);
    one.devices.append(&mut two.devices);
    (one, blocks)
}

#[test]
fn a_side_of_a_mirror_can_be_a_raidz() {
    let (mut pool, blocks) = mirror_of_raidz();
    let tree = pool.open();
    let asize = tree.allocated_size(rzfs_format::VdevId(0), 30_000, Txg(10));
    assert_eq!(asize, Some(blocks[0].dva.asize()));
    assert_readable(&tree, &blocks);

    pool.devices[0].damage_all(Defect::Garbage);
    pool.devices[1].damage_all(Defect::Garbage);
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    assert!((0..3).any(|child| tree.by_guid(child_guid(child)).unwrap().errors().checksum > 0));
    assert!((3..6).all(|child| tree.by_guid(child_guid(child)).unwrap().errors().checksum == 0));
    assert!(tree.top_levels().all(|top| top.errors().checksum == 0));

    // The other side has lost one device, but is still the better one.
    pool.missing = vec![5];
    assert_readable(&pool.open(), &blocks);
    pool.missing = vec![4, 5];
    assert!(read(&pool.open(), &blocks).iter().any(Result::is_err));
}
