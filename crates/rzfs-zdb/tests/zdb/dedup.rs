//! Dedup tables, block reference tables, and simulated dedup.

use crate::harness::agrees;

/// Number of golden pools.
const ALL: usize = 24;

#[test]
fn dedup_tables_are_shown_as_by_openzfs() {
    agrees("-D", ALL);
    agrees("-DD", 3);
    agrees("-DDDD", 1);
    agrees("-DDDDD", ALL);
}

#[test]
fn savings_of_dedup_are_those_that_openzfs_sees() {
    agrees("-S", ALL);
}

#[test]
fn block_reference_tables_are_shown_as_by_openzfs() {
    agrees("-T", ALL);
    for options in ["-TT", "-TTT", "-TTTT", "-TP"] {
        agrees(options, 1);
    }
}
