//! Pools that are filled to the last byte and emptied; `cargo xtask full` has more ways and rounds.

use rzfs_proof::full::{Pattern, fill_and_empty};

fn is_emptied(pattern: Pattern) {
    let directory = tempfile::tempdir().unwrap();
    let result = fill_and_empty(pattern, 2, directory.path()).unwrap();
    assert_eq!(result.finding, None, "cargo xtask full --pattern {}", pattern.name());
    // Nothing of any size fitted.
    assert!(result.left < 1 << 20, "{result:?}");
}

#[test]
fn small_blocks_fill_a_raidz_pool() {
    is_emptied(Pattern::Raidz);
}

#[test]
fn shared_blocks_fill_a_pool() {
    is_emptied(Pattern::Shared);
}
