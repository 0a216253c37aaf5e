//! Owed writes: refused by leaves, and repeated later.

use crate::dirty_times::Objects;
use crate::pool::{Block, Layout, Pool, assert_readable, child_guid, contents};
use rzfs_format::{Txg, VdevId};
use rzfs_testkit::Defect;
use rzfs_vdev::{
    BlockWrite, Durability, LeafEvent, LeafFailure, NotDurable, Persistence, TxgSet, VdevTree,
};

const TXG: Txg = Txg(7);
const EIO: Defect = Defect::Errno(5);
const ENXIO: Defect = Defect::Errno(6);

/// A pool, and the expected blocks: written by another one of the same layout.
struct World {
    plan: Pool,
    pool: Pool,
    tree: VdevTree,
    blocks: Vec<Block>,
}

impl World {
    fn new(layout: &Layout) -> Self {
        let (plan, pool) = (Pool::new(layout, 12), Pool::new(layout, 12));
        let tree = pool.open();
        Self { plan, pool, tree, blocks: Vec::new() }
    }

    fn raidz(parity: usize, children: usize) -> Self {
        Self::new(&Layout::Raidz { parity, children, expansions: Vec::new(), reflow: None })
    }

    /// Writes a block of this many sectors; returns whether it can be read back.
    fn write(&mut self, sectors: usize) -> bool {
        let block = self.plan.write(contents(self.blocks.len() as u64, sectors * 512), TXG);
        let write = BlockWrite { dva: block.dva, birth: TXG, data: block.data.clone().into() };
        self.blocks.push(block);
        self.tree.write(vec![write]).iter().all(Result::is_ok)
    }

    /// Writes a block refused by a child.
    fn write_without(&mut self, child: usize) -> bool {
        self.pool.devices[child].damage(4 << 20..1 << 27, EIO);
        let is_written = self.write(64);
        self.pool.devices[child].take_damage();
        is_written
    }

    /// Makes a device disappear while a block is written.
    fn unplug(&mut self, child: usize) -> bool {
        self.pool.devices[child].damage_all(ENXIO);
        self.write(64)
    }

    fn plug_in(&self, child: usize) {
        self.pool.devices[child].take_damage();
        let event = LeafEvent::Opened { degraded: false };
        self.tree.apply(child_guid(child), event, Persistence::Persistent);
    }

    fn log(&self) -> Result<Vec<LeafFailure>, NotDurable> {
        let vdevs = [VdevId(0)].into();
        self.tree.make_durable(Durability::Records { since: TXG, vdevs: &vdevs })
    }

    fn commit(&self) -> Result<Vec<LeafFailure>, NotDurable> {
        self.tree.make_durable(Durability::Txg(TXG))
    }

    /// Whether a child may lack written data, as far as readers know.
    fn lacks(&self, child: usize) -> bool {
        self.tree.by_guid(child_guid(child)).unwrap().lacks(TXG)
    }

    /// Bytes of all blocks.
    fn written(&self) -> usize {
        self.blocks.iter().map(|block| block.data.len()).sum()
    }

    /// The children recorded as lacking something.
    fn lacking(&self) -> Vec<usize> {
        let lacks = |child: &usize| {
            let leaf = self.tree.by_guid(child_guid(*child)).unwrap();
            leaf.missing_txgs().is_some_and(|missing| !missing.is_empty())
        };
        (0..self.pool.devices.len()).filter(lacks).collect()
    }

    fn assert_everything_is_everywhere(&self) {
        for (device, expected) in self.pool.devices.iter().zip(&self.plan.devices) {
            assert!(device.pages() == expected.pages());
        }
    }
}

#[test]
fn leaves_that_fail_for_a_moment_one_after_the_other_lack_nothing() {
    let mut world = World::raidz(2, 4);
    assert!(world.write(64));
    assert!(world.unplug(3));
    assert_eq!(world.log().unwrap().len(), 1);
    world.plug_in(3);
    for child in 0..3 {
        assert!(world.write_without(child));
        assert_readable(&world.tree, &world.blocks);
    }
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), []);
    world.assert_everything_is_everywhere();
}

#[test]
fn a_leaf_that_is_away_when_a_txg_is_committed_lacks_it_and_what_comes_then() {
    let mut world = World::new(&Layout::Mirror { children: 2 });
    assert!(world.write(64));
    assert!(world.unplug(1));
    assert_eq!(world.lacking(), []);
    assert_eq!(world.commit().unwrap().len(), 1);
    assert_eq!(world.lacking(), [1]);
    // It is no longer waited for.
    assert!(world.write(64));
    assert!(world.log().unwrap().is_empty());
}

