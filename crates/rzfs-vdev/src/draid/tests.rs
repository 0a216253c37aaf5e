//! The maps of spec 07, section 25.4.

use super::*;
use proptest::prelude::*;

fn geometry(data: usize, parity: usize, children: usize, spares: usize) -> DraidGeometry {
    let working = (children - spares) as u64;
    let width = (data + parity) as u64;
    let groups = (1..).find(|groups| (groups * width).is_multiple_of(working)).unwrap();
    let shape = DraidShape { ashift: 12, parity, data, spares, groups, children };
    DraidGeometry::new(shape).unwrap()
}

/// A stripe as (children and offsets, content lengths, height).
fn parts(geometry: &DraidGeometry, offset: u64, size: usize) -> Vec<Vec<(usize, u64, usize)>> {
    let map = geometry.map(offset, size);
    map.stripes
        .iter()
        .map(|stripe| {
            map.columns[stripe.columns.clone()]
                .iter()
                .map(|column| (column.child, column.offset, column.len))
                .collect()
        })
        .collect()
}

fn all_at(children: &[usize], offset: u64, len: usize) -> Vec<(usize, u64, usize)> {
    children.iter().map(|child| (*child, offset, len)).collect()
}

#[test]
fn columns_are_where_openzfs_put_them() {
    let geometry = geometry(4, 2, 9, 1);
    assert_eq!(geometry.shape().groups, 4);
    assert_eq!(geometry.slice_height(), 48 << 20);
    let two = |first: &[usize], second: &[usize], row: u64, len| {
        let mut columns = all_at(first, row, len);
        columns.extend(all_at(second, row + ROW_HEIGHT, len));
        columns
    };
    let mut short = all_at(&[7, 3, 6], 0, 0x1000);
    short.extend(all_at(&[5, 0, 2], 0, 0));
    assert_eq!(parts(&geometry, 0, 0x1000), [short]);

    let mut uneven = all_at(&[7, 3, 6], 0x3000, 0x2000);
    uneven.extend(all_at(&[5, 0, 2], 0x3000, 0x1000));
    assert_eq!(parts(&geometry, 0x12000, 0x5000), [uneven]);

    assert_eq!(parts(&geometry, 0x6000000, 0x20000), [two(&[8, 4], &[7, 3, 6, 5], 0, 0x8000)]);
    assert_eq!(
        parts(&geometry, 0x5ffa000, 0x8000),
        [all_at(&[7, 3, 6, 5, 0, 2], 0xfff000, 0x1000), two(&[8, 4], &[7, 3, 6, 5], 0, 0x1000)]
    );
    assert_eq!(
        parts(&geometry, 0x18000000, 0x20000),
        [all_at(&[8, 4, 7, 6, 1, 3], 0x3000000, 0x8000)]
    );
    let mut last = two(&[0, 5], &[8, 4, 7, 6], 0x3000000, 0x1000);
    last[5].2 = 0;
    assert_eq!(parts(&geometry, 0x1e000000, 0x3000), [last]);

    for (size, asize) in [(0x1000, 0x6000), (0x5000, 0xc000), (0x20000, 0x30000), (0x8000, 0xc000)]
    {
        assert_eq!(geometry.allocated_size(size), asize);
    }
}

#[test]
fn a_block_can_cross_into_the_next_group() {
    let geometry = geometry(3, 2, 12, 1);
    assert_eq!(geometry.shape().groups, 11);
    let asize = 0x1aa_e000;
    assert_eq!(geometry.allocated_size(0x100_0000), asize);
    assert_eq!(geometry.vdev_size((160 << 20) - 0x48_0000), 1_258_291_200);
    let found = parts(&geometry, 0x4057_e000, 0x100_0000);
    assert_eq!(found[0], all_at(&[7, 6, 1, 9, 4], 0x5de_6000, 0x21a_000));
    assert_eq!(
        found[1],
        [
            (3, 0x500_0000, 0x33c_000),
            (11, 0x600_0000, 0x33c_000),
            (10, 0x600_0000, 0x33c_000),
            (0, 0x600_0000, 0x33b_000),
            (2, 0x600_0000, 0x33b_000),
        ]
    );
    let map = geometry.map(0x4057_e000, 0x100_0000);
    assert_eq!(map.columns[7].start, 0x64e_000);
    assert_eq!(map.columns[8].filler, 0x1000);
}

#[test]
fn sizes_are_those_of_openzfs() {
    let geometry = geometry(4, 2, 9, 1);
    assert_eq!(geometry.vdev_size(129_499_136), 603_979_776);
    assert_eq!(geometry.min_allocation(), 0x4000);
    assert_eq!(geometry.allocated_size(512), 0x6000);
    assert_eq!(geometry.block_size(0x6000), 0x4000);
}

#[test]
fn a_spare_is_spread_over_the_children() {
    let geometry = geometry(4, 2, 9, 1);
    for (offset, device) in [(0, 1), (0x2fff000, 1), (0x3000000, 2), (0x6000000, 3)] {
        assert_eq!(geometry.spare_device(0, offset), Some(device));
    }
    assert_eq!(geometry.spare_device(1, 0), None);
}

#[test]
fn impossible_shapes_are_refused() {
    let good = DraidShape { ashift: 12, parity: 2, data: 4, spares: 1, groups: 4, children: 9 };
    assert!(DraidGeometry::new(good).is_ok());
    for (bad, key) in [
        (DraidShape { ashift: 17, ..good }, "ashift"),
        (DraidShape { parity: 0, ..good }, "nparity"),
        (DraidShape { data: 7, ..good }, "draid_ndata"),
        (DraidShape { data: usize::MAX, ..good }, "draid_ndata"),
        (DraidShape { spares: 9, ..good }, "draid_nspares"),
        (DraidShape { groups: 3, ..good }, "draid_ngroups"),
        (DraidShape { groups: 0, ..good }, "draid_ngroups"),
        (DraidShape { children: 256, ..good }, "children"),
    ] {
        let Err(DraidProblem::Value { key: found, .. }) = DraidGeometry::new(bad) else {
            panic!("{bad:?} was accepted");
        };
        assert_eq!(found, key);
    }
}

proptest! {
    /// Every byte of a block has one place, on children that differ within a stripe, and no two
    /// blocks share a place.
    #[test]
    fn a_map_covers_its_block(
        data in 1usize..8,
        parity in 1usize..=3,
        spares in 0usize..3,
        extra in 0usize..5,
        stripe in 0u64..1 << 20,
        size in 1usize..1 << 20,
    ) {
        let geometry = geometry(data, parity, data + parity + spares + extra.max(1), spares);
        let map = geometry.map(stripe * geometry.stripe_size(), size);
        let padded = size.next_multiple_of(0x1000);
        prop_assert!(map.stripes.len() <= 2);
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for stripe in &map.stripes {
            let columns = &map.columns[stripe.columns.clone()];
            let height = columns[0].len;
            let mut children: Vec<usize> = columns.iter().map(|column| column.child).collect();
            children.sort_unstable();
            children.dedup();
            prop_assert_eq!(children.len(), data + parity);
            prop_assert!(columns.iter().all(|column| column.len + column.filler == height));
            pieces.extend(
                columns[parity..].iter().filter(|c| c.len > 0).map(|c| (c.start, c.len)),
            );
        }
        pieces.sort_unstable();
        let end = pieces.iter().try_fold(0, |at, (start, len)| (*start == at).then_some(at + len));
        prop_assert_eq!(end, Some(padded));
    }
}
