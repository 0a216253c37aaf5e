//! Pools as they were at their checkpoints.

use crate::harness::{agrees, zdb_of};

#[test]
fn checkpointed_states_are_shown_as_by_openzfs() {
    agrees("-kbcc", 1);
    agrees("-kmmmm", 1);
    agrees("-kh", 1);
}

#[test]
fn a_pool_without_checkpoint_has_no_such_state() {
    let Some(output) = zdb_of("g01-default", ["-kb", "g01"]) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("zdb: can't open 'g01'"));
}