#[test]
fn leaves_that_refuse_different_blocks_for_good_do_not_stop_a_txg() {
    let mut world = World::raidz(1, 3);
    for child in 0..2 {
        let start = (4 << 20) + (world.plan.next / 3);
        world.pool.devices[child].damage(start..start + 4096, EIO);
        assert!(world.write(64));
    }
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), [0, 1]);
    assert_readable(&world.tree, &world.blocks);
}

#[test]
fn what_leaves_may_lack_at_the_commit_is_stored_before_it_and_taken_back_if_they_do_not() {
    let mut world = World::raidz(1, 3);
    for child in 0..2 {
        assert!(world.write(64));
        assert!(world.unplug(child));
        world.tree.settle_debts();
        world.plug_in(child);
    }
    let mut objects = Objects::default();
    assert!(world.tree.store_dirty_time_logs(&mut objects).unwrap());
    let txg = TxgSet::from_ranges([(TXG, TXG.next())]);
    assert_eq!(objects.contents.values().cloned().collect::<Vec<_>>(), vec![txg; 2]);
    world.pool.devices[1].damage(4 << 20..1 << 27, EIO);
    world.tree.settle_debts();
    assert!(!world.tree.has_changed_dirty_times(), "passes die out");
    world.pool.devices[1].take_damage();
    assert_eq!(world.lacking(), []);
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), []);
    assert!(world.tree.store_dirty_time_logs(&mut objects).unwrap());
    assert!(objects.contents.values().all(TxgSet::is_empty));
}

#[test]
fn what_is_relied_on_is_kept_while_another_leaf_owes_something() {
    for bytes in [0, 64 << 20] {
        let mut world = World::raidz(1, 3);
        world.pool.devices[1].damage(4 << 20..(4 << 20) + 4096, EIO);
        assert!(world.write(64));
        assert!(world.unplug(0));
        while world.written() < bytes {
            assert!(world.write(32 << 10));
        }
        world.tree.settle_debts();
        assert!(world.commit().is_err());
        world.plug_in(0);
        assert!(world.commit().unwrap().is_empty(), "{bytes}");
        assert_eq!(world.lacking(), [1]);
        assert_readable(&world.tree, &world.blocks);
    }
}

#[test]
fn what_a_leaf_may_have_lost_is_read_elsewhere_until_it_is_confirmed() {
    let mut world = World::new(&Layout::Mirror { children: 2 });
    assert!(world.write(64));
    assert!(!world.lacks(0));
    // It is reopened.
    world.plug_in(0);
    assert!(world.lacks(0) && !world.lacks(1));
    world.pool.devices[0].take_reads();
    assert_readable(&world.tree, &world.blocks);
    assert_eq!(world.pool.devices[0].take_reads(), []);
    assert!(world.commit().unwrap().is_empty());
    assert!(!world.lacks(0));
}

#[test]
fn what_a_leaf_gets_before_its_debts_are_settled_is_not_noted() {
    let mut world = World::raidz(1, 3);
    assert!(world.write_without(0));
    world.tree.settle_debts();
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), []);
    world.assert_everything_is_everywhere();
}

#[test]
fn a_leaf_that_would_owe_too_much_is_given_up_unless_the_vdev_needs_it() {
    let mut world = World::new(&Layout::Mirror { children: 2 });
    for child in 0..2 {
        assert!(world.write(64));
        assert!(world.unplug(child));
        while world.written() < 48 << 20 {
            assert!(world.write(32 << 10));
        }
        world.plug_in(child);
        world.blocks.clear();
    }
    assert_eq!(world.lacking(), [0]);
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), [0]);
    let of_second = world.plan.devices[1].pages();
    assert!(world.pool.devices[1].pages() == of_second);
}

#[test]
fn a_leaf_that_is_back_is_flushed_before_it_is_given_up() {
    let mut world = World::new(&Layout::Mirror { children: 2 });
    while world.written() < 10 << 20 {
        assert!(world.write(32 << 10));
    }
    let away = LeafEvent::Vanished;
    world.tree.apply(child_guid(1), away, Persistence::Persistent);
    world.plug_in(1);
    while world.written() < 80 << 20 {
        assert!(world.write(8 << 10));
    }
    assert_eq!(world.lacking(), []);
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), []);
    world.assert_everything_is_everywhere();
}

#[test]
fn two_sides_that_have_refused_different_blocks_wait_for_each_other() {
    let mut world = World::new(&Layout::Mirror { children: 2 });
    assert!(world.write_without(0));
    assert!(world.write(64));
    assert!(world.unplug(1));
    assert_readable(&world.tree, &world.blocks[1..]);
    world.pool.devices[0].damage(4 << 20..1 << 27, EIO);
    // Now the first block is on none of the working ones.
    assert!(world.commit().is_err());
    world.pool.devices[0].take_damage();
    world.plug_in(1);
    assert!(world.commit().unwrap().is_empty());
    assert_eq!(world.lacking(), []);
    world.assert_everything_is_everywhere();
}
