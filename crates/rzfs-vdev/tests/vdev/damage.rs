//! Damaged children of RAID-Z and dRAID: within the parity nothing is lost, beyond it reads never
//! return wrong data.

use crate::pool::{Block, Layout, Pool, assert_readable, child_guid, contents, read};
use proptest::prelude::*;
use rzfs_format::Txg;
use rzfs_format::uberblock::RaidzScratch;
use rzfs_testkit::Defect;
use rzfs_vdev::raidz::Reflow;
use rzfs_vdev::{BlockRead, FindingKind, VdevError, VdevTree, Verify};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What happens to a child.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Missing,
    Unreadable,
    Garbage,
}

const LOSSES: [Loss; 3] = [Loss::Missing, Loss::Unreadable, Loss::Garbage];

fn lose(pool: &mut Pool, child: usize, loss: Loss) {
    match loss {
        Loss::Missing => pool.missing.push(child),
        Loss::Unreadable => pool.devices[child].damage_all(Defect::Errno(5)),
        Loss::Garbage => pool.devices[child].damage_all(Defect::Garbage),
    }
}

fn raidz(parity: usize, children: usize) -> Layout {
    Layout::Raidz { parity, children, expansions: Vec::new(), reflow: None }
}

pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let plain = (1usize..=3, 1usize..6).prop_map(|(parity, data)| raidz(parity, parity + data));
    let expanded = (1usize..=3, 1usize..4, 1usize..3).prop_map(|(parity, data, steps)| {
        let expansions = (0..steps).map(|step| Txg(20 + step as u64)).collect();
        let children = parity + data + steps;
        Layout::Raidz { parity, children, expansions, reflow: None }
    });
    let expanding =
        (1usize..=3, 1usize..4, 0u64..1 << 10, 0..2).prop_map(|(parity, data, sector, scratch)| {
            let scratch =
                [RaidzScratch::InvalidSyncedReflow, RaidzScratch::Valid][scratch as usize];
            let reflow = Some(Reflow { offset: sector << 12, scratch });
            let children = parity + data + 1;
            Layout::Raidz { parity, children, expansions: Vec::new(), reflow }
        });
    let draid =
        (1usize..=3, 1usize..5, 0usize..3, 0usize..4).prop_map(|(parity, data, spares, extra)| {
            let children = (parity + data + spares + extra).max(2);
            Layout::Draid { parity, data, children, spares }
        });
    let mirror = (2usize..5).prop_map(|children| Layout::Mirror { children });
    prop_oneof![3 => plain, 2 => expanded, 2 => expanding, 2 => draid, 1 => mirror]
}

/// A pool with blocks of these sizes.
fn filled(layout: &Layout, ashift: u32, sizes: &[usize], first: u64) -> (Pool, Vec<Block>) {
    let mut pool = Pool::new(layout, ashift);
    pool.next = pool.asize(1, Txg(10)) * first;
    let blocks = (0..)
        .zip(sizes)
        .map(|(seed, size)| pool.write(contents(seed, *size), Txg(10 + 7 * (seed % 4))))
        .collect();
    (pool, blocks)
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![Just(512), 1usize..40_000, Just(131_072)], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn damage_up_to_the_parity_is_no_loss(
        layout in layouts(),
        ashift in prop::sample::select(vec![9u32, 12]),
        sizes in sizes(),
        first in 0u64..300,
        losses in prop::collection::vec(prop::sample::select(LOSSES.to_vec()), 3),
        order in any::<prop::sample::Index>(),
    ) {
        let (mut pool, blocks) = filled(&layout, ashift, &sizes, first);
        let children = layout.children();
        let start = order.index(children);
        let lost: Vec<usize> =
            (0..layout.tolerates().min(3)).map(|i| (start + i * 2) % children).collect();
        for (child, loss) in lost.iter().zip(&losses) {
            lose(&mut pool, *child, *loss);
        }
        let tree = pool.open();
        assert_readable(&tree, &blocks);
        for child in (0..children).filter(|child| !lost.contains(child)) {
            let errors = tree.by_guid(child_guid(child)).unwrap().errors();
            prop_assert_eq!(errors, Default::default(), "child {} is good", child);
        }
    }

    #[test]
    fn damage_beyond_the_parity_never_yields_wrong_data(
        layout in layouts(),
        sizes in sizes(),
        losses in prop::collection::vec(prop::sample::select(LOSSES.to_vec()), 5),
        order in any::<prop::sample::Index>(),
    ) {
        let (mut pool, blocks) = filled(&layout, 12, &sizes, 3);
        let children = layout.children();
        let start = order.index(children);
        let count = (layout.tolerates() + 1).min(children);
        for (i, loss) in (0..count).zip(losses) {
            lose(&mut pool, (start + i) % children, loss);
        }
        let tree = pool.open();
        for (block, result) in blocks.iter().zip(read(&tree, &blocks)) {
            match result {
                Ok(data) => prop_assert!(data == block.data),
                Err(error) => prop_assert!([5, 6, 52].contains(&error.errno())),
            }
        }
    }
}

