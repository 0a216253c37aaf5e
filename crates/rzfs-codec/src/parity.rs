//! Parity of RAID-Z and dRAID stripes (spec 07, section 8).
//!
//! With m data columns `D_0 .. D_m-1` and the field GF(2^8),
//!
//! ```text
//! P = sum D_i        Q = sum 2^(m-1-i) D_i        R = sum 4^(m-1-i) D_i
//! ```
//!
//! byte by byte; a column shorter than the first counts as if zeros followed. Up to as many lost
//! columns as parity columns are left can be computed back.
//!
//! The sums are Horner schemes: for every column, Q is doubled and R is multiplied by 4 before
//! the column is added. The kernels do that for some hundred bytes of all columns at a time, so
//! that the sums stay in vector registers and every byte is read once.

mod blocks;
mod error;
mod field;
mod kernel;
mod solution;
mod stripe;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use error::ParityError;
pub use kernel::Kernel;
pub use stripe::{Column, MAX_PARITY};

use solution::Solution;
use stripe::{Complete, Known, Rows};

/// Most data columns of a stripe: so many powers of 2 are different in the field.
pub const MAX_DATA: usize = 255;

/// Computes the parity columns (P; P and Q; or P, Q and R) of the data columns.
///
/// All parity columns have the same length, and no data column is longer.
///
/// # Errors
/// [`ParityError::Shape`] and [`ParityError::Length`]; nothing is written then.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), ParityError> {
    generate_with(Kernel::detect(), data, parity)
}

/// [`generate`] by a certain kernel: for tests and benches.
///
/// # Errors
/// As [`generate`].
pub fn generate_with(
    kernel: Kernel,
    data: &[&[u8]],
    parity: &mut [&mut [u8]],
) -> Result<(), ParityError> {
    check_shape(parity.len(), data.len())?;
    let length = parity.first().map_or(0, |column| column.len());
    let columns = parity.iter().map(|column| column.len()).chain(data.iter().map(|d| d.len()));
    check_lengths(length, parity.len(), columns.map(Some))?;
    let mut rows: Rows<'_> = [None, None, None];
    for (row, column) in rows.iter_mut().zip(parity) {
        *row = Some(column);
    }
    kernel.generate(&data, length, &mut rows);
    Ok(())
}

/// Computes the columns that are [`Column::Missing`] from those that are present.
///
/// `columns` are the parity columns, P first, `parity` of them, and then the data columns. Of
/// more parity columns than are needed, the first ones are used; missing parity columns are
/// computed from the completed data. Without missing columns nothing happens.
///
/// The result is as good as what is present: whoever knows the block's checksum verifies it.
///
/// # Errors
/// [`ParityError`]; nothing is written then. A data column that is absent is an error of shape.
pub fn reconstruct(parity: usize, columns: &mut [Column<'_>]) -> Result<(), ParityError> {
    reconstruct_with(Kernel::detect(), parity, columns)
}

/// [`reconstruct`] by a certain kernel: for tests and benches.
///
/// # Errors
/// As [`reconstruct`].
pub fn reconstruct_with(
    kernel: Kernel,
    parity: usize,
    columns: &mut [Column<'_>],
) -> Result<(), ParityError> {
    let shape = ParityError::Shape { parity, data: columns.len().saturating_sub(parity) };
    let (rows, data) = columns.split_at_mut_checked(parity).ok_or(shape)?;
    check_shape(rows.len(), data.len())?;
    if data.iter().any(|column| matches!(column, Column::Absent)) {
        return Err(shape);
    }
    let longest = data.iter().filter_map(Column::length).max().unwrap_or(0);
    let length = rows.iter().find_map(Column::length).unwrap_or(longest);
    check_lengths(length, parity, rows.iter().chain(data.iter()).map(Column::length))?;
    if let Some(solution) = Solution::of(rows, data)? {
        let mut known = Known { rows, data };
        kernel.solve(&mut known, length, &solution);
    }
    let mut wanted: Rows<'_> = [None, None, None];
    for (wanted, column) in wanted.iter_mut().zip(rows) {
        if let Column::Missing(bytes) = column {
            *wanted = Some(bytes);
        }
    }
    if wanted.iter().any(Option::is_some) {
        kernel.generate(&Complete(data), length, &mut wanted);
    }
    Ok(())
}

const fn check_shape(parity: usize, data: usize) -> Result<(), ParityError> {
    if parity == 0 || parity > MAX_PARITY || data == 0 || data > MAX_DATA {
        return Err(ParityError::Shape { parity, data });
    }
    Ok(())
}

/// Parity columns must have the length, data columns at most.
fn check_lengths(
    parity_length: usize,
    parity: usize,
    lengths: impl Iterator<Item = Option<usize>>,
) -> Result<(), ParityError> {
    for (column, length) in lengths.enumerate() {
        let Some(length) = length else { continue };
        if length > parity_length || (column < parity && length < parity_length) {
            return Err(ParityError::Length { column, length, parity: parity_length });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
