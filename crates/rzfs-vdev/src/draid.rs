//! dRAID: groups of fixed width, permuted over all children (spec 07, section 11).
//!
//! The logical space is a sequence of groups; a group is as wide as data and parity together and
//! 16 MiB high on each of its columns. As many groups as fill whole rows of all children but the
//! spares make a slice, and every slice has its own permutation of the children:
//!
//! ```text
//! draid2:4d:9c:1s, slice 0, permutation 7 3 6 5 0 2 8 4 1
//! child      7   3   6   5   0   2   8   4   1
//! row 0     |g0  g0  g0  g0  g0  g0| g1  g1| spare        a cell is 16 MiB high
//! row 1      g1  g1  g1  g1| g2  g2  g2  g2| spare
//! row 2      g2  g2| g3  g3  g3  g3  g3  g3| spare
//! ```
//!
//! Blocks take whole stripes of their group. A block that extends beyond its group continues in the
//! next one with another permutation.

mod permutation;
mod seeds;

pub use permutation::{MapMismatch, PermutationMap};

use crate::stripe::{DeviceArea, StripeColumn, StripeMap};

/// Height of a row on every child, in bytes.
pub const ROW_HEIGHT: u64 = 16 << 20;

/// Bytes at the end of every child that are kept for later use.
pub const RESERVE: u64 = 32 << 20;

/// Why values do not describe a valid dRAID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DraidProblem {
    /// A configuration key with a value out of range.
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
    },
    /// The generated permutation map is wrong.
    Map(MapMismatch),
}

/// The numbers that describe a dRAID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DraidShape {
    /// log2 of the smallest I/O.
    pub ashift: u32,
    /// Parity columns of a group, 1 to 3.
    pub parity: usize,
    /// Data columns of a group.
    pub data: usize,
    /// Distributed spares.
    pub spares: usize,
    /// Groups of a slice.
    pub groups: u64,
    /// Children, 2 to 255.
    pub children: usize,
}

impl DraidShape {
    /// Maximum distributed spares.
    pub const MAX_SPARES: usize = 100;

    fn check(&self) -> Result<(), DraidProblem> {
        let bad = |key, value| Err(DraidProblem::Value { key, value });
        let width = self.data.saturating_add(self.parity);
        let working = self.children.saturating_sub(self.spares);
        if !(9..=16).contains(&self.ashift) {
            return bad("ashift", u64::from(self.ashift));
        }
        if !(1..=3).contains(&self.parity) {
            return bad("nparity", self.parity as u64);
        }
        if !(2..=255).contains(&self.children) {
            return bad("children", self.children as u64);
        }
        if self.spares > Self::MAX_SPARES || self.spares >= self.children {
            return bad("draid_nspares", self.spares as u64);
        }
        if self.data == 0 || width > working {
            return bad("draid_ndata", self.data as u64);
        }
        let product = self.groups.saturating_mul(width as u64);
        if !(1..=255).contains(&self.groups) || !product.is_multiple_of(working as u64) {
            return bad("draid_ngroups", self.groups);
        }
        Ok(())
    }
}

/// The geometry of a dRAID vdev.
#[derive(Clone, Debug)]
pub struct DraidGeometry {
    shape: DraidShape,
    map: PermutationMap,
}

impl DraidGeometry {
    /// The geometry of a checked shape.
    ///
    /// # Errors
    /// When a value is out of range, or the permutation map is not OpenZFS's.
    pub fn new(shape: DraidShape) -> Result<Self, DraidProblem> {
        shape.check()?;
        let map = PermutationMap::generate(shape.children).map_err(DraidProblem::Map)?;
        Ok(Self { shape, map })
    }

    /// The numbers that it was made of.
    #[must_use]
    pub fn shape(&self) -> &DraidShape {
        &self.shape
    }

    fn group_width(&self) -> u64 {
        (self.shape.data + self.shape.parity) as u64
    }

    /// Children that hold data in any one slice.
    fn working_children(&self) -> u64 {
        self.shape.children.saturating_sub(self.shape.spares).max(1) as u64
    }

    /// Allocated bytes of a group.
    fn group_size(&self) -> u64 {
        self.group_width() * ROW_HEIGHT
    }

    /// Where the group of an offset ends.
    #[must_use]
    pub fn group_end(&self, offset: u64) -> u64 {
        (offset / self.group_size()).saturating_add(1).saturating_mul(self.group_size())
    }

