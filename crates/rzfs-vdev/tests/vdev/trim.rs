//! Free ranges on devices: they cover exactly what blocks in the range occupy on the devices.

use crate::damage::layouts;
use crate::pool::{Layout, Pool, child_guid, contents};
use proptest::prelude::*;
use rzfs_format::{Txg, VdevId};
use rzfs_testkit::Defect;
use rzfs_vdev::{AddressProblem, BlockWrite, FreeRange, InitialPattern, TrimLimits, TxgSet};
use std::collections::{BTreeMap, BTreeSet};

const START: u64 = 4 << 20;
const SECTOR: u64 = 512;

/// No range is too short.
const ALL: TrimLimits = TrimLimits { extent_bytes_min: 0, extent_bytes_max: 1 << 20 };

fn whole(pool: &Pool, offset: u64, blocks: &[usize]) -> FreeRange {
    let sizes = blocks.iter().map(|size| pool.asize(*size, Txg(30)));
    FreeRange { vdev: VdevId(0), offset, size: sizes.sum() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn a_range_has_the_sectors_of_the_blocks_that_fill_it(
        layout in layouts(),
        ashift in 9_u32..13,
        before in prop::collection::vec(1_usize..100, 0..4),
        inside in prop::collection::vec(1_usize..100, 1..6),
    ) {
        prop_assume!(!matches!(layout, Layout::Raidz { reflow: Some(_), .. }));
        let mut pool = Pool::new(&layout, ashift);
        for (seed, sectors) in (0..).zip(&before) {
            pool.write(contents(seed, sectors * 512), Txg(30));
        }
        let offset = pool.next;
        let old: Vec<BTreeSet<u64>> =
            pool.devices.iter().map(|device| device.pages().into_keys().collect()).collect();
        let sizes: Vec<usize> = inside.iter().map(|sectors| sectors * 512).collect();
        for (seed, size) in (100..).zip(&sizes) {
            pool.write(contents(seed, *size), Txg(30));
        }
        let range = whole(&pool, offset, &sizes);
        prop_assert_eq!(offset + range.size, pool.next);
        let tree = pool.open();
        let found = tree.leaf_ranges(&range).unwrap();
        let mut free: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for part in &found {
            let child = (0..layout.children()).find(|child| child_guid(*child) == part.leaf);
            prop_assert!(part.position >= START);
            let sectors = part.position / SECTOR..(part.position + part.len) / SECTOR;
            free.entry(child.unwrap()).or_default().extend(sectors);
        }
        let mut total = 0;
        for (child, device) in pool.devices.iter().enumerate() {
            let free = free.remove(&child).unwrap_or_default();
            total += free.len() as u64 * SECTOR;
            prop_assert!(old[child].is_disjoint(&free), "child {child} would lose a block");
            let new = device.pages().into_keys().filter(|page| !old[child].contains(page));
            for page in new {
                prop_assert!(free.contains(&page), "child {} keeps sector {}", child, page);
            }
        }
        // A mirror has it once per child, parity is part of the range.
        let copies = match &layout {
            Layout::Mirror { children } => *children as u64,
            _ => 1,
        };
        prop_assert_eq!(total, range.size * copies);
    }

    #[test]
    fn what_lies_around_a_trimmed_range_stays(
        layout in layouts(),
        sizes in prop::collection::vec(1_usize..200, 3),
    ) {
        prop_assume!(!matches!(layout, Layout::Raidz { reflow: Some(_), .. }));
        let mut pool = Pool::new(&layout, 12);
        let mut blocks = Vec::new();
        for (seed, sectors) in (0..).zip(&sizes) {
            blocks.push(pool.write(contents(seed, sectors * 512), Txg(30)));
        }
        let middle = blocks.remove(1);
        let range = FreeRange {
            vdev: VdevId(0),
            offset: middle.dva.offset(),
            size: middle.dva.asize(),
        };
        for device in &pool.devices {
            device.allow_discards();
        }
        let tree = pool.open();
        let report = tree.trim(&[range], &ALL);
        prop_assert!(report.failures.is_empty() && report.unsupported.is_empty());
        let sum: u64 = tree.leaf_ranges(&range).unwrap().iter().map(|part| part.len).sum();
        prop_assert_eq!(report.trimmed, sum);
        crate::pool::assert_readable(&tree, &blocks);
        let held: usize = pool.devices.iter().map(|device| device.pages().len()).sum();
        // And can be written again.
        let write =
            BlockWrite { dva: middle.dva, birth: Txg(30), data: middle.data.clone().into() };
        tree.write(vec![write]).remove(0).unwrap();
        blocks.push(middle);
        crate::pool::assert_readable(&tree, &blocks);
        prop_assert!(pool.devices.iter().map(|device| device.pages().len()).sum::<usize>() > held);
    }
}

#[test]
fn what_lies_around_an_initialized_range_stays() {
    for layout in [
        Layout::Mirror { children: 2 },
        Layout::Raidz { parity: 1, children: 3, expansions: Vec::new(), reflow: None },
    ] {
        let mut pool = Pool::new(&layout, 12);
        let mut blocks: Vec<_> = (0..3)
            .map(|seed| pool.write(contents(seed, if seed == 1 { 3 << 20 } else { 4096 }), Txg(30)))
            .collect();
        let middle = blocks.remove(1);
        let range =
            FreeRange { vdev: VdevId(0), offset: middle.dva.offset(), size: middle.dva.asize() };
        let tree = pool.open();
        let ranges = tree.leaf_ranges(&range).unwrap();
        let report = tree.initialize(&ranges, &InitialPattern::new(&Default::default()).unwrap());
        assert!(report.failures.is_empty());
        assert_eq!(report.written, ranges.iter().map(|part| part.len).sum::<u64>());
        crate::pool::assert_readable(&tree, &blocks);
        for part in &ranges {
            let leaf = tree.by_guid(part.leaf).unwrap();
            let len = usize::try_from(part.len).unwrap();
            let device = leaf.device().unwrap();
            let bytes = rzfs_blockdev::read_exact_at(device.as_ref(), part.position, len).unwrap();
            let pattern = 0xdead_beef_dead_beee_u64.to_ne_bytes();
            assert!(bytes.chunks(8).all(|word| word == pattern), "{layout:?}");
        }
    }
}

#[test]
fn free_space_is_nowhere_while_a_raidz_is_being_expanded() {
    use rzfs_format::uberblock::RaidzScratch;
    use rzfs_vdev::raidz::Reflow;
    let reflow = Some(Reflow { offset: 1 << 20, scratch: RaidzScratch::InvalidSyncedReflow });
    let layout = Layout::Raidz { parity: 1, children: 4, expansions: Vec::new(), reflow };
    let tree = Pool::new(&layout, 12).open();
    let range = FreeRange { vdev: VdevId(0), offset: 0, size: 1 << 20 };
    assert_eq!(tree.leaf_ranges(&range), Ok(Vec::new()));
}

#[test]
fn ranges_are_checked() {
    let layout = Layout::Draid { parity: 1, data: 2, children: 4, spares: 0 };
    let tree = Pool::new(&layout, 12).open();
    let problem = |vdev, offset, size| {
        tree.leaf_ranges(&FreeRange { vdev: VdevId(vdev), offset, size }).unwrap_err()
    };
    assert_eq!(problem(1, 0, 4096), AddressProblem::NoVdev);
    assert_eq!(problem(0, 4096, 3 * 4096), AddressProblem::Unaligned);
    assert_eq!(problem(0, 0, 4096), AddressProblem::Unaligned);
    assert_eq!(problem(0, 0, 3 << 50), AddressProblem::BeyondEnd);
}

#[test]
fn short_ranges_and_devices_that_cannot_are_left_alone() {
    let pool = Pool::new(&Layout::Mirror { children: 2 }, 12);
    let tree = pool.open();
    let range = |offset, size| FreeRange { vdev: VdevId(0), offset, size };
    pool.devices[0].allow_discards();
    // Two neighbours are long enough together.
    let ranges = [range(0, 16 << 10), range(16 << 10, 16 << 10), range(64 << 10, 16 << 10)];
    let report = tree.trim(&ranges, &TrimLimits::default());
    assert_eq!((report.trimmed, report.skipped), (32 << 10, 32 << 10));
    assert_eq!(report.unsupported, [child_guid(1)]);
    assert!(report.failures.is_empty());
    let report = tree.trim(&[range(0, 1 << 20)], &TrimLimits::default());
    assert_eq!((report.trimmed, report.unsupported.len()), (1 << 20, 0));

    pool.devices[0].damage_all(Defect::Errno(5));
    let report = tree.trim(&[range(0, 4 << 20)], &ALL);
    assert!(!report.failures.is_empty());
    assert!(tree.by_guid(child_guid(0)).unwrap().health().is_usable());
    assert_ne!(tree.by_guid(child_guid(0)).unwrap().missing_txgs(), Some(TxgSet::all()));
}
