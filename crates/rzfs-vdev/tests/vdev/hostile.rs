//! Invalid configurations and addresses: every one is an error or a tree, and every address on a
//! tree an error or data; nothing panics or runs away.

use proptest::prelude::*;
use rzfs_blockdev::BlockDevice;
use rzfs_format::indirect::MappingEntry;
use rzfs_format::uberblock::RaidzReflow;
use rzfs_format::{Dva, Guid, Txg, VdevId};
use rzfs_testkit::SparseDevice;
use rzfs_vdev::config::DraidRecord;
use rzfs_vdev::{
    AuxReason, BlockRead, ConfigProblem, IndirectMapping, LeafDevices, TreeOptions, VdevConfig,
    VdevKind, VdevTree,
};
use std::sync::Arc;

/// Every leaf is the same device.
struct OneForAll(Arc<SparseDevice>);

impl LeafDevices for OneForAll {
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        if leaf.guid.get().is_multiple_of(5) {
            Err(AuxReason::BadLabel)
        } else {
            Ok(self.0.clone())
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..20,
        1 => prop::sample::select(vec![63, 64, 255, 1 << 20, 1 << 28, 1 << 40, 1 << 62]),
        1 => prop::sample::select(vec![i64::MAX as u64, u64::MAX, u64::MAX - 511]),
    ]
}

fn kind() -> impl Strategy<Value = VdevKind> {
    prop::sample::select(VdevKind::NAMES.map(|(kind, _)| kind).to_vec())
}

prop_compose! {
    fn lone_vdev()(
        kind in kind(),
        guid in 1u64..1000,
        nparity in prop::option::of(number()),
        draid in prop::option::of([number(), number(), number()]),
        expanding in prop::bool::weighted(0.2),
        expansions in prop::collection::vec(number(), 0..3),
        ashift in prop::option::weighted(0.9, prop_oneof![Just(9), Just(12), number()]),
        asize in prop::option::weighted(0.9, prop_oneof![Just(1 << 28), Just(1 << 40), number()]),
        spare in prop::option::of((number(), 1u64..1000)),
    ) -> VdevConfig {
        let mut config = VdevConfig::new(kind, Guid(guid));
        config.nparity = nparity;
        config.draid = draid.map(|[data, spares, groups]| DraidRecord {
            data, spares, groups, failure_group_children: None,
        });
        config.raidz_expanding = expanding;
        config.raidz_expand_txgs = expansions.into_iter().map(Txg).collect();
        config.top.ashift = ashift;
        config.top.asize = asize;
        if let Some((index, top)) = spare {
            config.leaf.spare_id = Some(index);
            config.top_guid = Some(Guid(top));
        }
        config
    }
}

fn vdev() -> impl Strategy<Value = VdevConfig> {
    lone_vdev().prop_recursive(3, 40, 8, |inner| {
        (lone_vdev(), prop::collection::vec(inner, 0..8))
            .prop_map(|(parent, children)| parent.with_children(children))
    })
}

/// Mostly valid trees: good top-level vdevs with some values replaced.
fn plausible() -> impl Strategy<Value = VdevConfig> {
    let wide = prop::sample::select(vec![VdevKind::Raidz, VdevKind::Draid, VdevKind::Mirror]);
    let kinds = prop_oneof![2 => wide, 1 => kind(), 1 => Just(VdevKind::Indirect)];
    let top = (kinds, 1usize..12, lone_vdev(), 0u64..8).prop_map(|(kind, children, odd, keep)| {
        let leaf = |guid| VdevConfig::new(VdevKind::File, Guid(guid));
        let guid = odd.guid.get() * 100;
        let mut top = VdevConfig { kind, ..odd };
        top.guid = Guid(guid);
        if keep & 1 == 0 {
            top.top.ashift = Some(12);
            top.nparity = Some(1 + guid % 3);
            top.draid =
                Some(DraidRecord { data: 2, spares: 1, groups: 3, failure_group_children: None });
        }
        if keep & 2 == 0 {
            top.top.asize = Some(1 << 28);
        }
        if keep & 4 == 0 {
            top.raidz_expanding = false;
            top.raidz_expand_txgs.clear();
        }
        if kind.is_leaf() {
            return top;
        }
        top.with_children((1..=children as u64).map(|child| leaf(guid + child)))
    });
    prop::collection::vec(top, 1..4).prop_map(|tops| {
        let mut tops = tops;
        let mut guids = std::collections::HashSet::new();
        tops.retain(|top| guids.insert(top.guid));
        VdevConfig::new(VdevKind::Root, Guid(1)).with_children(tops)
    })
}

