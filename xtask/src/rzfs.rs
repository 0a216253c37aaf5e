//! The binary under test.

use crate::process::{self, Failure, cargo, repository};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The `rzfs` binary, built from this repository.
#[derive(Clone, Debug)]
pub struct Rzfs {
    /// Where it is.
    pub binary: PathBuf,
}

impl Rzfs {
    /// Builds it.
    ///
    /// # Errors
    /// `cargo` fails.
    pub fn build() -> Result<Self, Failure> {
        process::run(&mut cargo(&["build", "--package", "rzfs-cli", "--locked"]))?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| repository().join("target"), PathBuf::from);
        Ok(Self { binary: target.join("debug").join("rzfs") })
    }

    /// Mounts a pool at a directory, read-only. The control socket goes beside the directory, so
    /// that mounts do not see each other.
    ///
    /// # Errors
    /// The pool is not mounted.
    pub fn mount(&self, arguments: &[OsString], at: &Path) -> Result<Mount, Failure> {
        let read_only = ["-o", "ro"].map(OsString::from);
        self.mount_for_writing(&[&read_only[..], arguments].concat(), at)
    }

    /// The same for writing: the images change.
    ///
    /// # Errors
    /// The pool is not mounted.
    pub fn mount_for_writing(&self, arguments: &[OsString], at: &Path) -> Result<Mount, Failure> {
        let runtime = at.with_extension("run");
        let mut command = Command::new(&self.binary);
        command.env("RZFS_RUNTIME_DIR", &runtime).arg("mount").args(arguments).arg(at);
        process::run(&mut command)?;
        Ok(Mount { rzfs: self.clone(), runtime, at: at.to_owned(), ended: false })
    }
}

/// A mounted pool; unmounted at the latest when it is dropped.
#[derive(Debug)]
pub struct Mount {
    rzfs: Rzfs,
    runtime: PathBuf,
    at: PathBuf,
    ended: bool,
}

impl Mount {
    /// Where a file system or snapshot of the pool is.
    #[must_use]
    pub fn path_of(&self, dataset: &str) -> PathBuf {
        let (head, snapshot) = match dataset.split_once('@') {
            Some((head, snapshot)) => (head, Some(snapshot)),
            None => (dataset, None),
        };
        let below = head.split_once('/').map_or("", |(_, below)| below);
        let root = if below.is_empty() { self.at.clone() } else { self.at.join(below) };
        snapshot.map_or_else(|| root.clone(), |name| root.join(".zfs/snapshot").join(name))
    }

    /// Unmounts.
    ///
    /// # Errors
    /// It stays mounted.
    pub fn end(mut self) -> Result<(), Failure> {
        self.ended = true;
        process::run(self.umount().arg(&self.at))
    }

    fn umount(&self) -> Command {
        let mut command = Command::new(&self.rzfs.binary);
        command.env("RZFS_RUNTIME_DIR", &self.runtime).arg("umount");
        command
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.ended {
            let _ = process::run(self.umount().arg("--force").arg(&self.at));
        }
    }
}
