//! A tree of sources, as large as that of a kernel: unpacked, compared, removed.

use super::served::Served;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{Failure, run};

/// Copies a tree in and compares it with the kernel's caches empty.
pub(super) fn run_on(served: &Served, tree: Option<&Path>) -> Result<(), Failure> {
    let tree = tree.map_or_else(sources_of_crates, Path::to_owned);
    let copy = served.mount().join("tree");
    fs::create_dir(&copy).map_err(Failure::file(&copy))?;
    let archive = served.left().join("tree.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&copy))?;
    run(Command::new("sh").args(["-c", "echo 3 > /proc/sys/vm/drop_caches"]))?;
    run(Command::new("diff").arg("-r").arg("--no-dereference").args([&tree, &copy]))?;
    fs::remove_dir_all(&copy).map_err(Failure::file(&copy))
}

/// Where cargo keeps the sources of crates.
fn sources_of_crates() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    home.unwrap_or_default().join("registry/src")
}
