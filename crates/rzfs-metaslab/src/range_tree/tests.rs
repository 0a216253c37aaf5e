#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]

use super::*;

fn check(tree: &RangeTree) {
    on_tree!(&tree.tree, segments => segments.check());
    let mut histogram = [0; 64];
    for range in tree.iter() {
        histogram[(range.end - range.start).ilog2() as usize] += 1;
    }
    assert_eq!(&histogram, tree.histogram());
    assert_eq!(tree.iter().map(|range| range.end - range.start).sum::<u64>(), tree.space());
    assert_eq!(tree.iter().count(), tree.segment_count());
}

fn ranges(tree: &RangeTree) -> Vec<Range<u64>> {
    tree.iter().collect()
}

#[test]
fn touching_ranges_become_one_segment() {
    let mut tree = RangeTree::new(0x1000..0x10000, 9);
    for range in [0x1000..0x1200, 0x1400..0x1600, 0x1200..0x1400, 0x1600..0x1800] {
        tree.add(range).unwrap();
        check(&tree);
    }
    assert_eq!(ranges(&tree), [0x1000..0x1800]);
    assert_eq!((tree.space(), tree.segment_count()), (0x800, 1));
    assert_eq!(tree.histogram()[11], 1);
}

#[test]
fn double_allocation_and_double_free_are_errors() {
    let mut tree = RangeTree::new(0..0x10000, 9);
    tree.add(0x2000..0x3000).unwrap();
    for range in [0x2000..0x3000, 0x1e00..0x2200, 0x2e00..0x3200, 0x2200..0x2400, 0..0x10000] {
        assert!(
            matches!(tree.add(range.clone()), Err(RangeError::Overlap { there, .. })
                if there == (0x2000..0x3000)),
            "{range:?}"
        );
    }
    for range in [0x1e00..0x2200, 0x2e00..0x3200, 0x1000..0x1200, 0x3000..0x3200] {
        assert!(matches!(tree.remove(range), Err(RangeError::Missing { .. })));
    }
    assert_eq!(ranges(&tree), [0x2000..0x3000]);
}

#[test]
fn ranges_that_the_area_does_not_have_are_refused() {
    let mut tree = RangeTree::new(0x1000..0x9000, 12);
    let unaligned = 0x1000..0x1200;
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    for range in [unaligned, 0..0x1000, 0x8000..0xa000, 0x2000..0x2000, 0x3000..0x2000, 0..u64::MAX]
    {
        assert!(matches!(tree.add(range.clone()), Err(RangeError::Outside { .. })), "{range:?}");
        assert!(matches!(tree.remove(range), Err(RangeError::Outside { .. })));
    }
    assert!(tree.is_empty());
}

#[test]
fn removal_from_the_middle_splits() {
    let mut tree = RangeTree::new(0..1 << 40, 9);
    tree.add(0..0x4000).unwrap();
    tree.remove(0x1000..0x2000).unwrap();
    assert_eq!(ranges(&tree), [0..0x1000, 0x2000..0x4000]);
    assert!(tree.contains(0x2000..0x4000) && !tree.contains(0xe00..0x1200));
    tree.clear(0x800..0x3000).unwrap();
    assert_eq!(ranges(&tree), [0..0x800, 0x3000..0x4000]);
    check(&tree);
    tree.reset();
    assert!(tree.is_empty() && tree.iter().next().is_none());
}

#[test]
fn areas_of_any_size_work_up_to_their_ends() {
    for (area, shift) in [(0..u64::MAX, 0), (0..1 << 62, 9), (1 << 60..1 << 61, 12)] {
        let mut tree = RangeTree::new(area.clone(), shift);
        tree.add(area.clone()).unwrap();
        assert_eq!(tree.space(), area.end - area.start);
        let unit = 1 << shift;
        tree.remove(area.end - unit..area.end).unwrap();
        tree.remove(area.start..area.start + unit).unwrap();
        assert_eq!(ranges(&tree), [area.start + unit..area.end - unit]);
    }
}

#[test]
fn opposite_changes_cancel() {
    let mut allocated = RangeTree::new(0..0x10000, 9);
    let mut freed = RangeTree::new(0..0x10000, 9);
    cancel_or_add(0x1000..0x4000, &mut freed, &mut allocated).unwrap();
    cancel_or_add(0x2000..0x3000, &mut allocated, &mut freed).unwrap();
    assert_eq!(ranges(&allocated), [0x1000..0x2000, 0x3000..0x4000]);
    assert!(freed.is_empty());
    cancel_or_add(0x3000..0x5000, &mut allocated, &mut freed).unwrap();
    assert_eq!(ranges(&allocated), [0x1000..0x2000]);
    assert_eq!(ranges(&freed), [0x4000..0x5000]);
    assert!(cancel_or_add(0x1000..0x1200, &mut freed, &mut allocated).is_err());
}

