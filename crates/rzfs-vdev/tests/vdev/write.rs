//! Writing: the tree writes the same as these tests' own writer, and it can be read back with as
//! many children lost as there is redundancy.

use crate::damage::layouts;
use crate::pool::{Block, Layout, Pool, assert_readable, child_guid, contents};
use bytes::Bytes;
use proptest::prelude::*;
use rzfs_format::Txg;
use rzfs_testkit::Defect;
use rzfs_vdev::{BlockWrite, Coverage, Durability, TxgSet, VdevError, VdevTree};

fn write(tree: &VdevTree, blocks: &[Block]) -> Vec<Result<Coverage, VdevError>> {
    let write = |block: &Block| BlockWrite {
        dva: block.dva,
        birth: block.birth,
        data: Bytes::from(block.data.clone()),
    };
    tree.write(blocks.iter().map(write).collect())
}

/// Consecutive blocks, written to `pool` by its own writer.
fn blocks(pool: &mut Pool, sizes: &[usize], births: &[u64]) -> Vec<Block> {
    let block = |(seed, (sectors, birth)): (u64, (&usize, &u64))| {
        pool.write(contents(seed, sectors * 512), Txg(*birth))
    };
    (0..).zip(sizes.iter().zip(births.iter().cycle())).map(block).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn devices_get_what_the_layout_says(
        layout in layouts(),
        ashift in 9_u32..13,
        sizes in prop::collection::vec(1_usize..200, 1..12),
        births in prop::collection::vec(15_u64..30, 1..5),
    ) {
        let mut expected = Pool::new(&layout, ashift);
        let blocks = blocks(&mut expected, &sizes, &births);
        let pool = Pool::new(&layout, ashift);
        let tree = pool.open();
        for result in write(&tree, &blocks) {
            prop_assert_eq!(result.unwrap(), Coverage::Full);
        }
        prop_assert!(tree.flush().is_empty());
        for (device, expected) in pool.devices.iter().zip(&expected.devices) {
            prop_assert!(device.pages() == expected.pages());
        }
        assert_readable(&tree, &blocks);
    }

    #[test]
    fn children_may_be_missing_while_blocks_are_written(
        layout in layouts(),
        sizes in prop::collection::vec(1_usize..200, 1..6),
        lost in prop::collection::vec(0_usize..8, 0..4),
        refuses in any::<bool>(),
    ) {
        let mut scratch = Pool::new(&layout, 12);
        let blocks = blocks(&mut scratch, &sizes, &[25]);
        let mut pool = Pool::new(&layout, 12);
        let mut lost: Vec<usize> = lost.iter().map(|child| child % layout.children()).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.truncate(layout.tolerates());
        for child in &lost {
            if refuses {
                pool.devices[*child].damage_all(Defect::Errno(5));
            } else {
                pool.missing.push(*child);
            }
        }
        let tree = pool.open();
        for result in write(&tree, &blocks) {
            prop_assert!(result.is_ok());
        }
        assert_readable(&tree, &blocks);
        let touched = |child: usize| !scratch.devices[child].pages().is_empty();
        for child in 0..layout.children() {
            let lacks = tree.by_guid(child_guid(child)).unwrap().lacks(Txg(25));
            prop_assert_eq!(lacks, lost.contains(&child) && touched(child));
        }
    }
}

#[test]
fn more_losses_than_redundancy_are_errors() {
    let layout = Layout::Raidz { parity: 1, children: 4, expansions: Vec::new(), reflow: None };
    let mut pool = Pool::new(&layout, 9);
    let blocks = blocks(&mut pool, &[64, 64], &[7]);
    pool.missing = vec![0, 2];
    let tree = pool.open();
    let results = write(&tree, &blocks);
    assert!(
        results.iter().all(|result| matches!(result, Err(VdevError::Io { .. }))),
        "{results:?}"
    );
}

#[test]
fn one_bad_sector_fails_only_its_own_block() {
    let layout = Layout::Mirror { children: 2 };
    let mut scratch = Pool::new(&layout, 9);
    let blocks = blocks(&mut scratch, &[8, 8, 8], &[5, 6, 7]);
    let pool = Pool::new(&layout, 9);
    let bad = (4 << 20) + blocks[1].dva.offset() + 512;
    pool.devices[1].damage(bad..bad + 512, Defect::Errno(5));
    let tree = pool.open();
    let results: Vec<Coverage> = write(&tree, &blocks).into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [Coverage::Full, Coverage::Partial, Coverage::Full]);
    let leaf = tree.by_guid(child_guid(1)).unwrap();
    assert!(leaf.lacks(Txg(6)) && leaf.missing_txgs().is_none());
    assert!(tree.make_durable(Durability::Txg(Txg(7))).unwrap().is_empty());
    assert_eq!(leaf.missing_txgs(), Some(TxgSet::from_ranges([(Txg(6), Txg(7))])));
    assert_eq!((leaf.errors().write, tree.by_guid(child_guid(0)).unwrap().errors().write), (1, 0));
    assert_eq!(leaf.io().writes, 2);
    assert_readable(&tree, &blocks);
}

#[test]
fn addresses_are_checked() {
    let pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let tree = pool.open();
    let dva = |offset| rzfs_format::Dva::new(rzfs_format::VdevId(0), offset, 4096, false);
    for (offset, len) in [(512, 512), (1 << 40, 512), (0, 0)] {
        let block = BlockWrite { dva: dva(offset), birth: Txg(9), data: vec![1; len].into() };
        let result = tree.write(vec![block]).remove(0);
        assert!(matches!(result, Err(VdevError::Address { .. })), "{offset} {len}: {result:?}");
    }
    assert!(pool.devices.iter().all(|device| device.pages().is_empty()));
}
