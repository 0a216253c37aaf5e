//! The loops over the blocks of a stripe, generic over the vector.
//!
//! A stripe is cut into segments where columns end, and those into blocks of some vectors. In a
//! segment a column is present or not; what is left of it behind its last whole block goes byte
//! by byte. Lengths are multiples of a sector, so that hardly ever happens.
#![allow(unsafe_code)]

use super::solution::Solution;
use super::stripe::{Known, MAX_PARITY, Rows, Stripe};
use super::vector::Vector;
use std::ops::Range;

/// The bytes of a block, if the column has it.
#[inline(always)]
fn block<const BLOCK: usize>(column: &[u8], offset: usize) -> Option<&[u8; BLOCK]> {
    column.get(offset..)?.first_chunk()
}

/// The parity of one block of all columns: the rows of `MASK`, the others zero.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn accumulate<V: Vector, const BLOCK: usize, const UNROLL: usize, const MASK: u8>(
    stripe: &impl Stripe,
    offset: usize,
) -> [[V; UNROLL]; MAX_PARITY] {
    const { assert!(UNROLL * V::BYTES == BLOCK) };
    // SAFETY: the caller vouches for the instructions; a block is UNROLL vectors.
    unsafe {
        let mut sums = [[V::zero(); UNROLL]; MAX_PARITY];
        let [p, q, r] = &mut sums;
        for column in 0..stripe.columns() {
            if MASK & 2 != 0 {
                *q = q.map(|sum| sum.double());
            }
            if MASK & 4 != 0 {
                *r = r.map(|sum| sum.double().double());
            }
            let Some(bytes) = block::<BLOCK>(stripe.column(column), offset) else { continue };
            for lane in 0..UNROLL {
                let data = V::load(bytes.as_ptr().add(lane * V::BYTES));
                if MASK & 1 != 0 {
                    p[lane] = p[lane].add(data);
                }
                if MASK & 2 != 0 {
                    q[lane] = q[lane].add(data);
                }
                if MASK & 4 != 0 {
                    r[lane] = r[lane].add(data);
                }
            }
        }
        sums
    }
}

/// Computes the rows asked for in the whole blocks of `range`, and tells where those end.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn generate_blocks<V: Vector, const BLOCK: usize, const UNROLL: usize>(
    stripe: &impl Stripe,
    range: Range<usize>,
    rows: &mut Rows<'_>,
) -> usize {
    let mask = (0..MAX_PARITY).fold(0, |mask, row| mask | u8::from(rows[row].is_some()) << row);
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        match mask {
            0b001 => generate_rows::<V, BLOCK, UNROLL, 0b001>(stripe, range, rows),
            0b010 => generate_rows::<V, BLOCK, UNROLL, 0b010>(stripe, range, rows),
            0b011 => generate_rows::<V, BLOCK, UNROLL, 0b011>(stripe, range, rows),
            0b100 => generate_rows::<V, BLOCK, UNROLL, 0b100>(stripe, range, rows),
            0b101 => generate_rows::<V, BLOCK, UNROLL, 0b101>(stripe, range, rows),
            0b110 => generate_rows::<V, BLOCK, UNROLL, 0b110>(stripe, range, rows),
            _ => generate_rows::<V, BLOCK, UNROLL, 0b111>(stripe, range, rows),
        }
    }
}

/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn generate_rows<V: Vector, const BLOCK: usize, const UNROLL: usize, const MASK: u8>(
    stripe: &impl Stripe,
    range: Range<usize>,
    rows: &mut Rows<'_>,
) -> usize {
    let mut offset = range.start;
    while range.end - offset >= BLOCK {
        // SAFETY: the caller vouches for the instructions.
        let sums = unsafe { accumulate::<V, BLOCK, UNROLL, MASK>(stripe, offset) };
        for (row, sums) in sums.iter().enumerate() {
            if MASK & 1 << row == 0 {
                continue;
            }
            if let Some(row) = rows[row].as_deref_mut() {
                // SAFETY: the caller vouches for the instructions.
                unsafe { store_block::<V, BLOCK, UNROLL>(row, offset, sums) };
            }
        }
        offset += BLOCK;
    }
    offset
}

