//! The maps of spec 07, sections 25.2 and 25.3.

use super::*;
use proptest::prelude::*;

fn geometry(parity: usize, children: usize, ashift: u32) -> RaidzGeometry {
    RaidzGeometry::new(ashift, parity, children, Vec::new(), None).unwrap()
}

/// Columns as (child, offset, size).
fn places(geometry: &RaidzGeometry, offset: u64, size: usize) -> Vec<(usize, u64, usize)> {
    let map = geometry.map(offset, size, Txg(10));
    assert_eq!(map.stripes.len(), 1);
    map.columns.iter().map(|column| (column.child, column.offset, column.len)).collect()
}

#[test]
fn columns_are_where_openzfs_put_them() {
    type Row<'a> = (usize, usize, u32, u64, usize, u64, &'a [(usize, u64, usize)]);
    let table: &[Row<'_>] = &[
        (1, 3, 12, 0x65e8000, 0x1000, 0x2000, &[(1, 0x21f8000, 0x1000), (0, 0x21f8000, 0x1000)]),
        (1, 3, 12, 0xa72000, 0x1000, 0x2000, &[(1, 0x37b000, 0x1000), (2, 0x37b000, 0x1000)]),
        (1, 3, 12, 0x4f4000, 0x200, 0x2000, &[(2, 0x1a6000, 0x1000), (0, 0x1a7000, 0x1000)]),
        (1, 3, 12, 0x530000, 0x400, 0x2000, &[(0, 0x1bb000, 0x1000), (2, 0x1ba000, 0x1000)]),
        (
            1,
            3,
            12,
            0x5de000,
            0xa000,
            0x10000,
            &[(0, 0x1f5000, 0x5000), (2, 0x1f4000, 0x5000), (1, 0x1f5000, 0x5000)],
        ),
        (
            2,
            5,
            9,
            0x14fc400,
            0xa00,
            0x1200,
            &[
                (3, 0x432600, 0x400),
                (4, 0x432600, 0x400),
                (0, 0x432800, 0x400),
                (1, 0x432800, 0x400),
                (2, 0x432800, 0x200),
            ],
        ),
        (
            2,
            5,
            9,
            0x7bde00,
            0x400,
            0xc00,
            &[
                (0, 0x18c600, 0x200),
                (1, 0x18c600, 0x200),
                (2, 0x18c600, 0x200),
                (3, 0x18c600, 0x200),
            ],
        ),
        (
            2,
            5,
            9,
            0x4e8a00,
            0x20000,
            0x35a00,
            &[
                (3, 0xfb400, 0xac00),
                (4, 0xfb400, 0xac00),
                (0, 0xfb600, 0xac00),
                (1, 0xfb600, 0xaa00),
                (2, 0xfb600, 0xaa00),
            ],
        ),
        (
            3,
            7,
            12,
            0xa2c000,
            0xa000,
            0x14000,
            &[
                (0, 0x174000, 0x3000),
                (1, 0x174000, 0x3000),
                (2, 0x174000, 0x3000),
                (3, 0x174000, 0x3000),
                (4, 0x174000, 0x3000),
                (5, 0x174000, 0x2000),
                (6, 0x174000, 0x2000),
            ],
        ),
        (
            3,
            7,
            12,
            0x778000,
            0x2000,
            0x8000,
            &[
                (1, 0x111000, 0x1000),
                (2, 0x111000, 0x1000),
                (3, 0x111000, 0x1000),
                (4, 0x111000, 0x1000),
                (5, 0x111000, 0x1000),
            ],
        ),
        (
            1,
            4,
            12,
            0x5000,
            0x3000,
            0x4000,
            &[(1, 0x1000, 0x1000), (2, 0x1000, 0x1000), (3, 0x1000, 0x1000), (0, 0x2000, 0x1000)],
        ),
        (
            1,
            4,
            12,
            0x105000,
            0x3000,
            0x4000,
            &[
                (2, 0x41000, 0x1000),
                (1, 0x41000, 0x1000),
                (3, 0x41000, 0x1000),
                (0, 0x42000, 0x1000),
            ],
        ),
        (
            1,
            3,
            12,
            0x101000,
            0x2000,
            0x4000,
            &[(0, 0x56000, 0x1000), (2, 0x55000, 0x1000), (1, 0x56000, 0x1000)],
        ),
        (
            1,
            5,
            12,
            0x100000,
            0x20000,
            0x28000,
            &[
                (2, 0x33000, 0x8000),
                (1, 0x33000, 0x8000),
                (3, 0x33000, 0x8000),
                (4, 0x33000, 0x8000),
                (0, 0x34000, 0x8000),
            ],
        ),
        (
            2,
            6,
            12,
            0x7000,
            0x5000,
            0x9000,
            &[
                (1, 0x1000, 0x2000),
                (2, 0x1000, 0x2000),
                (3, 0x1000, 0x2000),
                (4, 0x1000, 0x1000),
                (5, 0x1000, 0x1000),
                (0, 0x2000, 0x1000),
            ],
        ),
        (
            3,
            8,
            12,
            0xb000,
            0x9000,
            0x10000,
            &[
                (3, 0x1000, 0x2000),
                (4, 0x1000, 0x2000),
                (5, 0x1000, 0x2000),
                (6, 0x1000, 0x2000),
                (7, 0x1000, 0x2000),
                (0, 0x2000, 0x2000),
                (1, 0x2000, 0x2000),
                (2, 0x2000, 0x1000),
            ],
        ),
    ];
    for &(parity, children, ashift, offset, psize, asize, columns) in table {
        let geometry = geometry(parity, children, ashift);
        assert_eq!(places(&geometry, offset, psize), columns, "raidz{parity} at {offset:x}");
        assert_eq!(geometry.allocated_size(psize as u64, Txg(10)), asize);
    }
}