/// All operations on a tree.
fn exercise(tree: &VdevTree, dvas: &[Dva], size: u64, birth: Txg) {
    let _ = tree.health().to_string();
    let wide = MappingEntry::new(0, Dva::new(VdevId(0), 0x1000, 0xff_f000, false));
    for vdev in 0..4 {
        let entries = vec![wide, MappingEntry::new(0xff_f000, dvas[0])];
        if let Ok(mapping) = IndirectMapping::new(entries, Vec::new()) {
            let _ = tree.set_mapping(VdevId(vdev), mapping);
        }
    }
    for &dva in dvas {
        let (vdev, contained) = (dva.vdev(), tree.contains(dva));
        let allocated = tree.allocated_size(vdev, size, birth);
        assert!(!contained || allocated.is_some());
        let _ = (tree.block_size(vdev, dva.asize(), birth), tree.deflate_ratio(vdev));
        let _ = (tree.gang_header_asize(vdev), tree.min_allocation(vdev));
    }
    let reads =
        |verify| dvas.iter().map(move |dva| BlockRead { dva: *dva, size, birth, verify }).collect();
    for result in tree.read(reads(&|_: &[u8]| true)) {
        assert!(result.is_err() || result.is_ok_and(|data| data.len() as u64 == size));
    }
    for result in tree.read(reads(&|_: &[u8]| false)) {
        assert!(result.is_err());
    }
    for scrubbed in tree.scrub(reads(&|_: &[u8]| true)) {
        assert!(scrubbed.data.is_err() || scrubbed.findings.is_empty());
    }
    assert_eq!(tree.config(), tree.root().config());
    for vdev in tree.vdevs() {
        assert!(vdev.errors().read <= vdev.io().reads || vdev.top_level().is_some());
    }
}

fn dvas() -> impl Strategy<Value = Vec<Dva>> {
    let offset = prop_oneof![3 => (0u64..1 << 16).prop_map(|x| x << 12), 1 => any::<u64>()];
    let dva = (0u32..4, offset, 0u64..1 << 25)
        .prop_map(|(vdev, offset, asize)| Dva::new(VdevId(vdev), offset, asize, false));
    prop::collection::vec(dva, 1..6)
}

proptest! {
    #[test]
    fn any_configuration_is_a_tree_or_an_error(
        config in prop_oneof![3 => plausible(), 1 => vdev()],
        dvas in dvas(),
        size in prop_oneof![1u64..40_000, Just(0), Just(1 << 20), any::<u64>()],
        birth in number(),
        reflow in prop_oneof![Just(0u64), any::<u64>(), 0u64..1 << 30],
        version in prop::sample::select(vec![5000u64, 28, 2]),
    ) {
        let devices = OneForAll(SparseDevice::new(1 << 30));
        let options =
            TreeOptions { version, reflow: RaidzReflow(reflow), ..TreeOptions::default() };
        let again = config.clone();
        if let Ok(tree) = VdevTree::open(config, &devices, options) {
            prop_assert_eq!(tree.config(), again);
            exercise(&tree, &dvas, size, Txg(birth));
        }
    }
}

fn problem(root: VdevConfig) -> ConfigProblem {
    let devices = OneForAll(SparseDevice::new(1 << 30));
    VdevTree::open(root, &devices, TreeOptions::default()).unwrap_err().problem
}

