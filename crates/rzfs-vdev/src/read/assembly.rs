//! Putting a block together from its columns.

use crate::plan::Plan;
use crate::stripe::Stripe;
use rzfs_codec::parity::{self, Column};
use std::ops::Range;

/// A column's bytes by its index, if they are to be used.
pub(super) type Lookup<'l, 'd> = &'l dyn Fn(usize) -> Option<&'d [u8]>;

/// The block from its columns, if they are complete and contiguous: each byte is touched once.
pub(super) fn concatenate<'d>(plan: &Plan, lookup: Lookup<'_, 'd>) -> Option<Vec<u8>> {
    let mut block = Vec::with_capacity(plan.padded);
    for stripe in &plan.stripes {
        for index in stripe.data_columns() {
            let data = known_data(plan, index, lookup)?;
            if !data.is_empty() && place_of(plan, index).start != block.len() {
                return None;
            }
            block.extend_from_slice(data);
        }
    }
    (block.len() == plan.padded).then_some(block)
}

/// Copies all available data columns to their places in `block` and reconstructs the others.
/// Returns whether there is enough parity.
pub(super) fn assemble<'d>(plan: &Plan, lookup: Lookup<'_, 'd>, block: &mut [u8]) -> bool {
    for stripe in &plan.stripes {
        for index in stripe.data_columns() {
            if let Some(data) = lookup(index) {
                place(plan, index, data, block);
            }
        }
    }
    plan.stripes.iter().all(|stripe| rebuild(plan, stripe, lookup, block))
}

/// Reconstructs the missing data columns of a stripe in place. Returns whether there is enough
/// parity; if not, nothing is written.
pub(super) fn rebuild<'d>(
    plan: &Plan,
    stripe: &Stripe,
    lookup: Lookup<'_, 'd>,
    block: &mut [u8],
) -> bool {
    let mut columns = Vec::with_capacity(stripe.columns.len());
    for index in stripe.parity_columns() {
        columns.push(lookup(index).map_or(Column::Absent, Column::Present));
    }
    // Data columns have their places in the block in ascending order.
    let (mut rest, mut at) = (block, 0);
    let mut complete = true;
    for index in stripe.data_columns() {
        columns.push(match known_data(plan, index, lookup) {
            Some(data) => Column::Present(data),
            None => {
                complete = false;
                let place = place_of(plan, index);
                let skipped = rest.split_off_mut(..place.start.saturating_sub(at));
                let Some(own) = skipped.and_then(|_| rest.split_off_mut(..place.len())) else {
                    return false;
                };
                at = place.end;
                Column::Missing(own)
            }
        });
    }
    complete || parity::reconstruct(stripe.parity, &mut columns).is_ok()
}

/// The contents of a data column for parity: without filler, which counts as zeros. A column
/// without contents is always known.
fn known_data<'d>(plan: &Plan, index: usize, lookup: Lookup<'_, 'd>) -> Option<&'d [u8]> {
    let len = plan.columns.get(index).map_or(0, |column| column.len);
    if len == 0 {
        return Some(&[]);
    }
    lookup(index).map(|data| data.get(..len).unwrap_or(data))
}

/// Where the contents of a data column belong in the block.
pub(super) fn place_of(plan: &Plan, index: usize) -> Range<usize> {
    plan.columns
        .get(index)
        .map_or(0..0, |column| column.start..column.start.saturating_add(column.len))
}

/// Copies the contents of a data column to their place.
pub(super) fn place(plan: &Plan, index: usize, data: &[u8], block: &mut [u8]) {
    let mut place = place_of(plan, index);
    place.end = place.end.min(place.start.saturating_add(data.len()));
    if let (Some(from), Some(to)) = (data.get(..place.len()), block.get_mut(place)) {
        to.copy_from_slice(from);
    }
}

/// The parity columns that a stripe of a block should have.
pub(super) fn expected_parity(plan: &Plan, stripe: &Stripe, block: &[u8]) -> Vec<Vec<u8>> {
    let data: Vec<&[u8]> = stripe
        .data_columns()
        .map(|index| block.get(place_of(plan, index)).unwrap_or_default())
        .collect();
    let columns = plan.columns.get(stripe.columns.clone()).unwrap_or_default();
    let len = columns.iter().map(|column| column.len).max().unwrap_or(0);
    let mut expected = vec![vec![0; len]; stripe.parity];
    let mut rows: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
    match parity::generate(&data, &mut rows) {
        Ok(()) => expected,
        Err(_) => Vec::new(),
    }
}
