//! Running the binary.

use rustix::process::{Pid, Signal, kill_process};
use rzfs_server::control::ControlDirectory;
use rzfs_testkit::ReferencePool;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with its own directory for control sockets and mounts.
pub(crate) struct Rzfs {
    home: tempfile::TempDir,
}

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Rzfs {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    /// A path in a directory that no other test uses.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The directory with the sockets of mounted pools.
    pub(crate) fn control(&self) -> ControlDirectory {
        ControlDirectory::at(self.path("run").join("rzfs"))
    }

    /// The command, without arguments.
    pub(crate) fn command(&self) -> Command {
        self.prepared(Command::new(env!("CARGO_BIN_EXE_rzfs")))
    }

    /// Gives a command the environment of the tests, and no terminal.
    pub(crate) fn prepared(&self, mut command: Command) -> Command {
        command.env("RZFS_RUNTIME_DIR", self.path("run")).env("TZ", "UTC").env_remove("RUST_LOG");
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Outcome {
        outcome(self.command().args(words))
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn succeed<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        let outcome = self.run(words);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        outcome.out
    }

    /// Mounts read-only, since images are shared by tests; returns the warnings.
    pub(crate) fn mount<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        let mount = ["mount", "-o", "ro"].map(|word| OsStr::new(word).to_owned());
        let words = mount.into_iter().chain(words.into_iter().map(|word| word.as_ref().to_owned()));
        let outcome = self.run(words);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        outcome.err
    }

    /// The process that serves a pool.
    pub(crate) fn daemon(&self, pool: &str) -> u32 {
        let mounted = self.control().mounted().unwrap().clients;
        mounted.iter().find(|one| one.identity().pool == pool).unwrap().identity().process
    }
}

/// Kills the process that serves a pool, and waits until it has gone.
pub(crate) fn kill_server(rzfs: &Rzfs, pool: &str) {
    let process = Pid::from_raw(rzfs.daemon(pool).try_into().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    wait_until("the process is gone", || {
        let names = rzfs.run(["zpool", "list", "-Ho", "name"]).out;
        names.lines().all(|name| name != pool)
    });
}

impl Drop for Rzfs {
    /// Removes leftover mounts if a test fails.
    fn drop(&mut self) {
        let pools: Vec<_> = match self.control().mounted() {
            Ok(mounted) => mounted.clients.iter().map(|one| one.identity().pool.clone()).collect(),
            Err(_) => return,
        };
        for pool in pools {
            self.run(["umount", "--force", &pool]);
        }
    }
}

/// Copies the program to where every user can run it.
///
/// Another process copies: if another test forks while this process has the copy open for writing,
/// it could not be run until the child has called exec (`ETXTBSY`).
pub(crate) fn copy_program(to: &Path) {
    let outcome = outcome(Command::new("cp").arg(env!("CARGO_BIN_EXE_rzfs")).arg(to));
    assert_eq!(outcome.status, 0, "{outcome:?}");
}

/// Runs a command and waits for its end.
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A reference pool and its images.
pub(crate) fn reference(name: &str) -> (ReferencePool, Vec<PathBuf>) {
    let pool = ReferencePool::golden(name).unwrap();
    let images = pool.images().unwrap();
    (pool, images)
}

/// Whether file systems are mounted on each other: `fusermount3`, which ordinary users need, may
/// not look into their own mounts.
pub(crate) fn mounts_on_mounts() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where all users can run it.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A Python program that changes the beginning of a file through a shared mapping, creates a marker
/// file, and keeps running: only the kernel knows of the change. Its arguments are the file, the
/// marker file, and the text.
pub(crate) const CHANGE_IN_MEMORY: &str = "
import mmap, sys, time
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 0)
text = sys.argv[3].encode()
memory[:len(text)] = text
open(sys.argv[2], 'w').close()
time.sleep(60)
";

/// Whether Python is available for that.
pub(crate) fn has_python() -> bool {
    let is_there = Path::new(PYTHON).is_file();
    if !is_there {
        eprintln!("skipped: {PYTHON} is not there");
    }
    is_there
}

/// Whether something is mounted at a directory.
pub(crate) fn is_mounted(directory: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let directory = directory.to_str().unwrap();
    table.lines().any(|line| line.split(' ').nth(1) == Some(directory))
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