fn raidz(parity: u64, children: u64) -> VdevConfig {
    let leaves = (0..children).map(|child| VdevConfig::new(VdevKind::Disk, Guid(11 + child)));
    let mut top = VdevConfig::new(VdevKind::Raidz, Guid(2)).with_children(leaves);
    top.nparity = Some(parity);
    top.top.ashift = Some(12);
    top.top.asize = Some(1 << 28);
    top
}

fn root(top: VdevConfig) -> VdevConfig {
    VdevConfig::new(VdevKind::Root, Guid(1)).with_children([top])
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(problem(raidz(1, 3)), ConfigProblem::NotRoot);
    assert_eq!(problem(root(raidz(4, 8))), ConfigProblem::Value { key: "nparity", value: 4 });
    assert_eq!(problem(root(raidz(2, 2))), ConfigProblem::Value { key: "children", value: 2 });
    let mut shifted = raidz(1, 3);
    shifted.top.ashift = Some(17);
    assert_eq!(problem(root(shifted)), ConfigProblem::Value { key: "ashift", value: 17 });
    let mut uneven = raidz(1, 3);
    uneven.top.asize = Some((1 << 28) + 512);
    assert!(matches!(problem(root(uneven)), ConfigProblem::Value { key: "asize", .. }));
    let mut twins = raidz(1, 3);
    twins.children[1].guid = twins.children[2].guid;
    assert_eq!(problem(root(twins)), ConfigProblem::DuplicateGuid);
    let mut moved = root(raidz(1, 3));
    moved.children[0].id = 1;
    assert_eq!(problem(moved), ConfigProblem::Position { position: 0 });
    let mut nested = raidz(1, 3);
    nested.children[0] = raidz(1, 3);
    assert_eq!(problem(root(nested)), ConfigProblem::Misplaced { parent: "raidz" });
    let mut deep = VdevConfig::new(VdevKind::Disk, Guid(100));
    for guid in 101..120 {
        deep = VdevConfig::new(VdevKind::Spare, Guid(guid)).with_children([deep]);
    }
    let mut top = raidz(1, 3);
    top.children[0] = deep;
    assert_eq!(problem(root(top)), ConfigProblem::TooDeep);
    let spare = VdevConfig::new(VdevKind::DistributedSpare, Guid(30));
    let pair = VdevConfig::new(VdevKind::Spare, Guid(31)).with_children([spare]);
    let mut top = raidz(1, 3);
    top.children[0] = pair;
    assert_eq!(problem(root(top)), ConfigProblem::Absent { key: "spareid" });
}

#[test]
fn devices_that_do_not_fit_are_not_used() {
    let small = OneForAll(SparseDevice::new(80 << 20));
    let tree = VdevTree::open(root(raidz(1, 3)), &small, TreeOptions::default()).unwrap();
    let healths: Vec<_> = tree.leaves().map(|leaf| leaf.health().aux).collect();
    assert!(healths.iter().all(|aux| *aux == AuxReason::BadLabel));
    let tiny = OneForAll(SparseDevice::new(63 << 20));
    let tree = VdevTree::open(root(raidz(1, 3)), &tiny, TreeOptions::default()).unwrap();
    assert!(tree.leaves().all(|leaf| leaf.health().aux == AuxReason::TooSmall));
    assert_eq!(tree.health().to_string(), "UNAVAIL");

    let mut top = raidz(1, 3);
    top.children[0].flags.offline = true;
    top.children[1].flags.faulted = true;
    let fits = OneForAll(SparseDevice::new(1 << 30));
    let tree = VdevTree::open(root(top), &fits, TreeOptions::default()).unwrap();
    let shown: Vec<String> = tree.leaves().map(|leaf| leaf.health().to_string()).collect();
    // A fault not set by the administrator is dropped.
    assert_eq!(shown, ["OFFLINE", "ONLINE", "ONLINE"]);
    assert_eq!(tree.health().to_string(), "DEGRADED");
}
