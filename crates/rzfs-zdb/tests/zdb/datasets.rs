//! Datasets and objects.

use crate::harness::agrees;

/// Number of golden pools.
const ALL: usize = 24;

#[test]
fn datasets_are_listed_as_by_openzfs() {
    agrees("-d", ALL);
}

#[test]
fn objects_are_listed_as_by_openzfs() {
    agrees("-dd", ALL);
}

#[test]
fn lists_of_blocks_are_shown_as_by_openzfs() {
    agrees("-ddd", ALL);
}

#[test]
fn contents_of_objects_are_shown_as_by_openzfs() {
    agrees("-dddd", ALL);
}

#[test]
fn blocks_of_objects_are_shown_as_by_openzfs() {
    agrees("-ddddd", 10);
}

#[test]
fn numbers_and_all_copies_are_shown_as_by_openzfs() {
    agrees("-dddddd", 10);
}

#[test]
fn paths_lead_to_objects_as_in_openzfs() {
    agrees("-O", 3);
    agrees("-vvO", 1);
}

#[test]
fn numbers_have_all_digits_as_in_openzfs() {
    agrees("-P", 1);
}

#[test]
fn intent_logs_are_shown_as_by_openzfs() {
    agrees("-i", 2);
    agrees("-iiiii", 1);
}
