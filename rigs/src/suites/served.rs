//! A pool for one run of a suite: made, mounted, unmounted and judged.

use crate::bench::ProcessUse;
use crate::crash::zdb;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::process::{Failure, run};

/// The pool's name.
const POOL: &str = "suites";
/// Who serves a pool without rights: Debian's `daemon`.
const NOBODY_SPECIAL: u32 = 1;

/// A pool to run suites on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum PoolKind {
    /// One device, lz4.
    Single,
    /// RAID-Z of four devices with two parities.
    Raidz2,
    /// One device, zstd.
    Zstd,
    /// One device, served by a process without rights and open to everybody.
    Unprivileged,
}

impl PoolKind {
    pub(super) const ALL: [Self; 4] = [Self::Single, Self::Raidz2, Self::Zstd, Self::Unprivileged];

    const fn devices(self) -> &'static [&'static str] {
        match self {
            Self::Single | Self::Zstd | Self::Unprivileged => &["A"],
            Self::Raidz2 => &["A", "B", "C", "D"],
        }
    }

    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Raidz2 => &["raidz2"],
            _ => &[],
        }
    }

    const fn compression(self) -> &'static str {
        match self {
            Self::Zstd => "compression=zstd",
            _ => "compression=lz4",
        }
    }

    const fn user(self) -> Option<u32> {
        match self {
            Self::Unprivileged => Some(NOBODY_SPECIAL),
            _ => None,
        }
    }
}

/// A pool that is served.
pub(super) struct Served {
    rzfs: PathBuf,
    kind: PoolKind,
    is_mounted: bool,
    /// Images, mount, control socket, and what tools leave.
    directory: tempfile::TempDir,
}

impl Served {
    /// Makes a pool on images of this size below a directory, and mounts it.
    pub(super) fn start(
        rzfs: &Path,
        kind: PoolKind,
        (parent, size): (&Path, &str),
        mount_options: &str,
    ) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in(parent).map_err(Failure::file(parent))?;
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), everybody).map_err(Failure::file(parent))?;
        let mut served = Self { rzfs: rzfs.to_owned(), kind, is_mounted: false, directory };
        for name in ["images", "mount", "run", "left"] {
            let path = served.path(name);
            fs::create_dir(&path).map_err(Failure::file(&path))?;
            if let Some(user) = kind.user() {
                chown(&path, Some(user), Some(user)).map_err(Failure::file(&path))?;
            }
        }
        let mut create = served.command("zpool");
        create.args(["create", "--export", "--size", size, "-O", kind.compression()]);
        create.args(["-O", "acltype=posix", "-O", "xattr=sa", POOL]).args(kind.words());
        run(create.args(kind.devices().iter().map(|name| served.path("images").join(name))))?;
        let mut mount = served.command("mount");
        run(mount.args(["-o", mount_options]).arg(served.path("images")).arg(served.mount()))?;
        served.is_mounted = true;
        Ok(served)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command of rzfs, as who serves the pool.
    fn command(&self, name: &str) -> Command {
        let mut command = match self.kind.user() {
            None => Command::new(&self.rzfs),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
                command.args(["--clear-groups", "--"]).arg(&self.rzfs);
                command
            }
        };
        command.env("RZFS_RUNTIME_DIR", self.path("run")).arg(name);
        command
    }

    /// Sets a property of the pool's root file system.
    pub(super) fn set(&self, property: &str) -> Result<(), Failure> {
        run(self.command("zfs").args(["set", property, POOL]))
    }

    /// Where the pool is mounted.
    pub(super) fn mount(&self) -> PathBuf {
        self.path("mount")
    }

    /// A directory for what tools write and read outside of the pool.
    pub(super) fn left(&self) -> PathBuf {
        self.path("left")
    }

    /// What the serving process has used so far; the one that has the runtime directory in its
    /// environment.
    pub(super) fn used(&self) -> ProcessUse {
        let ours = format!("RZFS_RUNTIME_DIR={}\0", self.path("run").display());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let uses = processes.filter_map(|process| {
            let environment = fs::read(process.path().join("environ")).ok()?;
            let is_ours = environment.windows(ours.len()).any(|window| window == ours.as_bytes());
            Some(ProcessUse::of(process.file_name().to_str()?.parse().ok()?)).filter(|_| is_ours)
        });
        uses.max_by_key(|used| used.peak_memory).unwrap_or_default()
    }

    /// Unmounts and exports it, and has zdb look at it.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.is_mounted = false;
        run(self.command("umount").arg(self.mount()))?;
        match zdb(&self.path("images"), POOL) {
            None => Ok(()),
            Some(finding) => {
                let kept = self.directory.path().display().to_string();
                self.directory.disable_cleanup(true);
                Err(Failure::Checks(format!("{kept}: {finding}: zdb")))
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.is_mounted {
            // The images are worth a look: something has failed.
            let _ = run(self.command("umount").arg("--force").arg(self.mount()));
            self.directory.disable_cleanup(true);
            println!("kept: {}", self.directory.path().display());
        }
    }
}
