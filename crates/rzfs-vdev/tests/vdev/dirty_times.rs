//! Dirty time logs: missing data of leaves, the derived state of interior vdevs, and storing them.

use crate::damage::layouts;
use crate::pool::{Block, Layout, Pool, child_guid, contents};
use proptest::prelude::*;
use rzfs_format::{Guid, ObjectId, Txg, VdevId};
use rzfs_vdev::{
    BlockWrite, DtlReader, DtlStore, Durability, LeafEvent, Persistence, Resilvered, TxgSet,
    VdevTree,
};
use std::collections::BTreeMap;

/// Objects in memory.
#[derive(Default, Debug)]
pub(crate) struct Objects {
    pub(crate) contents: BTreeMap<ObjectId, TxgSet>,
    writes: usize,
    fails: bool,
}

impl DtlReader for Objects {
    type Error = &'static str;

    fn load(&self, object: ObjectId) -> Result<TxgSet, Self::Error> {
        self.contents.get(&object).cloned().ok_or("no such object")
    }
}

impl DtlStore for Objects {
    type Error = &'static str;

    fn replace(
        &mut self,
        object: Option<ObjectId>,
        txgs: &TxgSet,
    ) -> Result<ObjectId, Self::Error> {
        if self.fails {
            return Err("no space");
        }
        self.writes += 1;
        let object = object.unwrap_or(ObjectId(100 + self.contents.len() as u64));
        self.contents.insert(object, txgs.clone());
        Ok(object)
    }
}

fn set(ranges: &[(u64, u64)]) -> TxgSet {
    TxgSet::from_ranges(ranges.iter().map(|(start, end)| (Txg(*start), Txg(*end))))
}

fn open(layout: &Layout) -> (Pool, VdevTree) {
    let pool = Pool::new(layout, 12);
    let tree = pool.open();
    assert!(tree.load_dirty_time_logs(&Objects::default()).is_empty());
    (pool, tree)
}

fn write(tree: &VdevTree, block: &Block) {
    let data = block.data.clone().into();
    let write = BlockWrite { dva: block.dva, birth: block.birth, data };
    tree.write(vec![write]).remove(0).unwrap();
}

fn take_offline(tree: &VdevTree, child: usize) {
    tree.apply(child_guid(child), LeafEvent::TakenOffline, Persistence::Persistent);
}

fn take_online(tree: &VdevTree, child: usize) {
    let event = LeafEvent::Opened { degraded: false };
    tree.apply(child_guid(child), event, Persistence::Persistent);
}

#[test]
fn what_is_written_without_a_leaf_is_missing_there_and_stored() {
    let (mut pool, tree) = open(&Layout::Mirror { children: 2 });
    let mut objects = Objects::default();
    assert_eq!(tree.store_dirty_time_logs(&mut objects), Ok(false));
    for (txg, offline) in [(20, false), (21, true), (24, true), (25, true), (26, false)] {
        if offline {
            take_offline(&tree, 1)
        } else {
            take_online(&tree, 1)
        }
        write(&tree, &pool.write(contents(txg, 4096), Txg(txg)));
        tree.make_durable(Durability::Txg(Txg(txg))).unwrap();
    }
    let missing = set(&[(21, 22), (24, 26)]);
    let leaf = tree.by_guid(child_guid(1)).unwrap();
    assert_eq!(leaf.missing_txgs().as_ref(), Some(&missing));
    assert_eq!(tree.store_dirty_time_logs(&mut objects), Ok(true));
    assert_eq!(tree.store_dirty_time_logs(&mut objects), Ok(false));
    let object = leaf.own_config().leaf.dtl_object.unwrap();
    assert_eq!((objects.contents[&object].clone(), objects.writes), (missing.clone(), 1));
    assert!(tree.dirty_configs().contains(&VdevId(0)));

    // The next import knows it.
    let mut again = Pool::new(&Layout::Mirror { children: 2 }, 12);
    again.config.children[0].children[1].leaf.dtl_object = Some(object);
    let again = again.open();
    assert!(again.load_dirty_time_logs(&objects).is_empty());
    assert_eq!(again.by_guid(child_guid(1)).unwrap().missing_txgs(), Some(missing));
    assert_eq!(again.by_guid(child_guid(0)).unwrap().missing_txgs(), Some(TxgSet::new()));
}

