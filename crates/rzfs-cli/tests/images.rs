//! Pools on unreliable images, whose process is killed. `cargo xtask faults --images` runs more of
//! these rounds. Root only: a directory with such images is a mount.

use rzfs_proof::images::{Figures, Honesty, ImageRound, ImageShape, Programs, RoundError};
use std::path::Path;

/// Runs a round; `None` if mounting is not allowed.
fn play(shape: ImageShape, seed: u64, honesty: Honesty) -> Option<Result<Figures, RoundError>> {
    if !rzfs_testkit::has_root("only root mounts images") {
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    let zdb = rzfs_testkit::zdb_program().map(Path::to_owned);
    let programs = Programs { rzfs: env!("CARGO_BIN_EXE_rzfs").into(), zdb };
    Some(ImageRound { shape, seed, lives: 1, honesty, programs }.play(scratch.path()))
}

/// Runs a round in which no data may be lost, and something must happen.
fn survive(shape: ImageShape, seed: u64) {
    let Some(result) = play(shape, seed, Honesty::KeepsItsWord) else { return };
    let figures = result.unwrap_or_else(|error| {
        let name = shape.name();
        panic!(
            "{error}\n  again: cargo xtask faults --images --shape {name} --seed {seed} --rounds 1"
        )
    });
    assert!(figures.acknowledged > 0 && figures.strikes > 0 && figures.cuts > 0, "{figures:?}");
}

#[test]
fn one_image_that_fails_loses_nothing_that_was_acknowledged() {
    survive(ImageShape::Single, 1);
}

#[test]
fn a_mirror_of_images_that_fail_loses_nothing_that_was_acknowledged() {
    survive(ImageShape::Mirror, 2);
}

#[test]
fn raidz2_of_images_that_fail_loses_nothing_that_was_acknowledged() {
    survive(ImageShape::Raidz2, 3);
}

#[test]
fn images_beside_a_log_that_fail_lose_nothing_that_was_acknowledged() {
    survive(ImageShape::Log, 4);
}

#[test]
fn images_that_forget_what_they_flushed_are_found_out() {
    // A round may have so few unflushed writes that nothing important is lost.
    for seed in 1..4 {
        match play(ImageShape::Single, seed, Honesty::ForgetsFlushes) {
            None | Some(Err(RoundError::Found(_))) => return,
            Some(Err(error)) => panic!("{error}"),
            Some(Ok(_)) => {}
        }
    }
    panic!("nobody has noticed");
}
