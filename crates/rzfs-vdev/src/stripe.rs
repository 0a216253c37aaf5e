//! Stripes: the location of a block's bytes on children, and their protection.
//!
//! Every layout is described in the same terms. A block is a list of stripes; a stripe has parity
//! columns, then data columns; a column is a contiguous range of one child. A mirror's block is one
//! stripe of one data column without parity; RAID-Z's is one stripe, or one per row if the vdev was
//! expanded after the block was born; dRAID's is one stripe for each group involved.

use std::ops::Range;

/// Which part of a child's device a column lies in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceArea {
    /// The allocatable space.
    Data,
    /// The scratch area, while the first part of a RAID-Z expansion is being moved.
    Scratch,
}

/// A contiguous range of one child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeColumn {
    /// Index of the child.
    pub child: usize,
    /// Offset in the area of the child, in bytes.
    pub offset: u64,
    /// The area.
    pub area: DeviceArea,
    /// Bytes with content; 0 for a data column that a short stripe does not reach.
    pub len: usize,
    /// Zero bytes that follow the content and take part in the parity (dRAID).
    pub filler: usize,
    /// For data columns, where the content belongs in the block.
    pub start: usize,
    /// Number of the first sector in the row-major order of the vdev (RAID-Z).
    pub sector: u64,
}

/// A set of columns that protect each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// The columns by index in [`StripeMap::columns`]: parity first, then data.
    pub columns: Range<usize>,
    /// How many of them are parity.
    pub parity: usize,
}

impl Stripe {
    /// The parity columns.
    #[must_use]
    pub fn parity_columns(&self) -> Range<usize> {
        self.columns.start..self.columns.start.saturating_add(self.parity).min(self.columns.end)
    }

    /// The data columns.
    #[must_use]
    pub fn data_columns(&self) -> Range<usize> {
        self.parity_columns().end..self.columns.end
    }
}

/// Where a block lies on the children of a vdev.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StripeMap {
    /// The stripes.
    pub stripes: Vec<Stripe>,
    /// The columns of all stripes.
    pub columns: Vec<StripeColumn>,
}

impl StripeMap {
    /// The map of `len` contiguous bytes.
    #[must_use]
    pub fn single(child: usize, offset: u64, len: usize) -> Self {
        let column = StripeColumn {
            child,
            offset,
            area: DeviceArea::Data,
            len,
            filler: 0,
            start: 0,
            sector: 0,
        };
        Self { stripes: vec![Stripe { columns: 0..1, parity: 0 }], columns: vec![column] }
    }

    /// Adds a stripe of these columns.
    pub(crate) fn push(&mut self, parity: usize, columns: impl IntoIterator<Item = StripeColumn>) {
        let start = self.columns.len();
        self.columns.extend(columns);
        self.stripes.push(Stripe { columns: start..self.columns.len(), parity });
    }
}
