//! File systems that are compared, and how each is mounted afresh.

use super::process_use::ProcessUse;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask::process::{self, Failure, repository};

/// How long a mount may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the pool.
const POOL: &str = "zf";

/// A file system that takes part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Contestant {
    /// The file system that the images lie on, for orientation.
    Host,
    /// zfs-fuse: the base of the ratios.
    ZfsFuse,
    /// This project.
    Rzfs,
}

impl Contestant {
    pub(crate) const ALL: [Self; 3] = [Self::Host, Self::ZfsFuse, Self::Rzfs];

    /// What the report calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::ZfsFuse => "zfs-fuse",
            Self::Rzfs => "rzfs",
        }
    }
}

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Field {
    /// The folder with the image (and no other pool), mount points and the host's copy.
    pub(crate) folder: PathBuf,
    /// Where zfs-fuse is unpacked.
    pub(crate) zfs_fuse: PathBuf,
}

/// A file system that is mounted; it is unmounted by [`Mounted::close`], or when dropped.
#[derive(Debug)]
pub(crate) struct Mounted<'a> {
    field: &'a Field,
    contestant: Contestant,
    daemon: Option<Child>,
    /// The folder with the files to work on.
    pub(crate) files: PathBuf,
}

impl Field {
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("zf.img")
    }

    /// The host's copy of the files.
    pub(crate) fn host_copy(&self) -> PathBuf {
        self.folder.join("host/fsbench")
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.zfs_fuse.join("sbin").join(name))
    }

    /// Starts zfs-fuse's daemon, without a pool.
    fn start_zfs_fuse(&self) -> Result<Child, Failure> {
        for directory in ["/var/run/zfs", "/var/lock/zfs", "/etc/zfs"] {
            std::fs::create_dir_all(directory).map_err(start_failure(directory))?;
        }
        // As Debian configures it, but with its prefetch, which is faster.
        let mut command = self.tool("zfs-fuse");
        command.args(["--no-daemon", "--no-kstat-mount", "-a", "3600", "-e", "3600"]);
        let daemon = spawn(&mut command)?;
        let socket = Path::new("/var/run/zfs/zfs_socket");
        let asks = || {
            let mut list = self.tool("zpool");
            let status = list.arg("list").stdout(Stdio::null()).stderr(Stdio::null()).status();
            socket.exists() && status.is_ok_and(|status| status.success())
        };
        wait_until(asks, "zfs-fuse")?;
        Ok(daemon)
    }

    /// Creates the pool, with compression as its files would have it.
    pub(crate) fn create(&self) -> Result<Mounted<'_>, Failure> {
        let image = self.image();
        let file = std::fs::File::create(&image).map_err(start_failure(&image.display()))?;
        file.set_len(4 << 30).map_err(start_failure(&image.display()))?;
        let daemon = self.start_zfs_fuse()?;
        let mounted = self.mounted(Contestant::ZfsFuse, Some(daemon), self.zfs_fuse_mount());
        let mut create = self.tool("zpool");
        create.args(["create", "-f", "-m", "/zf", "-R"]).arg(self.alternate_root());
        process::run(create.arg(POOL).arg(image))?;
        process::run(self.tool("zfs").args(["set", "compression=on", POOL]))?;
        Ok(mounted)
    }

    fn alternate_root(&self) -> PathBuf {
        self.folder.join("zfs-fuse")
    }

    fn zfs_fuse_mount(&self) -> PathBuf {
        self.alternate_root().join("zf")
    }

    fn mounted(&self, contestant: Contestant, daemon: Option<Child>, root: PathBuf) -> Mounted<'_> {
        Mounted { field: self, contestant, daemon, files: root.join("fsbench") }
    }

    /// Mounts a contestant's file system afresh.
    pub(crate) fn open(&self, contestant: Contestant) -> Result<Mounted<'_>, Failure> {
        let mounted = match contestant {
            Contestant::Host => self.mounted(contestant, None, self.folder.join("host")),
            Contestant::ZfsFuse => {
                let daemon = self.start_zfs_fuse()?;
                let mut mounted = self.mounted(contestant, Some(daemon), self.zfs_fuse_mount());
                let mut import = self.tool("zpool");
                import.args(["import", "-f", "-R"]).arg(self.alternate_root());
                process::run(import.arg("-d").arg(&self.folder).arg(POOL))?;
                // The pool may have been made for another place.
                mounted.files = self.mount_point()?.join("fsbench");
                mounted
            }
            Contestant::Rzfs => {
                let root = self.folder.join("rzfs");
                std::fs::create_dir_all(&root).map_err(start_failure(&root.display()))?;
                let mut command = Command::new(rzfs_binary());
                command
                    .args(["mount", "-o", "ro", "--foreground", "--force"])
                    .arg(self.image())
                    .arg(&root);
                let daemon = spawn(&mut command)?;
                self.mounted(contestant, Some(daemon), root)
            }
        };
        wait_until(|| mounted.files.is_dir(), contestant.name())?;
        Ok(mounted)
    }

    fn mount_point(&self) -> Result<PathBuf, Failure> {
        let mut get = self.tool("zfs");
        let at = process::output(get.args(["get", "-H", "-o", "value", "mountpoint", POOL]))?;
        Ok(PathBuf::from(at.trim()))
    }
}

impl Mounted<'_> {
    /// What the daemon has used up to now; nothing where there is none.
    pub(crate) fn process_use(&self) -> ProcessUse {
        self.daemon.as_ref().map(|daemon| ProcessUse::of(daemon.id())).unwrap_or_default()
    }

    /// Unmounts the file system and waits until its daemon has gone.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let exported = match self.contestant {
            Contestant::ZfsFuse => process::run(self.field.tool("zpool").args(["export", POOL])),
            Contestant::Host | Contestant::Rzfs => Ok(()),
        };
        process::run(Command::new("kill").arg(daemon.id().to_string()))?;
        daemon.wait().map_err(start_failure(self.contestant.name()))?;
        exported
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{}: {error}", self.contestant.name());
        }
    }
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    let program = process::words(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|source| Failure::Start { program, source })
}

fn start_failure(program: impl std::fmt::Display) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::Start { program: program.to_string(), source }
}

fn wait_until(ready: impl Fn() -> bool, what: &str) -> Result<(), Failure> {
    let start = Instant::now();
    while !ready() {
        if start.elapsed() > PATIENCE {
            let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(Failure::Start { program: what.to_owned(), source });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn rzfs_binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| repository().join("target")).join("release/rzfs")
}
