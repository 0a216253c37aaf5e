//! Metaslabs, their groups, and log space maps.

use crate::harness::{agrees, zdb_of};

/// Number of golden pools.
const ALL: usize = 24;

#[test]
fn totals_of_space_maps_are_those_of_openzfs() {
    agrees("-m", ALL + 4);
}

#[test]
fn free_space_is_that_of_openzfs() {
    agrees("-mmm", ALL);
}

#[test]
fn entries_of_space_maps_are_those_of_openzfs() {
    agrees("-mmmm", ALL);
}

#[test]
fn fragmentation_is_that_of_openzfs() {
    agrees("-M", ALL);
    agrees("-MM", 1);
    agrees("-mMP", 1);
}

#[test]
fn vdevs_and_metaslabs_that_are_not_there_are_named() {
    for (words, status, message) in [
        (["-m", "g01", "1", "0"], 1, "zdb: bad vdev id: 1\n"),
        (["-m", "g01", "0", "99"], 0, "bad metaslab number 99\n"),
        (["-m", "g01", "0", "x"], 1, "zdb: bad number x\n"),
    ] {
        let Some(output) = zdb_of("g01-default", words) else { return };
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), message);
    }
}
