//! What cannot be computed.

/// A stripe that has no parity, or a loss that the parity does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParityError {
    /// There are none or more than three parity columns, or none or more than 255 data columns.
    #[error("a stripe of {parity} parity and {data} data columns")]
    Shape {
        /// Parity columns.
        parity: usize,
        /// Data columns.
        data: usize,
    },
    /// Parity columns have different lengths, or a data column is longer than them.
    #[error("column {column} has {length} bytes, its parity {parity}")]
    Length {
        /// The column, parity columns counted first.
        column: usize,
        /// Its length in bytes.
        length: usize,
        /// The length that parity columns have.
        parity: usize,
    },
    /// More data columns are lost than parity columns are present.
    #[error("{missing} data columns are lost, {present} parity columns are there")]
    Lost {
        /// Data columns lost.
        missing: usize,
        /// Parity columns present.
        present: usize,
    },
}
