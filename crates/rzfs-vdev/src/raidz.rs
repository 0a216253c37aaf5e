//! RAID-Z: where the columns of a block are (spec 07, sections 7 and 10).
//!
//! The sectors of all children form one space, row by row: sector k of an n-wide vdev is sector
//! k / n of child k mod n. A block takes consecutive sectors of that space, and reads as columns,
//! one per child: first parity, then data, each data column a contiguous part of the block.
//!
//! ```text
//! raidz1, 4 children, a block of 5 sectors D0..D4 at sector 1
//!          child 0   child 1   child 2   child 3
//! row 0       .         P         D0        D2          column 0 = P, 1 = D0 D1,
//! row 1       D4        P'        D1        D3          column 2 = D2 D3, 3 = D4
//! ```
//!
//! Expansion adds a child and moves every sector k from its place in the narrow vdev to the one
//! in the wide vdev. Blocks keep their sectors, so those born before have their old number of
//! columns and a stripe per row, whose columns lie wherever the wide vdev has these sectors.

mod expanded;

use crate::stripe::{DeviceArea, StripeColumn, StripeMap};
use rzfs_format::uberblock::{RaidzReflow, RaidzScratch};
use rzfs_format::{FormatError, Txg};

/// Bit of a block's offset that swaps the parity column and the first data column of raidz1.
const PARITY_SWAP: u64 = 1 << 20;

/// The progress of a running expansion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reflow {
    /// All sectors below this offset of the vdev are at their new places; bytes.
    pub offset: u64,
    /// Where the first part is.
    pub scratch: RaidzScratch,
}

impl Reflow {
    /// Nothing was moved yet.
    pub const NOT_STARTED: Self = Self { offset: 0, scratch: RaidzScratch::NotInUse };
}

impl TryFrom<RaidzReflow> for Reflow {
    type Error = FormatError;

    fn try_from(word: RaidzReflow) -> Result<Self, FormatError> {
        Ok(Self { offset: word.offset(), scratch: word.scratch()? })
    }
}

/// The geometry of a RAID-Z vdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaidzGeometry {
    ashift: u32,
    parity: usize,
    children: usize,
    expansions: Vec<Txg>,
    reflow: Option<Reflow>,
}

impl RaidzGeometry {
    /// Most children of a RAID-Z vdev.
    pub const MAX_CHILDREN: usize = 255;

    /// The geometry of `children` devices with `parity` (1 to 3) parity columns; `None` unless
    /// `ashift` is 9 to 16 and at least one data column remains at every width the vdev ever had.
    ///
    /// `expansions` has, for every finished expansion, the first txg of its width, ascending;
    /// `reflow` is the progress of a running one.
    #[must_use]
    pub fn new(
        ashift: u32,
        parity: usize,
        children: usize,
        expansions: Vec<Txg>,
        reflow: Option<Reflow>,
    ) -> Option<Self> {
        let steps = expansions.len().saturating_add(usize::from(reflow.is_some()));
        let sound = (9..=16).contains(&ashift)
            && (1..=3).contains(&parity)
            && children <= Self::MAX_CHILDREN
            && children.saturating_sub(steps) > parity
            && expansions.is_sorted();
        sound.then_some(Self { ashift, parity, children, expansions, reflow })
    }

    /// Parity columns.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Children that hold data: the width at which sectors are located.
    #[must_use]
    pub fn physical_width(&self) -> usize {
        self.children
    }

    /// Columns of a block that was physically born in `birth` (spec 07, section 7.6).
    #[must_use]
    pub fn logical_width(&self, birth: Txg) -> usize {
        let to_come = self.expansions.iter().filter(|first| **first > birth).count();
        self.children.saturating_sub(to_come).saturating_sub(usize::from(self.reflow.is_some()))
    }

    /// Columns that the first blocks of the vdev have.
    #[must_use]
    pub fn original_width(&self) -> usize {
        self.logical_width(Txg(0))
    }

