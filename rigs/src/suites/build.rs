//! A real build in the mount, from the start, twice: both have to make the same, and its tests
//! pass.

use super::served::Served;
use std::process::Command;
use xtask::process::{Failure, output, repository, run};

/// What is built; its tests as well.
const PACKAGE: &str = "rzfs-format";

/// Builds and tests a crate of this repository, sources and results in the mount.
pub(super) fn run_on(served: &Served) -> Result<(), Failure> {
    let sources = served.mount().join("sources");
    run(Command::new("git").args(["clone", "-q"]).arg(repository()).arg(&sources))?;
    let mut made = Vec::new();
    for _ in 0..2 {
        let target = served.mount().join("target");
        let cargo = |words: &[&str]| {
            let mut cargo = Command::new("cargo");
            cargo.current_dir(&sources).env("CARGO_TARGET_DIR", &target);
            cargo.env("CARGO_INCREMENTAL", "0").args(words);
            cargo
        };
        run(&mut cargo(&["build", "-q", "--offline", "-p", PACKAGE]))?;
        run(&mut cargo(&["test", "-q", "--offline", "-p", PACKAGE, "--lib"]))?;
        let sums = "find . -name 'lib*.rlib' | sort | xargs sha256sum";
        made.push(output(Command::new("sh").args(["-c", sums]).current_dir(&target))?);
        run(&mut cargo(&["clean", "-q"]))?;
    }
    match made.as_slice() {
        [first, second] if first == second && !first.is_empty() => Ok(()),
        _ => Err(Failure::Checks(format!("making the same twice: {}", made.join("\n\n")))),
    }
}
