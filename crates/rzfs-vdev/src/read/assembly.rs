//! Putting a block together from its columns.

use crate::parity;
use crate::plan::Plan;
use crate::stripe::Stripe;
use std::ops::Range;

/// A column's bytes by its index, if they are to be used.
pub(super) type Lookup<'l, 'd> = &'l dyn Fn(usize) -> Option<&'d [u8]>;

/// Copies all data columns that are there to their places in `block` and reconstructs the
/// others. Returns whether there is enough parity to do so.
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

/// Reconstructs the data columns of a stripe that are not there, into their places.
pub(super) fn rebuild<'d>(
    plan: &Plan,
    stripe: &Stripe,
    lookup: Lookup<'_, 'd>,
    block: &mut [u8],
) -> bool {
    let data: Vec<Option<&[u8]>> =
        stripe.data_columns().map(|index| known_data(plan, index, lookup)).collect();
    let missing: Vec<usize> = stripe
        .data_columns()
        .zip(&data)
        .filter(|(_, data)| data.is_none())
        .map(|(index, _)| index)
        .collect();
    if missing.is_empty() {
        return true;
    }
    let parity: Vec<Option<&[u8]>> = stripe.parity_columns().map(lookup).collect();
    let len = parity.iter().flatten().map(|column| column.len()).max().unwrap_or(0);
    let Some(columns) = parity::reconstruct(&data, &parity, len) else { return false };
    for (index, column) in missing.into_iter().zip(columns) {
        place(plan, index, &column, block);
    }
    true
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
    if let Some(target) = block.get_mut(place_of(plan, index)) {
        for (to, from) in target.iter_mut().zip(data) {
            *to = *from;
        }
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
    parity::generate(&data, stripe.parity, len)
}
