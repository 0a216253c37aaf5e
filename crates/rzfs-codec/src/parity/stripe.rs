//! The columns of a stripe, as callers give them and as the kernels see them.

/// Most parity columns of a stripe: P, Q and R.
pub const MAX_PARITY: usize = 3;

/// A column of a stripe that is to be reconstructed.
#[derive(Debug)]
pub enum Column<'a> {
    /// The bytes are good.
    Present(&'a [u8]),
    /// The bytes are lost; reconstruction puts them here. The length is the column's.
    Missing(&'a mut [u8]),
    /// A parity column that is neither known nor wanted.
    Absent,
}

impl Column<'_> {
    /// The length in bytes; none when absent.
    pub(super) const fn length(&self) -> Option<usize> {
        match self {
            Self::Present(bytes) => Some(bytes.len()),
            Self::Missing(bytes) => Some(bytes.len()),
            Self::Absent => None,
        }
    }
}

/// Parity columns to be computed: P, Q, R.
pub(super) type Rows<'a> = [Option<&'a mut [u8]>; MAX_PARITY];

/// The data columns of a stripe. A column that ends is followed by zeros.
pub(super) trait Stripe {
    /// Number of data columns.
    fn columns(&self) -> usize;

    /// Known bytes of a data column.
    fn column(&self, index: usize) -> &[u8];

    /// The offset behind `offset` at which a column ends, or `length`: up to there, a column
    /// is either present or not.
    fn segment_end(&self, offset: usize, length: usize) -> usize {
        (0..self.columns())
            .map(|index| self.column_length(index))
            .filter(|end| *end > offset)
            .fold(length, usize::min)
    }

    /// Length of a data column, known or not.
    fn column_length(&self, index: usize) -> usize {
        self.column(index).len()
    }
}

impl Stripe for &[&[u8]] {
    #[inline(always)]
    fn columns(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn column(&self, index: usize) -> &[u8] {
        self[index]
    }
}

/// A stripe whose missing columns count as zeros and are written.
pub(super) struct Known<'a, 'b> {
    pub(super) rows: &'a mut [Column<'b>],
    pub(super) data: &'a mut [Column<'b>],
}

impl Known<'_, '_> {
    /// Bytes of a parity column that is present.
    #[inline(always)]
    pub(super) fn row(&self, index: usize) -> &[u8] {
        match self.rows.get(index) {
            Some(Column::Present(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Bytes of a missing column, to be written.
    #[inline(always)]
    pub(super) fn missing(&mut self, index: usize) -> &mut [u8] {
        match self.data.get_mut(index) {
            Some(Column::Missing(bytes)) => bytes,
            _ => &mut [],
        }
    }
}

impl Stripe for Known<'_, '_> {
    #[inline(always)]
    fn columns(&self) -> usize {
        self.data.len()
    }

    #[inline(always)]
    fn column(&self, index: usize) -> &[u8] {
        match &self.data[index] {
            Column::Present(bytes) => bytes,
            Column::Missing(_) | Column::Absent => &[],
        }
    }

    fn column_length(&self, index: usize) -> usize {
        self.data[index].length().unwrap_or(0)
    }
}

/// A stripe whose missing columns have been reconstructed.
pub(super) struct Complete<'a, 'b>(pub(super) &'a [Column<'b>]);

impl Stripe for Complete<'_, '_> {
    #[inline(always)]
    fn columns(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn column(&self, index: usize) -> &[u8] {
        match &self.0[index] {
            Column::Present(bytes) => bytes,
            Column::Missing(bytes) => bytes,
            Column::Absent => &[],
        }
    }
}