    fn sectors(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.ashift)
    }

    /// Allocated size of a block of `psize` bytes, parity and padding included (spec 07, section
    /// 7.1); saturates.
    #[must_use]
    pub fn allocated_size(&self, psize: u64, birth: Txg) -> u64 {
        let parity = self.parity as u64;
        let data_columns = (self.logical_width(birth) as u64).saturating_sub(parity).max(1);
        let data = self.sectors(psize);
        let total = data.saturating_add(parity.saturating_mul(data.div_ceil(data_columns)));
        total
            .checked_next_multiple_of(parity + 1)
            .unwrap_or(u64::MAX)
            .saturating_mul(1 << self.ashift)
    }

    /// The largest block that fits into an allocation of `asize` bytes (spec 07, section 7.3).
    #[must_use]
    pub fn block_size(&self, asize: u64, birth: Txg) -> u64 {
        let (width, parity) = (self.logical_width(birth).max(1) as u64, self.parity as u64);
        let mut sectors = asize >> self.ashift;
        if sectors % width <= parity {
            sectors -= sectors % width;
        }
        sectors.saturating_sub(parity.saturating_mul(sectors.div_ceil(width))) << self.ashift
    }

    /// Where a block of `size` bytes at `offset` lies. The map covers whole sectors.
    #[must_use]
    pub fn map(&self, offset: u64, size: usize, birth: Txg) -> StripeMap {
        let width = self.logical_width(birth);
        let shape = Shape::new(self.sectors(size as u64), width as u64, self.parity as u64);
        if width == self.children {
            self.plain_map(offset, shape)
        } else {
            self.expanded_map(offset, shape)
        }
    }

    /// Whether the parity column is swapped with the first data column.
    fn swaps_parity(&self, offset: u64) -> bool {
        self.parity == 1 && offset & PARITY_SWAP != 0
    }

    /// A block whose sectors are where its columns say (spec 07, section 7.1).
    fn plain_map(&self, offset: u64, shape: Shape) -> StripeMap {
        let first = offset >> self.ashift;
        let mut start = 0;
        let mut columns: Vec<StripeColumn> = (0..shape.columns())
            .map(|column| {
                let sector = first.saturating_add(column);
                let len = (shape.column_sectors(column) << self.ashift) as usize;
                let data_start = if column < shape.parity { 0 } else { start };
                if column >= shape.parity {
                    start += len;
                }
                StripeColumn {
                    child: (sector % shape.width) as usize,
                    offset: (sector / shape.width) << self.ashift,
                    area: DeviceArea::Data,
                    len,
                    filler: 0,
                    start: data_start,
                    sector,
                }
            })
            .collect();
        if self.swaps_parity(offset) {
            swap_places(&mut columns);
        }
        let mut map = StripeMap::default();
        map.push(self.parity, columns);
        map
    }
}

/// Exchanges the places of the first two columns.
fn swap_places(columns: &mut [StripeColumn]) {
    if let [first, second, ..] = columns {
        std::mem::swap(&mut first.child, &mut second.child);
        std::mem::swap(&mut first.offset, &mut second.offset);
        std::mem::swap(&mut first.area, &mut second.area);
        std::mem::swap(&mut first.sector, &mut second.sector);
    }
}

/// How the sectors of a block fall into columns.
#[derive(Clone, Copy, Debug)]
struct Shape {
    width: u64,
    parity: u64,
    /// Sectors that every data column of a full block has.
    full: u64,
    /// Data columns that have one sector more.
    longer: u64,
    /// Data sectors.
    sectors: u64,
}

impl Shape {
    fn new(sectors: u64, width: u64, parity: u64) -> Self {
        let data_columns = width.saturating_sub(parity).max(1);
        Self {
            width,
            parity,
            full: sectors / data_columns,
            longer: sectors % data_columns,
            sectors,
        }
    }

    /// Columns, parity first, that have one sector more than the others.
    fn big_columns(self) -> u64 {
        if self.longer == 0 { 0 } else { self.longer + self.parity }
    }

    /// Columns with content.
    fn columns(self) -> u64 {
        if self.full == 0 { self.big_columns() } else { self.width }
    }

    fn column_sectors(self, column: u64) -> u64 {
        self.full + u64::from(column < self.big_columns())
    }

    /// Sectors with content, parity included.
    fn total(self) -> u64 {
        self.sectors + self.parity * (self.full + u64::from(self.longer != 0))
    }
}

#[cfg(test)]
mod tests;
