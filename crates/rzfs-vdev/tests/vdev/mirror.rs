//! Mirrors: which side is read, and what happens when it is wrong.

use crate::pool::{Layout, Pool, assert_readable, child_guid, contents, read};
use rzfs_format::Txg;
use rzfs_testkit::Defect;
use rzfs_vdev::{TxgSet, VdevError};

fn mirror(children: usize) -> Pool {
    Pool::new(&Layout::Mirror { children }, 12)
}

#[test]
fn a_side_that_lacks_the_block_is_read_last() {
    let mut pool = mirror(2);
    let blocks: Vec<_> = (0..8).map(|seed| pool.write(contents(seed, 4096), Txg(30))).collect();
    let tree = pool.open();
    let missing = TxgSet::from_ranges([(Txg(25), Txg(35))]);
    assert!(tree.set_missing_txgs(child_guid(0), missing));
    pool.devices[0].damage_all(Defect::Garbage);
    assert_readable(&tree, &blocks);
    assert!(pool.devices[0].take_reads().is_empty());
    assert!(tree.leaves().all(|leaf| leaf.errors() == Default::default()));
}

#[test]
fn a_side_that_is_said_to_lack_the_block_is_better_than_nothing() {
    let mut pool = mirror(2);
    let blocks = [pool.write(contents(1, 10_000), Txg(30))];
    pool.missing.push(1);
    let tree = pool.open();
    tree.set_missing_txgs(child_guid(0), TxgSet::all());
    assert_readable(&tree, &blocks);
}

#[test]
fn a_side_that_waits_for_its_resilver_is_read_last() {
    let mut pool = mirror(2);
    pool.config.children[0].children[1].leaf.resilver_txg = Some(Txg(50));
    let blocks: Vec<_> = (0..8).map(|seed| pool.write(contents(seed, 4096), Txg(30))).collect();
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    assert!(pool.devices[1].take_reads().is_empty());
    // Its log only has later txgs: then it serves this one.
    tree.set_missing_txgs(child_guid(1), TxgSet::from_ranges([(Txg(40), Txg(60))]));
    tree.set_missing_txgs(child_guid(0), TxgSet::all());
    pool.devices[0].take_reads();
    assert_readable(&tree, &blocks);
    assert!(pool.devices[0].take_reads().is_empty());
}

#[test]
fn the_side_with_the_wrong_data_is_counted_and_the_other_is_read() {
    for bad in [0, 1] {
        let mut pool = mirror(2);
        let blocks: Vec<_> = (0..4).map(|seed| pool.write(contents(seed, 8192), Txg(10))).collect();
        pool.devices[bad].damage_all(Defect::Garbage);
        let tree = pool.open();
        tree.set_missing_txgs(child_guid(1 - bad), TxgSet::new());
        for _ in 0..4 {
            assert_readable(&tree, &blocks);
        }
        assert!(tree.by_guid(child_guid(bad)).unwrap().errors().checksum > 0);
        let good = tree.by_guid(child_guid(1 - bad)).unwrap().errors();
        assert_eq!(good, Default::default());
    }
}

#[test]
fn both_sides_share_the_work() {
    let mut pool = mirror(2);
    pool.tunables.aggregation_limit_non_rotating = 0;
    let blocks: Vec<_> = (0..64).map(|seed| pool.write(contents(seed, 16_384), Txg(10))).collect();
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    let reads: Vec<usize> = pool.devices.iter().map(|device| device.take_reads().len()).collect();
    assert!(reads.iter().all(|reads| *reads >= 16), "{reads:?}");
}

#[test]
fn neighbours_are_read_together() {
    let mut pool = mirror(1);
    let blocks: Vec<_> = (0..32).map(|seed| pool.write(contents(seed, 4096), Txg(10))).collect();
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    let reads = pool.devices[0].take_reads();
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0], 4 << 20..(4 << 20) + (32 << 12));
}

#[test]
fn errors_are_told_apart() {
    let mut pool = mirror(2);
    let blocks = [pool.write(contents(1, 4096), Txg(10))];
    let outcome = |pool: &Pool| read(&pool.open(), &blocks).remove(0).unwrap_err();

    pool.devices[0].damage_all(Defect::Garbage);
    pool.devices[1].damage_all(Defect::Garbage);
    let error = outcome(&pool);
    assert!(matches!(error, VdevError::Checksum { .. }), "{error}");
    assert_eq!(error.errno(), 52);

    pool.missing.push(0);
    pool.missing.push(1);
    let error = outcome(&pool);
    assert!(matches!(error, VdevError::Unavailable { .. }), "{error}");
    assert_eq!(error.errno(), 6);

    pool.missing.clear();
    pool.devices[1].damage_all(Defect::Errno(5));
    let error = outcome(&pool);
    assert!(matches!(error, VdevError::Io { .. }), "{error}");
    assert_eq!(error.errno(), 5);
}

#[test]
fn all_copies_can_be_looked_at() {
    let mut pool = mirror(3);
    let block = pool.write(contents(1, 4096), Txg(10));
    pool.devices[1].damage_all(Defect::Garbage);
    pool.devices[2].damage_all(Defect::Errno(5));
    let tree = pool.open();
    let copies = tree.read_copies(block.dva, 4096, Txg(10)).unwrap();
    assert_eq!(copies.len(), 3);
    for copy in copies {
        match copy.leaf.get() - 100 {
            0 => assert_eq!(copy.data.unwrap(), block.data),
            1 => assert_ne!(copy.data.unwrap(), block.data),
            _ => assert_eq!(copy.data.unwrap_err().errno(), 5),
        }
    }
}

#[test]
fn a_tree_is_read_by_many_threads_at_once() {
    let mut pool = mirror(2);
    let blocks: Vec<_> = (0..64).map(|seed| pool.write(contents(seed, 4096), Txg(10))).collect();
    pool.devices[0].damage((4 << 20) + 0x8000..(4 << 20) + 0x1_0000, Defect::Garbage);
    let tree = pool.open();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_readable(&tree, &blocks));
        }
    });
    assert_eq!(tree.by_guid(child_guid(1)).unwrap().errors(), Default::default());
}
