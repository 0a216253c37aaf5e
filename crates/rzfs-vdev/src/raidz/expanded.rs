//! Blocks that are narrower than their vdev (spec 07, section 10.3).

use super::{RaidzGeometry, Reflow, Shape, swap_places};
use crate::stripe::{DeviceArea, StripeColumn, StripeMap};
use rzfs_format::uberblock::RaidzScratch;

impl RaidzGeometry {
    /// A block whose sectors were moved, or are being moved, to a wider vdev: a stripe per row.
    pub(super) fn expanded_map(&self, offset: u64, shape: Shape) -> StripeMap {
        let first = offset >> self.ashift;
        let rows = shape.total().div_ceil(shape.width);
        let columns = shape.total().min(shape.width);
        let mut map = StripeMap::default();
        map.stripes.reserve(rows as usize);
        map.columns.reserve(rows.saturating_mul(columns) as usize);
        for row in 0..rows {
            let row_start = first.saturating_add(row * shape.width);
            let place = self.row_place(row_start.saturating_add(columns));
            let before = map.columns.len();
            map.push(
                self.parity,
                (0..columns).map(|column| {
                    let data = shape.data_sector(row, rows, column);
                    self.cell(place, row_start.saturating_add(column), data)
                }),
            );
            if columns > 1 && self.swaps_parity(offset) {
                swap_places(map.columns.get_mut(before..).unwrap_or_default());
            }
        }
        map
    }

    /// Where the sectors of a row are that ends before sector `end`.
    fn row_place(&self, end: u64) -> RowPlace {
        match self.reflow {
            Some(Reflow { offset, .. }) if end > offset >> self.ashift => {
                RowPlace { width: self.children.saturating_sub(1).max(1), area: DeviceArea::Data }
            }
            Some(Reflow { scratch: RaidzScratch::Valid, .. }) => {
                RowPlace { width: self.children, area: DeviceArea::Scratch }
            }
            _ => RowPlace { width: self.children, area: DeviceArea::Data },
        }
    }

    fn cell(&self, place: RowPlace, sector: u64, content: Cell) -> StripeColumn {
        let width = place.width as u64;
        let (len, start) = match content {
            Cell::Parity => (1usize << self.ashift, 0),
            Cell::Data(number) => (1 << self.ashift, (number << self.ashift) as usize),
            Cell::Nothing => (0, 0),
        };
        StripeColumn {
            child: (sector % width) as usize,
            offset: (sector / width) << self.ashift,
            area: place.area,
            len,
            filler: 0,
            start,
            sector,
        }
    }
}

/// Where the sectors of a row are to be found.
#[derive(Clone, Copy)]
struct RowPlace {
    width: usize,
    area: DeviceArea,
}

/// What a column of a row holds.
#[derive(Clone, Copy)]
enum Cell {
    Parity,
    /// This sector of the block.
    Data(u64),
    Nothing,
}

impl Shape {
    /// What `column` of `row` holds. Data runs down the columns, not along the rows.
    fn data_sector(self, row: u64, rows: u64, column: u64) -> Cell {
        if column < self.parity {
            return Cell::Parity;
        }
        let data = column - self.parity;
        let is_short = self.longer != 0 && column >= self.big_columns();
        match (is_short, row + 1 == rows) {
            (false, _) => Cell::Data(data * rows + row),
            (true, true) => Cell::Nothing,
            (true, false) => {
                Cell::Data(self.longer * rows + (data - self.longer) * (rows - 1) + row)
            }
        }
    }
}
