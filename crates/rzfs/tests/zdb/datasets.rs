//! Datasets and objects.

use crate::harness::agrees;

/// Golden pools.
const ALL: usize = 24;

#[test]
fn datasets_are_listed_as_by_openzfs() {
    agrees("-d", ALL);
}

#[test]
fn objects_are_listed_as_by_openzfs() {
    agrees("-dd", ALL);
}