#[test]
fn a_log_that_cannot_be_stored_is_stored_later() {
    let (_, tree) = open(&Layout::Mirror { children: 2 });
    tree.add_missing_txgs(child_guid(0), Txg(7), Txg(9));
    let mut objects = Objects { fails: true, ..Objects::default() };
    assert_eq!(tree.store_dirty_time_logs(&mut objects), Err("no space"));
    objects.fails = false;
    assert_eq!(tree.store_dirty_time_logs(&mut objects), Ok(true));
    assert_eq!(objects.contents.into_values().collect::<Vec<_>>(), [set(&[(7, 9)])]);
}

#[test]
fn a_log_that_cannot_be_loaded_is_unknown() {
    let mut pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    pool.config.children[0].children[1].leaf.dtl_object = Some(ObjectId(5));
    let tree = pool.open();
    let failures = tree.load_dirty_time_logs(&Objects::default());
    assert_eq!(failures, [(child_guid(1), "no such object")]);
    assert_eq!(tree.by_guid(child_guid(1)).unwrap().missing_txgs(), None);
    // Later entries are not lost when it can be loaded.
    tree.add_missing_txgs(child_guid(1), Txg(9), Txg(10));
    let objects =
        Objects { contents: [(ObjectId(5), set(&[(4, 6)]))].into(), ..Objects::default() };
    assert!(tree.load_dirty_time_logs(&objects).is_empty());
    let missing = tree.by_guid(child_guid(1)).unwrap().missing_txgs();
    assert_eq!(missing, Some(set(&[(4, 6), (9, 10)])));
}

#[test]
fn the_good_half_of_a_mirror_is_required_while_the_other_lacks_anything() {
    let (_, tree) = open(&Layout::Mirror { children: 2 });
    let (good, stale) = (child_guid(0), child_guid(1));
    let is_required = |guid: Guid| tree.by_guid(guid).unwrap().is_required();
    assert!(!is_required(good) && !is_required(stale));
    tree.add_missing_txgs(stale, Txg(21), Txg(22));
    assert!(is_required(good) && !is_required(stale));
    let top = tree.top_level(VdevId(0)).unwrap().dirty_times();
    assert_eq!((top.partial, top.missing.is_empty()), (set(&[(21, 22)]), true));
    take_offline(&tree, 1);
    assert!(is_required(good));
    let top = tree.top_level(VdevId(0)).unwrap().dirty_times();
    assert!(top.outage.is_empty());
}

#[test]
fn a_leaf_that_is_away_is_missed_if_the_others_lack_what_it_has() {
    let (_, tree) = open(&Layout::Mirror { children: 2 });
    let missed = || tree.missed_leaves().into_iter().map(|leaf| leaf.guid()).collect::<Vec<Guid>>();
    take_offline(&tree, 0);
    assert_eq!(missed(), []);
    tree.add_missing_txgs(child_guid(1), Txg(21), Txg(22));
    assert_eq!(missed(), [child_guid(0)]);
    // It would not help.
    tree.add_missing_txgs(child_guid(0), Txg(21), Txg(22));
    assert_eq!(missed(), []);
    tree.add_missing_txgs(child_guid(1), Txg(30), Txg(31));
    assert_eq!(missed(), [child_guid(0)]);
    take_online(&tree, 0);
    assert_eq!(missed(), []);
}

#[test]
fn a_single_disk_is_always_required() {
    let mut pool = Pool::new(&Layout::Mirror { children: 1 }, 12);
    pool.missing = Vec::new();
    let tree = pool.open();
    assert!(tree.by_guid(child_guid(0)).unwrap().is_required());
}

#[test]
fn parity_covers_as_many_gaps_as_there_is_parity() {
    let layout = Layout::Raidz { parity: 2, children: 5, expansions: Vec::new(), reflow: None };
    let (_, tree) = open(&layout);
    for (child, start, end) in [(0, 10, 20), (1, 15, 25), (2, 18, 19)] {
        tree.add_missing_txgs(child_guid(child), Txg(start), Txg(end));
    }
    let top = tree.top_level(VdevId(0)).unwrap().dirty_times();
    assert_eq!((top.missing.clone(), top.partial), (set(&[(18, 19)]), set(&[(10, 25)])));
    assert_eq!(top.outage, top.missing);
    // Of txgs 15 to 19 two children are stale: no other may go.
    assert!(tree.by_guid(child_guid(3)).unwrap().is_required());
}