/// Rows as (contents, child, offset), contents -1 for parity and -2 for nothing.
fn rows(offset: u64, expansions: Vec<Txg>, reflow: Option<Reflow>) -> Vec<Vec<(i64, usize, u64)>> {
    let geometry = RaidzGeometry::new(12, 1, 4, expansions, reflow).unwrap();
    let map = geometry.map(offset, 0x5000, Txg(10));
    let row = |stripe: &crate::stripe::Stripe| {
        let cell = |index: usize| {
            let column = map.columns[index];
            let contents = match (stripe.parity_columns().contains(&index), column.len) {
                (true, _) => -1,
                (false, 0) => -2,
                (false, _) => (column.start / 0x1000) as i64,
            };
            (contents, column.child, column.offset)
        };
        stripe.columns.clone().map(cell).collect()
    };
    map.stripes.iter().map(row).collect()
}

#[test]
fn expanded_blocks_are_where_openzfs_put_them() {
    let expanded = || vec![Txg(50)];
    let reflow = |offset| Some(Reflow { offset, scratch: RaidzScratch::InvalidSyncedReflow });
    assert_eq!(
        rows(0x5000, expanded(), None),
        [
            vec![(-1, 1, 0x1000), (0, 2, 0x1000), (3, 3, 0x1000)],
            vec![(-1, 0, 0x2000), (1, 1, 0x2000), (4, 2, 0x2000)],
            vec![(-1, 3, 0x2000), (2, 0, 0x3000), (-2, 1, 0x3000)],
        ]
    );
    assert_eq!(
        rows(0x105000, expanded(), None),
        [
            vec![(-1, 2, 0x41000), (0, 1, 0x41000), (3, 3, 0x41000)],
            vec![(-1, 1, 0x42000), (1, 0, 0x42000), (4, 2, 0x42000)],
            vec![(-1, 0, 0x43000), (2, 3, 0x42000), (-2, 1, 0x43000)],
        ]
    );
    assert_eq!(
        rows(0x5000, vec![], reflow(0x9000)),
        [
            vec![(-1, 1, 0x1000), (0, 2, 0x1000), (3, 3, 0x1000)],
            vec![(-1, 2, 0x2000), (1, 0, 0x3000), (4, 1, 0x3000)],
            vec![(-1, 2, 0x3000), (2, 0, 0x4000), (-2, 1, 0x4000)],
        ]
    );
    assert_eq!(
        rows(0x5000, vec![], Some(Reflow::NOT_STARTED)),
        [
            vec![(-1, 2, 0x1000), (0, 0, 0x2000), (3, 1, 0x2000)],
            vec![(-1, 2, 0x2000), (1, 0, 0x3000), (4, 1, 0x3000)],
            vec![(-1, 2, 0x3000), (2, 0, 0x4000), (-2, 1, 0x4000)],
        ]
    );
}