    /// Size of one stripe of single sectors: the unit of offsets and sizes.
    #[must_use]
    pub fn stripe_size(&self) -> u64 {
        self.group_width() << self.shape.ashift
    }

    /// Height of a slice on every child.
    fn slice_height(&self) -> u64 {
        self.group_size().saturating_mul(self.shape.groups) / self.working_children()
    }

    /// Allocated size of a block of `psize` bytes (spec 07, section 11.2); saturates.
    #[must_use]
    pub fn allocated_size(&self, psize: u64) -> u64 {
        let stripe_data = (self.shape.data as u64) << self.shape.ashift;
        psize.div_ceil(stripe_data).saturating_mul(self.stripe_size())
    }

    /// The largest block that fits into an allocation of `asize` bytes.
    #[must_use]
    pub fn block_size(&self, asize: u64) -> u64 {
        (asize / self.group_width()).saturating_mul(self.shape.data as u64)
    }

    /// Data bytes of the smallest allocation.
    #[must_use]
    pub fn min_allocation(&self) -> u64 {
        (self.shape.data as u64) << self.shape.ashift
    }

    /// Allocatable bytes with children of at least `child_asize` bytes (spec 07, section 11.2).
    #[must_use]
    pub fn vdev_size(&self, child_asize: u64) -> u64 {
        let usable = child_asize.saturating_sub(RESERVE) / ROW_HEIGHT * ROW_HEIGHT;
        usable.saturating_mul(self.working_children()) / self.group_size() * self.group_size()
    }

    /// The child that holds byte `offset` of the distributed spare `index`.
    #[must_use]
    pub fn spare_device(&self, index: usize, offset: u64) -> Option<usize> {
        let position = self.shape.children.checked_sub(1)?.checked_sub(index)?;
        (index < self.shape.spares)
            .then(|| self.map.device(offset / self.slice_height().max(1), position))
    }

    /// Where a block of `size` bytes at `offset` lies. The map covers whole sectors.
    #[must_use]
    pub fn map(&self, offset: u64, size: usize) -> StripeMap {
        let size = size.next_multiple_of(1 << self.shape.ashift);
        let mut map = StripeMap::default();
        let left_in_group = self.group_size() - offset % self.group_size();
        let fits = (left_in_group / self.group_width()).saturating_mul(self.shape.data as u64);
        let first = usize::try_from(fits).map_or(size, |fits| size.min(fits));
        self.push_part(&mut map, offset, 0, first);
        if first < size {
            self.push_part(&mut map, offset.saturating_add(left_in_group), first, size - first);
        }
        map
    }

    /// Adds the stripe of `size` bytes from `start` of the block on, at `offset` of one group.
    fn push_part(&self, map: &mut StripeMap, offset: u64, start: usize, size: usize) {
        let (width, working) = (self.group_width(), self.working_children());
        let group = offset / self.group_size();
        let (slice, in_slice) = (group / self.shape.groups, group % self.shape.groups);
        let first_column = in_slice * width % working;
        let row = slice
            .saturating_mul(width * self.shape.groups / working)
            .saturating_add(in_slice * width / working);
        let in_column = (offset % self.group_size() / self.stripe_size()) << self.shape.ashift;
        let base = row.saturating_mul(ROW_HEIGHT).saturating_add(in_column);

        let sectors = size >> self.shape.ashift;
        let (full, longer) = (sectors / self.shape.data, sectors % self.shape.data);
        let height = (full + usize::from(longer != 0)) << self.shape.ashift;
        let column = |index: usize| {
            let place = first_column.saturating_add(index as u64);
            let (position, wraps) = (place % working, place >= working);
            let data = index.checked_sub(self.shape.parity);
            let len = data
                .map_or(height, |data| (full + usize::from(data < longer)) << self.shape.ashift);
            StripeColumn {
                child: self.map.device(slice, position as usize),
                offset: base.saturating_add(if wraps { ROW_HEIGHT } else { 0 }),
                area: DeviceArea::Data,
                len,
                filler: height - len,
                start: data.map_or(0, |data| {
                    start + ((data * full + data.min(longer)) << self.shape.ashift)
                }),
                sector: 0,
            }
        };
        map.push(self.shape.parity, (0..width as usize).map(column));
    }
}

#[cfg(test)]
mod tests;
