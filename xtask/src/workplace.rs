//! A scratch directory in which documentation and demo are carried out: with the sample pool, and
//! rzfs on the search path.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{self, Failure, repository};
use xtask::rzfs::Rzfs;

/// The directory; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Workplace {
    binary: PathBuf,
    directory: tempfile::TempDir,
    path: OsString,
}

impl Workplace {
    /// Makes one, with the sample pool as `garden.img`.
    pub(crate) fn new(rzfs: &Rzfs) -> Result<Self, Failure> {
        let directory =
            tempfile::tempdir().map_err(Failure::file(Path::new("temporary directory")))?;
        let path = programs(rzfs, directory.path())?;
        let sample = repository().join("samples/garden.img.zst");
        let mut zstd = Command::new("zstd");
        zstd.args(["-qd", "--sparse"]).arg(sample);
        process::run(zstd.arg("-o").arg(directory.path().join("garden.img")))?;
        Ok(Self { binary: rzfs.binary.clone(), directory, path })
    }

    /// A shell that stops at the first command that fails. What it mounts no other `rzfs` sees.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-u", "-c", script]).current_dir(self.directory.path());
        shell.env("PATH", &self.path).env("RZFS_RUNTIME_DIR", self.runtime());
        shell
    }

    /// Unmounts what a shell has left, which would keep the directory.
    pub(crate) fn unmount(&self, mounted: &str) {
        let mut umount = Command::new(&self.binary);
        umount.current_dir(self.directory.path()).env("RZFS_RUNTIME_DIR", self.runtime());
        // Mostly there is nothing.
        drop(process::outcome(umount.args(["umount", "--force", mounted])));
    }

    fn runtime(&self) -> PathBuf {
        self.directory.path().join("run")
    }
}

/// A search path that begins with the programs that the documentation is about.
fn programs(rzfs: &Rzfs, scratch: &Path) -> Result<OsString, Failure> {
    let directory = scratch.join("bin");
    fs::create_dir(&directory).map_err(Failure::file(&directory))?;
    for name in ["rzfs", "zpool", "zfs", "zdb", "zstream"] {
        let link = directory.join(name);
        symlink(&rzfs.binary, &link).map_err(Failure::file(&link))?;
    }
    let cargo = directory.join("cargo");
    let xtask = std::env::current_exe().map_err(Failure::file(&cargo))?;
    let script = format!(
        "#!/bin/sh\ntest \"$1\" = xtask\nshift\nexec '{}' \"$@\" --help\n",
        xtask.display()
    );
    fs::write(&cargo, script).map_err(Failure::file(&cargo))?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&cargo, executable).map_err(Failure::file(&cargo))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [directory].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(|_| Failure::Output("PATH".to_owned()))
}
