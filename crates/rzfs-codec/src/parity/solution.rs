//! The linear equations that lost columns solve (spec 07, section 8.1).
//!
//! A syndrome is a stored parity plus the parity of what is present: the sum of the lost columns
//! under that parity's coefficients. With k lost columns and k syndromes, the first lost column
//! is a weighted sum of all syndromes; taken out of the first k - 1 syndromes it leaves the same
//! problem with one column less.

use super::error::ParityError;
use super::field::{divide, multiply, power};
use super::stripe::{Column, MAX_PARITY};

/// How the lost columns follow from the syndromes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solution {
    steps: [Step; MAX_PARITY],
    count: usize,
    rows: [usize; MAX_PARITY],
}

/// How one lost column follows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Step {
    /// The data column.
    pub(super) column: usize,
    /// Its coefficient in each of the syndromes used.
    pub(super) coefficients: [u8; MAX_PARITY],
    /// What each syndrome that is left counts in it.
    pub(super) weights: [u8; MAX_PARITY],
}

impl Solution {
    /// The solution for the data columns that are missing; none when none is.
    pub(super) fn of(
        parity: &[Column<'_>],
        data: &[Column<'_>],
    ) -> Result<Option<Self>, ParityError> {
        let is_missing = |column: &&Column<'_>| matches!(column, Column::Missing(_));
        let missing = data.iter().filter(is_missing).count();
        let mut rows = [0; MAX_PARITY];
        let mut present = 0;
        for (index, column) in parity.iter().enumerate() {
            if matches!(column, Column::Present(_)) {
                rows[present] = index;
                present += 1;
            }
        }
        if missing > present {
            return Err(ParityError::Lost { missing, present });
        }
        if missing == 0 {
            return Ok(None);
        }
        let mut steps = [Step::default(); MAX_PARITY];
        let lost = data.iter().enumerate().filter(|(_, column)| is_missing(column));
        for (step, (column, _)) in steps.iter_mut().zip(lost) {
            let exponent = data.len() - 1 - column;
            *step = Step {
                column,
                coefficients: rows.map(|row| power(exponent * row)),
                weights: [0; MAX_PARITY],
            };
        }
        let mut solution = Self { steps, count: missing, rows };
        for first in 0..missing {
            let weights = weights(&solution.steps[first..missing]);
            solution.steps[first].weights = weights;
        }
        Ok(Some(solution))
    }

    /// The lost columns, in the order in which they are solved.
    #[inline(always)]
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.count]
    }

    /// The parity columns whose syndromes are used, as many as columns are lost.
    #[inline(always)]
    pub(super) fn rows(&self) -> &[usize] {
        &self.rows[..self.count]
    }

    /// The parity columns used, as bits.
    pub(super) fn mask(&self) -> u8 {
        self.rows().iter().fold(0, |mask, row| mask | 1 << row)
    }
}

/// The weights of the syndromes in the first of the columns that are left. The determinants
/// are not 0 because the coefficients are powers of different numbers.
fn weights(left: &[Step]) -> [u8; MAX_PARITY] {
    match left {
        [x] => [divide(1, x.coefficients[0]), 0, 0],
        [x, y] => {
            let ([a, c, _], [b, d, _]) = (x.coefficients, y.coefficients);
            let determinant = multiply(a, d) ^ multiply(b, c);
            [divide(d, determinant), divide(b, determinant), 0]
        }
        // Three lost columns take P, Q and R, whose coefficients are 1, a and a^2.
        [x, y, z] => {
            let [a, b, c] = [x, y, z].map(|step| step.coefficients[1]);
            let determinant = multiply(a ^ b, a ^ c);
            [multiply(b, c), b ^ c, 1].map(|weight| divide(weight, determinant))
        }
        _ => [0; MAX_PARITY],
    }
}