#[test]
fn silent_damage_is_counted_on_the_children_that_have_it() {
    for (parity, bad) in [(1, vec![2]), (2, vec![0, 3]), (3, vec![1, 2, 4])] {
        let (pool, blocks) = filled(&raidz(parity, parity + 4), 12, &[100_000; 4], 0);
        for child in &bad {
            pool.devices[*child].damage_all(Defect::Garbage);
        }
        let tree = pool.open();
        assert_readable(&tree, &blocks);
        for child in 0..parity + 4 {
            let errors = tree.by_guid(child_guid(child)).unwrap().errors();
            assert_eq!(errors.checksum > 0, bad.contains(&child), "raidz{parity} child {child}");
            assert_eq!(errors.read, 0);
        }
        assert!(tree.top_levels().all(|top| top.errors().checksum == 0));
    }
}

#[test]
fn a_block_that_is_lost_is_an_error_of_everybody() {
    let (pool, blocks) = filled(&raidz(1, 4), 12, &[100_000], 0);
    for child in [1, 2] {
        pool.devices[child].damage_all(Defect::Garbage);
    }
    let tree = pool.open();
    let Err(VdevError::Checksum { attempts, offset: 0, .. }) = read(&tree, &blocks).remove(0)
    else {
        panic!("the block was read");
    };
    // The initial read, another one with parity available, and one without each data column.
    assert_eq!(attempts, 1 + 1 + 3);
    assert!(tree.leaves().all(|leaf| leaf.errors().checksum == 1));
    assert_eq!(tree.top_levels().next().unwrap().errors().checksum, 1);

    let verify = |_: &[u8]| false;
    let dva = blocks[0].dva;
    let read = BlockRead { dva, size: 100_000, birth: Txg(10), verify: &verify };
    assert!(tree.read_speculative(vec![read]).remove(0).is_err());
    assert!(tree.leaves().all(|leaf| leaf.errors().checksum == 1));
}

/// A block whose space is reused while it is read.
struct Passing<'a> {
    data: &'a [u8],
    /// How many times the block is still reported as present.
    stays: usize,
    asked: AtomicUsize,
    tried: AtomicUsize,
}

impl Verify for Passing<'_> {
    fn is_block(&self, data: &[u8]) -> bool {
        self.tried.fetch_add(1, Ordering::Relaxed);
        data == self.data
    }

    fn is_expected(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) < self.stays
    }
}

/// Reads such a block; returns the number of attempts and queries.
fn read_passing(
    tree: &VdevTree,
    block: &Block,
    stays: usize,
) -> (Result<Vec<u8>, VdevError>, usize, usize) {
    let (asked, tried) = Default::default();
    let passing = Passing { data: &block.data, stays, asked, tried };
    let Block { dva, birth, .. } = *block;
    let size = block.data.len() as u64;
    let result = tree.read(vec![BlockRead { dva, size, birth, verify: &passing }]).remove(0);
    let [tried, asked] = [passing.tried, passing.asked].map(AtomicUsize::into_inner);
    (result.map(|data| data.to_vec()), tried, asked)
}

fn checksum_errors(tree: &VdevTree, layout: &Layout) -> u64 {
    let leaves = (0..layout.children()).map(|child| tree.by_guid(child_guid(child)).unwrap());
    leaves.chain(tree.top_levels()).map(|vdev| vdev.errors().checksum).sum()
}

