//! The Debian packages that tests and demo need.

use crate::process::{self, Failure, is_installed};
use std::process::Command;

/// Programs and the packages that have them.
const TOOLS: [(&str, &str); 5] = [
    ("bzip2", "bzip2"),
    ("fusermount3", "fuse3"),
    ("getfattr", "attr"),
    ("python3", "python3"),
    ("zstd", "zstd"),
];

/// Installs what is missing; without root, names it.
pub(crate) fn run() -> Result<(), Failure> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() || !is_installed("apt-get") {
        return Err(Failure::MissingPackages(missing.join(" ")));
    }
    process::run(Command::new("apt-get").args(["-qq", "update"]))?;
    process::run(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-qq", "-y", "install", "--no-install-recommends"])
            .args(&missing),
    )
}
