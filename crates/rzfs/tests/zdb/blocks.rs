//! Uberblocks, configurations, histories and blocks.

use crate::harness::agrees;

/// Golden pools.
const ALL: usize = 24;

#[test]
fn uberblocks_are_shown_as_by_openzfs() {
    agrees("-u", ALL);
}

#[test]
fn configurations_are_shown_as_by_openzfs() {
    agrees("-C", ALL);
}

#[test]
fn histories_are_shown_as_by_openzfs() {
    agrees("-h", ALL);
}

#[test]
fn blocks_are_counted_as_by_openzfs() {
    agrees("-bbb", ALL);
}

#[test]
fn blocks_are_verified_as_by_openzfs() {
    agrees("-bcc", ALL);
}