#[test]
fn many_segments_keep_order_and_memory_bound() {
    const SEGMENTS: u64 = 20_000;
    let mut tree = RangeTree::new(0..1 << 34, 12);
    // Every other unit in an order that is far from ascending.
    for step in 0..SEGMENTS {
        let unit = step * 7919 % SEGMENTS * 2;
        tree.add(unit << 12..(unit + 1) << 12).unwrap();
    }
    check(&tree);
    assert_eq!(tree.segment_count() as u64, SEGMENTS);
    assert!(tree.memory() < SEGMENTS as usize * 20, "{} bytes", tree.memory());
    // Filling the gaps joins everything.
    for unit in (1..SEGMENTS * 2 - 1).step_by(2) {
        tree.add(unit << 12..(unit + 1) << 12).unwrap();
    }
    check(&tree);
    assert_eq!(ranges(&tree), [0..(SEGMENTS * 2 - 1) << 12]);
}

#[test]
fn ascending_loads_fill_leaves() {
    let mut tree = RangeTree::new(0..1 << 34, 12);
    for unit in 0..10_000_u64 {
        tree.add(unit << 13..(unit << 13) + 4096).unwrap();
    }
    check(&tree);
    assert!(tree.memory() < 10_000 * 12, "{} bytes", tree.memory());
}

mod model {
    use super::*;
    use proptest::prelude::*;

    /// Units of the small area in which operations collide often.
    const UNITS: usize = 96;

    #[derive(Clone, Debug)]
    enum Operation {
        Add(usize, usize),
        Remove(usize, usize),
        Clear(usize, usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let range = (0..UNITS, 1..12_usize);
        prop_oneof![
            range.clone().prop_map(|(at, len)| Operation::Add(at, len)),
            range.clone().prop_map(|(at, len)| Operation::Remove(at, len)),
            range.prop_map(|(at, len)| Operation::Clear(at, len)),
        ]
    }

    fn segments_of(bitmap: &[bool], base: u64) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        for (unit, _) in bitmap.iter().enumerate().filter(|(_, there)| **there) {
            let start = base + unit as u64 * 512;
            match out.last_mut() {
                Some(last) if last.end == start => last.end += 512,
                _ => out.push(start..start + 512),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn tree_behaves_as_a_bitmap(
            operations in prop::collection::vec(operation(), 1..200),
            wide: bool,
        ) {
            let base = 1 << 20;
            // An area of more than 2^32 units takes the other form of the tree.
            let size = if wide { 1 << 50 } else { UNITS as u64 * 512 };
            let mut tree = RangeTree::new(base..base + size, 9);
            let mut bitmap = [false; UNITS];
            for operation in operations {
                let (Operation::Add(at, len)
                | Operation::Remove(at, len)
                | Operation::Clear(at, len)) = operation;
                let units = at..(at + len).min(UNITS);
                let range = base + units.start as u64 * 512..base + units.end as u64 * 512;
                let bits = &mut bitmap[units];
                match operation {
                    Operation::Add(..) => {
                        let clash = bits.contains(&true);
                        prop_assert_eq!(tree.add(range).is_err(), clash);
                        if !clash {
                            bits.fill(true);
                        }
                    }
                    Operation::Remove(..) => {
                        let clash = bits.contains(&false);
                        prop_assert_eq!(tree.contains(range.clone()), !clash);
                        prop_assert_eq!(tree.remove(range).is_err(), clash);
                        if !clash {
                            bits.fill(false);
                        }
                    }
                    Operation::Clear(..) => {
                        tree.clear(range).unwrap();
                        bits.fill(false);
                    }
                }
                check(&tree);
                prop_assert_eq!(ranges(&tree), segments_of(&bitmap, base));
            }
        }

        #[test]
        fn large_trees_behave_as_an_ordered_set(seed: u64, rounds in 2_000_usize..6_000) {
            // Single units far apart, so that leaves split and merge; phases of mostly adding
            // and mostly removing.
            let mut tree = RangeTree::new(0..1 << 32, 12);
            let mut model = std::collections::BTreeSet::new();
            let mut state = seed;
            for round in 0..rounds {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let unit = (state >> 40) % 4096 * 2;
                let range = unit << 12..(unit + 1) << 12;
                if round * 2 < rounds {
                    prop_assert_eq!(tree.add(range).is_ok(), model.insert(unit));
                } else {
                    prop_assert_eq!(tree.remove(range).is_ok(), model.remove(&unit));
                }
            }
            check(&tree);
            let units: Vec<_> = tree.iter().map(|range| range.start >> 12).collect();
            prop_assert_eq!(units, model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn cancelling_keeps_the_net_change(
            changes in prop::collection::vec((0..UNITS, 1..12_usize), 1..60),
        ) {
            let area = 0..UNITS as u64 * 512;
            let mut allocated = RangeTree::new(area.clone(), 9);
            let mut freed = RangeTree::new(area, 9);
            // Truth: everything is free before. Each change flips its units where they are
            // uniform, so that it is a legal allocation or free.
            let before = [false; UNITS];
            let mut truth = before;
            for (at, len) in changes {
                let units = at..(at + len).min(UNITS);
                let range = units.start as u64 * 512..units.end as u64 * 512;
                let bits = &mut truth[units];
                if bits.iter().all(|there| !there) {
                    cancel_or_add(range, &mut freed, &mut allocated).unwrap();
                    bits.fill(true);
                } else if bits.iter().all(|there| *there) {
                    cancel_or_add(range, &mut allocated, &mut freed).unwrap();
                    bits.fill(false);
                }
            }
            prop_assert!(freed.is_empty(), "nothing was allocated before");
            prop_assert_eq!(ranges(&allocated), segments_of(&truth, 0));
        }
    }
}
