//! `cargo xtask stranger`: the tests as somebody else runs them.
//!
//! Who has only a clone has the golden pools of the repository and perhaps no judge, and is an
//! ordinary user or root. An ordinary user runs all test binaries that ask for reference pools or
//! mount; root, of those that mount, the modules that ask for reference pools: all else is the same
//! for root everywhere. The variables that continuous integration sets are not there. What is lacking
//! tests have to skip; whatever else fails is a mistake.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use xtask::process::{self, AS_NOBODY, Failure, LIMITED, NOBODY, cargo, repository};

/// What `cargo xtask stranger` is asked.
#[derive(clap::Args)]
pub(crate) struct Stranger {
    /// Only test binaries with this in their names: PACKAGE/TARGET.
    #[arg(default_value = "")]
    filter: String,
    /// Leave out test binaries with this in their names.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
}

impl Stranger {
    fn means(&self, name: &str) -> bool {
        name.contains(&self.filter) && !self.without.iter().any(|without| name.contains(without))
    }
}

/// What continuous integration sets, and a stranger does not.
const VARIABLES: [&str; 4] = ["CI", "RZFS_GOLDEN", "RZFS_OPENZFS_IMAGES", "RZFS_GOLDEN_UNPACKED"];

/// Sources of tests that depend on reference pools and judges have one of these words,
const POOLS: [&str; 4] = ["ReferencePool", "GoldenStream", "rzfs_testkit::zdb", "reference("];
/// and those of tests that mount one of these.
const MOUNTS: [&str; 3] = ["CARGO_BIN_EXE_rzfs", "rzfs_fuse::", "fusermount3"];

/// A program with tests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TestBinary {
    /// Package and target.
    name: String,
    executable: PathBuf,
    /// Where cargo runs it.
    package: PathBuf,
    /// The modules for which it makes a difference that root runs them without the larger set of
    /// pools, as filters of tests.
    for_root: Vec<String>,
}

/// Who runs tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// Whoever runs the chore.
    Ourselves,
    /// An ordinary user.
    Nobody,
}

/// Runs them as an ordinary user, and when we are root, as that too.
pub(crate) fn run(arguments: &Stranger) -> Result<(), Failure> {
    if repository().join("../shared").exists() {
        eprintln!("note: {}/../shared is what no stranger has", repository().display());
    }
    let mut binaries = built()?;
    binaries.retain(|binary| arguments.means(&binary.name));
    let is_root = rustix::process::geteuid().is_root();
    let ordinary = if is_root { Who::Nobody } else { Who::Ourselves };
    let mut runs: Vec<_> = binaries.iter().map(|binary| (binary, ordinary, &[][..])).collect();
    let as_root = binaries.iter().filter(|binary| is_root && !binary.for_root.is_empty());
    runs.extend(as_root.map(|binary| (binary, Who::Ourselves, &binary.for_root[..])));
    let start = Instant::now();
    let mut failed = Vec::new();
    for (binary, who, filters) in &runs {
        println!("== {} as {who:?} {}", binary.name, filters.join(" "));
        let begun = Instant::now();
        if let Err(failure) = test(binary, *who, filters) {
            eprintln!("{}: {failure}", binary.name);
            failed.push(format!("{} as {who:?}", binary.name));
        }
        println!("   {:.0?}", begun.elapsed());
    }
    println!("{} runs of {} test binaries: {:.0?}", runs.len(), binaries.len(), start.elapsed());
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}

/// Runs the tests that fit one of the filters, or all where there are none.
fn test(binary: &TestBinary, who: Who, filters: &[String]) -> Result<(), Failure> {
    let home = tempfile::tempdir().map_err(Failure::file(Path::new("temporary directory")))?;
    let [timeout, limit @ ..] = LIMITED;
    let mut command = Command::new(timeout);
    command.args(limit);
    match who {
        Who::Ourselves => {
            command.arg(&binary.executable);
        }
        Who::Nobody => {
            command.args(AS_NOBODY).arg(&binary.executable);
            command.env("HOME", home.path()).env("USER", "nobody");
            give(home.path())?;
            // Images are unpacked below the build directory, which is not the user's.
            command.env("CARGO_TARGET_DIR", home.path());
            share(&target_directory().join("tmp"))?;
        }
    }
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env_remove("XDG_RUNTIME_DIR").current_dir(&binary.package);
    process::run(command.args(filters).arg("--quiet").stdin(Stdio::null()))
}

fn give(directory: &Path) -> Result<(), Failure> {
    chown(directory, Some(NOBODY), Some(NOBODY)).map_err(Failure::file(directory))
}

/// Lets everybody have files in a directory, as in `/tmp`.
fn share(directory: &Path) -> Result<(), Failure> {
    let everybody = Permissions::from_mode(0o1777);
    fs::set_permissions(directory, everybody).map_err(Failure::file(directory))
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// Builds all tests; answers those whose outcome depends on where they run.
fn built() -> Result<Vec<TestBinary>, Failure> {
    let arguments = ["test", "--workspace", "--locked", "--no-run", "--message-format=json"];
    let messages = process::output(&mut cargo(&arguments))?;
    let mut binaries: Vec<_> = messages.lines().filter_map(binary).collect();
    binaries.sort();
    Ok(binaries)
}

/// What a message of cargo says about a test binary.
fn binary(message: &str) -> Option<TestBinary> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let executable = message["executable"].as_str()?;
    let target = &message["target"];
    let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
    let source = Path::new(target["src_path"].as_str()?);
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let name = format!("{}/{}", package.file_name()?.to_str()?, target["name"].as_str()?);
    let executable = PathBuf::from(executable);
    let package = package.to_owned();
    let modules = modules(source);
    let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let mounts = modules.iter().any(|(_, text)| has(text, &MOUNTS));
    let asking = modules.iter().filter(|(_, text)| has(text, &POOLS));
    let asking: Vec<_> = asking.map(|(filter, _)| filter.clone()).collect();
    let is_different = is_test && (mounts || !asking.is_empty());
    let for_root = if mounts { asking } else { Vec::new() };
    is_different.then_some(TestBinary { name, executable, package, for_root })
}

/// The sources of a test, a file with the modules beside it, each with the filter that means its
/// tests: nothing for those of the file itself.
fn modules(root: &Path) -> Vec<(String, String)> {
    let beside = match root.file_name() {
        Some(name) if name == "main.rs" => root.parent().map(Path::to_owned),
        _ => Some(root.with_extension("")),
    };
    let beside = beside.and_then(|directory| fs::read_dir(directory).ok());
    let files = beside.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|file| file != root).collect();
    files.sort();
    files.push(root.to_owned());
    let module = |file: PathBuf| {
        let text = fs::read_to_string(&file).ok()?;
        let name = file.file_stem().filter(|_| file != root).and_then(|stem| stem.to_str());
        Some((name.map_or_else(String::new, |name| format!("{name}::")), text))
    };
    files.into_iter().filter_map(module).collect()
}
