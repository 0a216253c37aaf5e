//! Running the binary.

use rustix::process::{Pid, Signal, kill_process};
use rzfs_server::control::ControlDirectory;
use rzfs_testkit::ReferencePool;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with a place of its own for control sockets and mounts.
pub(crate) struct Rzfs {
    home: tempfile::TempDir,
}

/// What a command has done.
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

    /// A path in a directory that nobody else uses.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The directory where mounted pools listen.
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

    /// Runs a command that has to succeed, and answers what it has written.
    pub(crate) fn succeed<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        let outcome = self.run(words);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        outcome.out
    }

    /// Mounts read-only, since images are shared by tests; warnings are answered.
    pub(crate) fn mount<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        let mount = ["mount", "-o", "ro"].map(|word| OsStr::new(word).to_owned());
        let words = mount.into_iter().chain(words.into_iter().map(|word| word.as_ref().to_owned()));
        let outcome = self.run(words);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        outcome.err
    }

    /// The process that has a pool mounted.
    pub(crate) fn daemon(&self, pool: &str) -> u32 {
        let mounted = self.control().mounted().unwrap().clients;
        mounted.iter().find(|one| one.identity().pool == pool).unwrap().identity().process
    }
}

/// Has the process that serves a pool killed, and waits until nobody answers for it.
pub(crate) fn kill_server(rzfs: &Rzfs, pool: &str) {
    let process = Pid::from_raw(rzfs.daemon(pool).try_into().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    wait_until("the process is gone", || {
        let names = rzfs.run(["zpool", "list", "-Ho", "name"]).out;
        names.lines().all(|name| name != pool)
    });
}

impl Drop for Rzfs {
    /// A test that fails leaves no mounts behind.
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

/// Puts a copy of the program where everybody may go.
///
/// Another process copies: where a test forks while this one has the copy open for writing, nobody
/// could run it until the child has made itself another program (`ETXTBSY`).
pub(crate) fn copy_program(to: &Path) {
    let outcome = outcome(Command::new("cp").arg(env!("CARGO_BIN_EXE_rzfs")).arg(to));
    assert_eq!(outcome.status, 0, "{outcome:?}");
}

/// Runs a command to its end.
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
/// not look into what they have mounted.
pub(crate) fn mounts_on_mounts() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where all users have it.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Python that changes the beginning of a file in memory that the two share, makes another file to
/// say so, and stays: only the kernel knows of the change. Its arguments are the file, the other
/// one, and the text.
pub(crate) const CHANGE_IN_MEMORY: &str = "
import mmap, sys, time
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 0)
text = sys.argv[3].encode()
memory[:len(text)] = text
open(sys.argv[2], 'w').close()
time.sleep(60)
";

/// Whether there is Python for that.
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

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