#[test]
fn a_block_that_has_gone_is_an_error_of_nobody_and_not_looked_for() {
    for layout in [Layout::Mirror { children: 3 }, raidz(1, 4), raidz(3, 7)] {
        let (pool, blocks) = filled(&layout, 12, &[50_000], 0);
        let tree = pool.open();
        let (found, _, asked) = read_passing(&tree, &blocks[0], 0);
        assert!(found.unwrap() == blocks[0].data && asked == 0, "nothing costs who finds it");
        pool.devices.iter().for_each(|device| device.damage_all(Defect::Garbage));
        let (found, tried, asked) = read_passing(&tree, &blocks[0], 0);
        assert!(matches!(found, Err(VdevError::Overtaken { .. })), "{layout:?}: {found:?}");
        assert_eq!((tried, asked), (1, 1), "{layout:?}");
        // It goes away during the search.
        let (found, tried, _) = read_passing(&tree, &blocks[0], 1);
        assert!(matches!(found, Err(VdevError::Overtaken { .. })), "{layout:?}: {found:?}");
        assert!(tried > 1);
        assert_eq!(checksum_errors(&tree, &layout), 0, "{layout:?}");
        // A bad block that stays is counted once on everybody who has it.
        let (found, ..) = read_passing(&tree, &blocks[0], usize::MAX);
        assert!(matches!(found, Err(VdevError::Checksum { .. })), "{layout:?}: {found:?}");
        assert_eq!(checksum_errors(&tree, &layout), layout.children() as u64 + 1, "{layout:?}");
    }
}

#[test]
fn what_is_left_of_a_block_that_goes_does_not_speak_against_its_successor() {
    let layout = Layout::Mirror { children: 2 };
    let (pool, blocks) = filled(&layout, 12, &[50_000], 0);
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    let read = pool.devices.iter().position(|device| !device.take_reads().is_empty());
    // The next read starts with the same side: its copy has been replaced, the other one not yet.
    pool.devices[read.unwrap()].damage_all(Defect::Garbage);
    for (stays, errors) in [(1, 0), (usize::MAX, 1)] {
        let (found, tried, _) = read_passing(&tree, &blocks[0], stays);
        assert!(found.unwrap() == blocks[0].data);
        assert!(tried > 1, "the other side was read first");
        assert_eq!(checksum_errors(&tree, &layout), errors);
    }
}

#[test]
fn healthy_blocks_are_read_without_parity() {
    let (pool, blocks) = filled(&raidz(2, 6), 12, &[128 << 10; 3], 0);
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    let read: u64 = pool
        .devices
        .iter()
        .flat_map(|device| device.take_reads())
        .map(|range| range.end - range.start)
        .sum();
    assert_eq!(read, 3 * (128 << 10));
}

#[test]
fn a_missing_child_costs_one_parity_column() {
    let (mut pool, blocks) = filled(&raidz(3, 8), 12, &[160 << 10], 0);
    pool.missing.push(5);
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    let reads = pool.devices.iter().filter(|device| !device.take_reads().is_empty()).count();
    assert_eq!(reads, 5);
}

#[test]
fn an_unreadable_sector_does_not_take_its_neighbours_along() {
    let (pool, blocks) = filled(&raidz(1, 3), 12, &[4096; 16], 0);
    pool.devices[1].damage((4 << 20) + 0x2000..(4 << 20) + 0x3000, Defect::Errno(5));
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    assert_eq!(tree.by_guid(child_guid(1)).unwrap().errors().read, 1);
    // The labels can be read, so the device stays in use.
    assert_eq!(tree.health().to_string(), "ONLINE");
}

#[test]
fn a_device_that_fails_everywhere_is_faulted() {
    let (pool, blocks) = filled(&raidz(1, 3), 12, &[4096; 4], 0);
    pool.devices[1].damage_all(Defect::Errno(5));
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    assert_eq!(tree.by_guid(child_guid(1)).unwrap().health().to_string(), "FAULTED");
    assert_eq!(tree.health().to_string(), "DEGRADED");
    pool.devices[1].take_reads();
    assert_readable(&tree, &blocks);
    assert!(pool.devices[1].take_reads().is_empty());
}

#[test]
fn a_device_that_goes_away_is_removed() {
    let (pool, blocks) = filled(&raidz(1, 3), 12, &[4096; 4], 0);
    pool.devices[2].damage_all(Defect::Errno(6));
    let tree = pool.open();
    assert_readable(&tree, &blocks);
    assert_eq!(tree.by_guid(child_guid(2)).unwrap().health().to_string(), "REMOVED");
    pool.devices[1].damage_all(Defect::Errno(6));
    let errors: Vec<i32> =
        read(&tree, &blocks).into_iter().filter_map(Result::err).map(|e| e.errno()).collect();
    assert!(!errors.is_empty() && errors.iter().all(|errno| *errno == 6));
}

#[test]
fn a_device_that_the_pool_needs_is_kept_in_spite_of_errors() {
    let (mut pool, blocks) = filled(&raidz(1, 3), 12, &[4096; 4], 0);
    pool.missing.push(0);
    pool.devices[1].damage_all(Defect::Errno(5));
    let tree = pool.open();
    assert!(read(&tree, &blocks).iter().any(Result::is_err));
    assert_eq!(tree.by_guid(child_guid(1)).unwrap().health().to_string(), "DEGRADED");
}