#[test]
fn a_block_across_the_reflow_offset_comes_from_both_places() {
    let reflow = Reflow { offset: 0x689f000, scratch: RaidzScratch::InvalidSyncedReflow };
    let geometry = RaidzGeometry::new(12, 1, 4, Vec::new(), Some(reflow)).unwrap();
    let map = geometry.map(0x6870000, 0x20000, Txg(10));
    assert_eq!(map.stripes.len(), 16);
    for (row, stripe) in map.stripes.iter().enumerate() {
        let width = if row < 15 { 4 } else { 3 };
        for column in &map.columns[stripe.columns.clone()] {
            assert_eq!(column.child as u64, column.sector % width);
            assert_eq!(column.offset, column.sector / width * 0x1000);
        }
    }
    assert_eq!(geometry.allocated_size(0x20000, Txg(10)), 0x30000);
}

#[test]
fn the_first_part_is_read_from_the_scratch_area_while_it_is_valid() {
    let reflow = Reflow { offset: 0x40000, scratch: RaidzScratch::Valid };
    let geometry = RaidzGeometry::new(12, 1, 4, Vec::new(), Some(reflow)).unwrap();
    let area = |offset| geometry.map(offset, 0x1000, Txg(10)).columns[0].area;
    assert_eq!(area(0x3e000), DeviceArea::Scratch);
    assert_eq!(area(0x3f000), DeviceArea::Data);
}

#[test]
fn widths_follow_the_birth_of_a_block() {
    let geometry =
        RaidzGeometry::new(12, 1, 6, vec![Txg(20), Txg(30)], Some(Reflow::NOT_STARTED)).unwrap();
    for (birth, width) in [(0, 3), (19, 3), (20, 4), (29, 4), (30, 5), (1000, 5)] {
        assert_eq!(geometry.logical_width(Txg(birth)), width, "{birth}");
    }
    assert_eq!(geometry.original_width(), 3);
    assert!(RaidzGeometry::new(12, 1, 3, vec![Txg(20)], Some(Reflow::NOT_STARTED)).is_none());
    assert!(RaidzGeometry::new(12, 1, 4, vec![Txg(20), Txg(10)], None).is_none());
    assert!(RaidzGeometry::new(8, 1, 4, vec![], None).is_none());
}

#[test]
fn gang_headers_take_one_data_sector_and_its_parity() {
    assert_eq!(geometry(1, 3, 12).allocated_size(512, Txg(0)), 0x2000);
    assert_eq!(geometry(3, 7, 9).allocated_size(512, Txg(0)), 0x800);
    assert_eq!(geometry(1, 3, 12).block_size(0x2000, Txg(0)), 0x1000);
}

proptest! {
    /// The columns of a block are exactly its sectors, whatever the geometry.
    #[test]
    fn a_map_covers_the_sectors_of_its_block(
        parity in 1usize..=3,
        extra in 1usize..10,
        ashift in 9u32..=13,
        row in 0u64..1 << 20,
        size in 1usize..1 << 18,
        old in 0usize..3,
        reflow in prop::option::of(0u64..1 << 21),
    ) {
        let reflow = reflow.map(|sector| Reflow {
            offset: sector << ashift,
            scratch: RaidzScratch::InvalidSyncedReflow,
        });
        let expansions: Vec<Txg> = (0..old).map(|step| Txg(20 + step as u64)).collect();
        let children = parity + extra + old + usize::from(reflow.is_some());
        let geometry = RaidzGeometry::new(ashift, parity, children, expansions, reflow).unwrap();
        let offset = row << ashift;
        let map = geometry.map(offset, size, Txg(10));
        let sectors = size.div_ceil(1 << ashift);

        let mut seen = vec![false; sectors];
        for stripe in &map.stripes {
            let longest = map.columns[stripe.columns.clone()].iter().map(|c| c.len).max();
            for index in stripe.data_columns() {
                let column = map.columns[index];
                let sectors = (column.start >> ashift)..(column.start + column.len) >> ashift;
                for sector in &mut seen[sectors] {
                    prop_assert!(!std::mem::replace(sector, true));
                }
            }
            for index in stripe.parity_columns() {
                prop_assert_eq!(Some(map.columns[index].len), longest);
            }
            let mut used: Vec<usize> = stripe.columns.clone().map(|i| map.columns[i].child).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), stripe.columns.len());
        }
        prop_assert!(seen.into_iter().all(|sector| sector));

        let asize = geometry.allocated_size(size as u64, Txg(10));
        let last = map.columns.iter().filter(|c| c.len > 0).map(|c| c.sector).max().unwrap();
        prop_assert!(last < row + (asize >> ashift));
        prop_assert!(geometry.block_size(asize, Txg(10)) >= (sectors as u64) << ashift);
        prop_assert!(map.columns.iter().all(|c| c.child < children));
    }
}
