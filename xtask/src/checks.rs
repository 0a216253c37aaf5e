//! Everything that has to pass before a change is merged, and how long each part took.

use crate::{demo, docs_check, import_cycles, setup};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::process::{self, Failure, cargo};
use xtask::rig;

/// A named part of the checks.
type Check = (&'static str, fn() -> Result<(), Failure>);

/// In the order of how soon they find a mistake.
const CHECKS: [Check; 9] = [
    ("setup", setup::run),
    ("formatting", || process::run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("imports between files", import_cycles::run),
    ("lints", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked"];
        process::run(&mut denying_warnings(&arguments))
    }),
    ("documentation", || {
        let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
        process::run(cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("demo", demo::run),
    ("commands in the documentation", docs_check::run),
    // Twelve are a look at all shapes and ways to mount them.
    ("mounts of hostile pools", || process::run(rig("hostile").args(["--mounts", "12"]))),
    ("tests", || {
        let arguments = ["test", "--workspace", "--locked", "--no-fail-fast"];
        process::run(&mut cargo(&arguments))
    }),
];

/// Clippy with warnings as errors, by its own argument: a changed RUSTFLAGS would build
/// everything twice.
fn denying_warnings(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.args(["--", "-D", "warnings"]);
    command
}

/// Runs all checks, whatever fails, and then says what did.
pub(crate) fn run() -> Result<(), Failure> {
    let mut results: Vec<(&str, Duration, Option<Failure>)> = Vec::new();
    for (name, check) in CHECKS {
        println!("== {name}");
        let start = Instant::now();
        let failure = check().err();
        if let Some(failure) = &failure {
            eprintln!("{name}: {failure}");
        }
        let fatal = name == "setup" && failure.is_some();
        results.push((name, start.elapsed(), failure));
        if fatal {
            break;
        }
    }
    println!("== results");
    for (name, time, failure) in &results {
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("{name:<30} {verdict:<7} {:>5} s", time.as_secs());
    }
    let failed: Vec<&str> =
        results.iter().filter(|result| result.2.is_some()).map(|result| result.0).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}