#[test]
fn errors_that_pass_are_survived_without_redundancy() {
    let (mut pool, blocks) = filled(&raidz(1, 3), 12, &[8192], 0);
    pool.missing.push(0);
    pool.devices[1].damage_all(Defect::Once(5));
    let tree = pool.open();
    assert_readable(&tree, &blocks);
}

#[test]
fn a_disk_that_was_bad_before_an_expansion_counts_as_one() {
    let narrow = raidz(1, 4);
    let (pool, blocks) = filled(&narrow, 12, &[100_000, 20_000, 60_000], 0);
    // The content of the narrow vdev after its disk 2 had gone bad silently, moved sector by
    // sector to five disks.
    pool.devices[2].damage_all(Defect::Garbage);
    let wide = Layout::Raidz { parity: 1, children: 5, expansions: vec![Txg(100)], reflow: None };
    let expanded = Pool::new(&wide, 12);
    for sector in 0..pool.next >> 12 {
        let position = |width: u64| (4 << 20) + ((sector / width) << 12);
        let from = &pool.devices[(sector % 4) as usize];
        let bytes = rzfs_blockdev::read_exact_at(from.as_ref(), position(4), 4096).unwrap();
        expanded.devices[(sector % 5) as usize].write(position(5), &bytes);
    }
    assert_readable(&expanded.open(), &blocks);
}

#[test]
fn scrubs_find_what_reads_do_not_need() {
    let layout = Layout::Draid { parity: 2, data: 4, children: 9, spares: 1 };
    let (pool, blocks) = filled(&layout, 12, &[0x5000], 0);
    let verify = |data: &[u8]| data == blocks[0].data;
    let scrub = || {
        let dva = blocks[0].dva;
        let read = BlockRead { dva, size: 0x5000, birth: Txg(10), verify: &verify };
        let scrubbed = pool.open().scrub(vec![read]).remove(0);
        assert!(scrubbed.data.is_ok());
        let mut found: Vec<(u64, u64, bool)> = scrubbed
            .findings
            .iter()
            .map(|f| {
                let wrong = matches!(f.kind, FindingKind::Wrong);
                (f.leaf.get() - 100, f.position - (4 << 20), wrong)
            })
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(scrub(), []);
    // Columns 7 3 | 6 5 0 2, the second sectors of the last three being filler.
    pool.devices[5].damage((4 << 20) + 0x1000..(4 << 20) + 0x2000, Defect::Garbage);
    assert_eq!(scrub(), [(5, 0, true)]);
    pool.devices[3].damage((4 << 20)..(4 << 20) + 0x200, Defect::Garbage);
    assert_eq!(scrub(), [(3, 0, true), (5, 0, true)]);
    pool.devices[2].damage_all(Defect::Errno(5));
    assert_eq!(scrub(), [(2, 0, false), (3, 0, true), (5, 0, true)]);
    assert_readable(&pool.open(), &blocks);
}

#[test]
fn addresses_outside_of_the_vdev_are_refused() {
    let (pool, blocks) = filled(&raidz(1, 3), 12, &[4096], 0);
    let tree = pool.open();
    let verify = |_: &[u8]| true;
    let try_read = |vdev, offset, size| {
        let dva = rzfs_format::Dva::new(rzfs_format::VdevId(vdev), offset, 0x2000, false);
        let read = BlockRead { dva, size, birth: Txg(10), verify: &verify };
        tree.read(vec![read]).remove(0).map_err(|error| error.errno())
    };
    assert!(try_read(0, 0, 4096).is_ok());
    assert_eq!(try_read(1, 0, 4096), Err(5));
    assert_eq!(try_read(0, 512, 4096), Err(5));
    assert_eq!(try_read(0, 3 * crate::pool::LEAF - 0x1000, 4096), Err(5));
    assert_eq!(try_read(0, u64::MAX - 0xfff, 4096), Err(5));
    assert_eq!(try_read(0, 0, 0), Err(5));
    assert_eq!(try_read(0, 0, (16 << 20) + 1), Err(5));
    assert!(tree.contains(blocks[0].dva));
    let dva =
        |offset, asize, gang| rzfs_format::Dva::new(rzfs_format::VdevId(0), offset, asize, gang);
    assert!(!tree.contains(dva(0, 0x1000, false)));
    assert!(!tree.contains(dva(3 * crate::pool::LEAF - 0x2000, 0x4000, false)));
    assert!(tree.contains(dva(3 * crate::pool::LEAF - 0x2000, 0x5000, true)));
}
