//! Everything that has to pass before a change is merged, and how long each part took.

use crate::{demo, docs_check, import_cycles, setup};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::process::{self, Failure, Finished, LIMITED, cargo};
use xtask::rig;

/// What `cargo xtask test` is asked.
#[derive(clap::Args)]
pub(crate) struct Test {
    /// Check everything, which takes an hour: what continuous integration does.
    #[arg(long)]
    thorough: bool,
}

/// A part of the checks.
struct Check {
    name: &'static str,
    extent: Extent,
    run: fn() -> Result<(), Failure>,
}

/// When something is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// Always.
    Always,
    /// While somebody works on a change.
    Usual,
    /// Before a change is merged.
    Thorough,
}

impl Check {
    fn is_in(&self, extent: Extent) -> bool {
        self.extent == Extent::Always || self.extent == extent
    }
}

const fn check(name: &'static str, extent: Extent, run: fn() -> Result<(), Failure>) -> Check {
    Check { name, extent, run }
}

/// In the order of how soon they find a mistake.
const CHECKS: [Check; 10] = [
    check("setup", Extent::Always, setup::run),
    check("formatting", Extent::Always, || process::run(&mut cargo(&["fmt", "--all", "--check"]))),
    check("imports between files", Extent::Always, import_cycles::run),
    check("lints", Extent::Always, || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked"];
        process::run(&mut denying_warnings(&arguments))
    }),
    check("short tests", Extent::Usual, short_tests),
    check("documentation", Extent::Thorough, || {
        let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
        process::run(cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    check("demo", Extent::Thorough, demo::run),
    check("commands in the documentation", Extent::Thorough, docs_check::run),
    // Twelve are a look at all shapes and ways to mount them.
    check("mounts of hostile pools", Extent::Thorough, || {
        process::run(rig("hostile").args(["--mounts", "12"]))
    }),
    check("tests", Extent::Thorough, all_tests),
];

/// Packages whose tests take minutes, as they try what comes by chance.
const LONG_PACKAGES: [&str; 3] = ["rzfs-hostile", "rzfs-proof", "rzfs-rigs"];

/// Integration tests that take minutes: whole pools on devices that can fail, mounts, the binary;
/// and examples, which are built with all tests only.
const LONG_TARGETS: [&str; 5] = ["commands", "examples", "live_mounts", "memory", "pools"];

/// Integration tests that mostly wait: for OpenZFS's `zdb`, which lets six seconds pass before it ends.
const WAITING_TARGETS: [&str; 1] = ["pools"];
/// How many of them run at a time.
const WAITING_THREADS: &str = "5";

/// All tests but those that take minutes.
fn short_tests() -> Result<(), Failure> {
    let mut tests = limited_tests(&["--lib", "--bins"]);
    for package in LONG_PACKAGES {
        tests.args(["--exclude", package]);
    }
    for target in short_targets(&metadata()?) {
        tests.args(["--test", &target]);
    }
    process::run(&mut tests)
}

/// All tests, whatever fails. Those that mostly wait do so beside the others.
fn all_tests() -> Result<(), Failure> {
    // A test runs them; cargo builds them only where it is told no targets.
    process::run(&mut cargo(&["build", "--workspace", "--locked", "--examples"]))?;
    // Nobody waits for what somebody else builds.
    process::run(&mut tests(&["--no-run"]))?;
    let mut busy = limited_tests(&["--lib", "--bins"]);
    for target in targets(&metadata()?, &[], &WAITING_TARGETS) {
        busy.args(["--test", &target]);
    }
    let mut waiting = limited_tests(&[]);
    waiting.env("RUST_TEST_THREADS", WAITING_THREADS);
    for target in WAITING_TARGETS {
        waiting.args(["--test", target]);
    }
    let outcomes = std::thread::scope(|scope| {
        let beside = scope.spawn(move || process::finished(&mut waiting));
        let busy = process::run(&mut busy);
        let waited = beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        [busy, waited.and_then(Finished::tell), process::run(&mut tests(&["--doc"]))]
    });
    outcomes.into_iter().collect()
}

/// What runs some of the workspace's tests; a program that hangs is ended.
fn limited_tests(which: &[&str]) -> Command {
    let mut tests = tests(which);
    tests.args(["--config", &format!("target.'cfg(unix)'.runner={LIMITED:?}")]);
    tests
}

/// What runs some of the workspace's tests.
fn tests(which: &[&str]) -> Command {
    let mut tests = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    tests.args(which);
    tests
}

/// What cargo says of the workspace.
fn metadata() -> Result<serde_json::Value, Failure> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--locked"];
    let text = process::output(&mut cargo(&arguments))?;
    serde_json::from_str(&text).map_err(Failure::Metadata)
}

/// The names of the integration tests that are short.
fn short_targets(metadata: &serde_json::Value) -> Vec<String> {
    targets(metadata, &LONG_PACKAGES, &LONG_TARGETS)
}

/// The names of the integration tests, but for those of some packages and those with some names.
fn targets(
    metadata: &serde_json::Value,
    without_packages: &[&str],
    without: &[&str],
) -> Vec<String> {
    let list =
        |of: &serde_json::Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let packages = list(metadata, "packages").into_iter();
    let packages = packages.filter(|package| {
        package["name"].as_str().is_some_and(|name| !without_packages.contains(&name))
    });
    let targets = packages.flat_map(|package| list(&package, "targets"));
    let tests = targets.filter(|target| list(target, "kind").iter().any(|kind| kind == "test"));
    let mut names: Vec<String> =
        tests.filter_map(|test| Some(test["name"].as_str()?.to_owned())).collect();
    names.retain(|name| !without.contains(&name.as_str()));
    names.sort();
    names.dedup();
    names
}

/// Clippy with warnings as errors, by its own argument: a changed RUSTFLAGS would build
/// everything twice.
fn denying_warnings(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.args(["--", "-D", "warnings"]);
    command
}

/// Runs the checks, whatever fails, and then says what did.
pub(crate) fn run(test: &Test) -> Result<(), Failure> {
    let extent = if test.thorough { Extent::Thorough } else { Extent::Usual };
    let mut results: Vec<(&str, Duration, Option<Failure>)> = Vec::new();
    for Check { name, run, .. } in CHECKS.into_iter().filter(|check| check.is_in(extent)) {
        println!("== {name}");
        let start = Instant::now();
        let failure = run().err();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left out has to be there, or a new name has brought it in.
    #[test]
    fn short_tests_leave_out_what_there_is() {
        let metadata = metadata().unwrap();
        let text = metadata.to_string();
        for name in LONG_PACKAGES.iter().chain(&LONG_TARGETS).chain(&WAITING_TARGETS) {
            assert!(text.contains(&format!("\"name\":\"{name}\"")), "{name}");
        }
        let short = short_targets(&metadata);
        assert!(short.iter().any(|name| name == "golden"), "{short:?}");
        assert!(!short.iter().any(|name| LONG_TARGETS.contains(&name.as_str())), "{short:?}");
        let busy = targets(&metadata, &[], &WAITING_TARGETS);
        assert!(busy.len() > short.len() && !busy.iter().any(|name| name == "pools"), "{busy:?}");
    }
}
