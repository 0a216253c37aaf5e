//! What the chores of the repository share: running programs, and the binary under test.
//!
//! `cargo xtask` is what a newcomer builds first, and does the small chores itself. The rigs, which
//! need the engine and take long, are a program of their own, built when somebody asks for one.
#![forbid(unsafe_code)]

use process::cargo;
use std::process::Command;

pub mod process;
pub mod rzfs;

/// The rigs, and what they do: chores that the package `rzfs-rigs` carries out.
pub const RIGS: [(&str, &str); 11] = [
    ("bench", "Measure"),
    (
        "crash",
        "Cut recorded runs of the write engine off at many moments, and look at what is left",
    ),
    (
        "faults",
        "Let devices fail in many ways under programs that wait for what they do, and cut the power",
    ),
    ("full", "Fill pools to the last byte in ten ways and empty them, again and again"),
    ("fuzz", "Fuzz the decoders and whole pools, with a nightly toolchain and cargo-fuzz"),
    ("golden", "Mount the reference pools of OpenZFS and compare every file"),
    ("hostile", "Damage the golden pools in many ways, and read everything that is left of them"),
    ("kill", "Kill processes that write to a pool, and see what is left of it"),
    ("reference", "Let rzfs and the kernel of OpenZFS change the same pools in turns"),
    (
        "suites",
        "Run pjdfstest, fsx, fio and others on file systems that are served for writing, as root",
    ),
    (
        "zdb-oracle",
        "Ask OpenZFS's zdb about the golden pools; the tests of `rzfs zdb` compare with its answers",
    ),
];

/// The command that carries out a rig, which is built first.
#[must_use]
pub fn rig(name: &str) -> Command {
    cargo(&["run", "--package", "rzfs-rigs", "--locked", "--", name])
}