/// Stores a block that the column has.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn store_block<V: Vector, const BLOCK: usize, const UNROLL: usize>(
    column: &mut [u8],
    offset: usize,
    vectors: &[V; UNROLL],
) {
    let room = column.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<BLOCK>());
    if let Some(room) = room {
        for (lane, vector) in vectors.iter().enumerate() {
            // SAFETY: the caller vouches for the instructions; a block is UNROLL vectors.
            unsafe { vector.store(room.as_mut_ptr().add(lane * V::BYTES)) };
        }
    }
}

/// Writes the missing columns in the whole blocks of `range`, and tells where those end.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn solve_blocks<V: Vector, const BLOCK: usize, const UNROLL: usize>(
    stripe: &mut Known<'_, '_>,
    range: Range<usize>,
    solution: &Solution,
) -> usize {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        match solution.mask() {
            0b001 => solve_rows::<V, BLOCK, UNROLL, 0b001>(stripe, range, solution),
            0b010 => solve_rows::<V, BLOCK, UNROLL, 0b010>(stripe, range, solution),
            0b011 => solve_rows::<V, BLOCK, UNROLL, 0b011>(stripe, range, solution),
            0b100 => solve_rows::<V, BLOCK, UNROLL, 0b100>(stripe, range, solution),
            0b101 => solve_rows::<V, BLOCK, UNROLL, 0b101>(stripe, range, solution),
            0b110 => solve_rows::<V, BLOCK, UNROLL, 0b110>(stripe, range, solution),
            _ => solve_rows::<V, BLOCK, UNROLL, 0b111>(stripe, range, solution),
        }
    }
}

/// A constant of a solution; 1 needs no multiplication.
#[derive(Clone, Copy)]
struct Factor<V: Vector> {
    is_one: bool,
    constant: V::Constant,
}

impl<V: Vector> Factor<V> {
    /// # Safety
    /// The processor has the vector's instructions.
    #[inline(always)]
    unsafe fn new(value: u8) -> Self {
        // SAFETY: the caller vouches for the instructions.
        Self { is_one: value == 1, constant: unsafe { V::constant(value) } }
    }

    /// # Safety
    /// The processor has the vector's instructions.
    #[inline(always)]
    unsafe fn times(self, vector: V) -> V {
        // SAFETY: the caller vouches for the instructions.
        if self.is_one { vector } else { unsafe { vector.multiply(self.constant) } }
    }
}

/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn solve_rows<V: Vector, const BLOCK: usize, const UNROLL: usize, const MASK: u8>(
    stripe: &mut Known<'_, '_>,
    range: Range<usize>,
    solution: &Solution,
) -> usize {
    let lost = MASK.count_ones() as usize;
    // SAFETY: the caller vouches for the instructions.
    let (weights, coefficients) = unsafe {
        let factor = |value| Factor::<V>::new(value);
        let mut weights = [[factor(0); MAX_PARITY]; MAX_PARITY];
        let mut coefficients = weights;
        for (index, step) in solution.steps().iter().enumerate() {
            weights[index] = step.weights.map(factor);
            coefficients[index] = step.coefficients.map(factor);
        }
        (weights, coefficients)
    };
    let mut offset = range.start;
    while range.end - offset >= BLOCK {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let sums = accumulate::<V, BLOCK, UNROLL, MASK>(stripe, offset);
            let mut syndromes = [[V::zero(); UNROLL]; MAX_PARITY];
            for (syndrome, row) in syndromes.iter_mut().zip(solution.rows()) {
                *syndrome = sums[*row];
                if let Some(bytes) = block::<BLOCK>(stripe.row(*row), offset) {
                    for (lane, syndrome) in syndrome.iter_mut().enumerate() {
                        *syndrome = syndrome.add(V::load(bytes.as_ptr().add(lane * V::BYTES)));
                    }
                }
            }
            for (index, step) in solution.steps().iter().enumerate() {
                let left = lost - index;
                let mut column = [V::zero(); UNROLL];
                for (lane, sum) in column.iter_mut().enumerate() {
                    for row in 0..left {
                        *sum = sum.add(weights[index][row].times(syndromes[row][lane]));
                    }
                    for row in 0..left - 1 {
                        let term = coefficients[index][row].times(*sum);
                        syndromes[row][lane] = syndromes[row][lane].add(term);
                    }
                }
                store_block::<V, BLOCK, UNROLL>(stripe.missing(step.column), offset, &column);
            }
        }
        offset += BLOCK;
    }
    offset
}