#[test]
fn a_resilver_takes_out_what_it_covered() {
    let (_, tree) = open(&Layout::Mirror { children: 3 });
    tree.add_missing_txgs(child_guid(0), Txg(21), Txg(30));
    assert!(tree.begin_resilver(child_guid(1), Txg(40)));
    let leaf = |child| tree.by_guid(child_guid(child)).unwrap();
    assert_eq!(leaf(1).missing_txgs(), Some(set(&[(4, 43)])));
    assert_eq!(leaf(1).own_config().leaf.resilver_txg, Some(Txg(40)));
    assert_eq!(tree.resilver_range(), Some((Txg(4), Txg(43))));

    // A scan that ended before the second leaf existed.
    tree.excise_dirty_times(Resilvered::Healing, Txg(35));
    assert_eq!(leaf(0).missing_txgs(), Some(TxgSet::new()));
    assert_eq!(leaf(1).missing_txgs(), Some(set(&[(4, 43)])));
    assert_eq!(tree.resilver_range(), Some((Txg(4), Txg(43))));
    // A rebuild concerns one vdev, and leaves that requested it.
    tree.excise_dirty_times(Resilvered::Rebuild(Guid(999)), Txg(60));
    assert_eq!(leaf(1).missing_txgs(), Some(set(&[(4, 43)])));

    tree.add_unrepaired_txg(child_guid(1), Txg(33));
    tree.excise_dirty_times(Resilvered::Healing, Txg(50));
    assert_eq!(leaf(1).missing_txgs(), Some(set(&[(33, 34)])));
    assert_eq!(leaf(1).own_config().leaf.resilver_txg, Some(Txg(40)));
    tree.excise_dirty_times(Resilvered::Healing, Txg(50));
    assert_eq!(leaf(1).missing_txgs(), Some(TxgSet::new()));
    assert_eq!(leaf(1).own_config().leaf.resilver_txg, None);
    assert_eq!(tree.resilver_range(), None);
}

#[test]
fn a_leaf_that_is_not_there_keeps_its_log() {
    let (_, tree) = open(&Layout::Mirror { children: 2 });
    tree.add_missing_txgs(child_guid(1), Txg(21), Txg(30));
    take_offline(&tree, 1);
    tree.excise_dirty_times(Resilvered::Healing, Txg(50));
    let leaf = tree.by_guid(child_guid(1)).unwrap();
    assert_eq!(leaf.missing_txgs(), Some(set(&[(21, 30)])));
    assert_eq!(tree.resilver_range(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    #[test]
    fn outages_are_what_too_many_children_lack(
        layout in layouts(),
        gaps in prop::collection::vec((0_usize..9, 4_u64..40, 1_u64..20), 0..12),
        lost in prop::collection::vec(0_usize..9, 0..3),
    ) {
        let (_, tree) = open(&layout);
        let children = layout.children();
        let mut missing = vec![TxgSet::new(); children];
        for (child, start, len) in gaps {
            let (child, start, end) = (child % children, Txg(start), Txg(start + len));
            tree.add_missing_txgs(child_guid(child), start, end);
            missing[child].insert_range(start, end);
        }
        for child in lost {
            take_offline(&tree, child % children);
            missing[child % children] = TxgSet::all();
        }
        let times = tree.top_level(VdevId(0)).unwrap().dirty_times();
        for txg in (0..64).map(Txg) {
            let lacking = missing.iter().filter(|missing| missing.contains(txg)).count();
            prop_assert_eq!(times.outage.contains(txg), lacking > layout.tolerates());
        }
        for child in 0..children {
            let others = |txg: Txg| {
                let others = missing.iter().enumerate().filter(|(other, _)| *other != child);
                others.filter(|(_, missing)| missing.contains(txg)).count()
            };
            let expected = (0..64).map(Txg).any(|txg| others(txg) + 1 > layout.tolerates());
            prop_assert_eq!(tree.by_guid(child_guid(child)).unwrap().is_required(), expected);
        }
    }
}
