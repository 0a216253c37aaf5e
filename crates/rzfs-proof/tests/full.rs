//! Pools that are filled to the last byte and emptied; `cargo xtask full` has more ways and rounds.

use rzfs_proof::full::{Pattern, fill_and_empty};

fn is_emptied(pattern: Pattern, rounds: u64) {
    let directory = tempfile::tempdir().unwrap();
    let result = fill_and_empty(pattern, rounds, directory.path()).unwrap();
    assert_eq!(result.finding, None, "cargo xtask full --pattern {}", pattern.name());
    assert_eq!(result.afterwards.len() as u64, rounds);
    // Nothing of any size fitted.
    assert!(result.left < 1 << 20, "{result:?}");
}

#[test]
fn small_blocks_fill_a_raidz_pool() {
    is_emptied(Pattern::Raidz, 2);
}

#[test]
fn shared_blocks_fill_a_pool() {
    is_emptied(Pattern::Shared, 2);
}

#[test]
fn a_pool_that_is_filled_again_and_again_loses_nothing() {
    is_emptied(Pattern::LargeFile, 5);
}
