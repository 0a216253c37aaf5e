//! The rzfs process that serves a pool.

use super::error::RoundError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The pool's name.
pub(super) const POOL: &str = "proof";
/// Longer than anything takes on the slowest machine: beyond that it hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
const GLANCE: Duration = Duration::from_millis(10);
/// Small enough that written data is read from the images.
const CACHE: &str = "arc_max=16M";

/// A directory in which one process of rzfs has its mount and its control socket.
#[derive(Clone, Debug)]
pub(super) struct Home {
    rzfs: PathBuf,
    directory: PathBuf,
}

impl Home {
    pub(super) fn new(rzfs: &Path, directory: &Path) -> Result<Self, RoundError> {
        let home = Self { rzfs: rzfs.to_owned(), directory: directory.to_owned() };
        fs::create_dir_all(home.mount()).map_err(RoundError::at(directory))?;
        Ok(home)
    }

    /// The mount point of the pool.
    pub(super) fn mount(&self) -> PathBuf {
        self.directory.join("mount")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("rzfs.log")
    }

    /// The error output of the process, for findings.
    fn complaints(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().rev().take(10).rev().copied().collect::<Vec<_>>().join(" | ")
    }

    /// An rzfs command.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.rzfs);
        command.env("RZFS_RUNTIME_DIR", self.directory.join("run")).args(words);
        command
    }

    /// Creates a pool; `words` have `{}` for each image.
    pub(super) fn create(
        &self,
        options: &[String],
        words: &[&str],
        images: &[PathBuf],
    ) -> Result<(), RoundError> {
        let mut create = self.command(&["zpool", "create", "--export"]);
        create.args(options).arg(POOL);
        let mut images = images.iter();
        for word in words {
            match *word {
                "{}" => create.args(images.next()),
                word => create.arg(word),
            };
        }
        succeed(&mut create).map(drop)
    }
}

/// The rzfs process that serves a pool; killed on drop at the latest.
#[derive(Debug)]
pub(super) struct Served {
    home: Home,
    child: Child,
}

impl Served {
    /// Imports the pool of these images, and mounts it.
    pub(super) fn start(home: &Home, images: &[PathBuf]) -> Result<Self, RoundError> {
        let log = File::create(home.log()).map_err(RoundError::at(&home.log()))?;
        let errors = log.try_clone().map_err(RoundError::at(&home.log()))?;
        let mut mount = home.command(&["mount", "--foreground", "-o", CACHE]);
        mount.args(images).arg(home.mount());
        mount.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = mount.spawn().map_err(RoundError::at(&home.rzfs))?;
        let mut served = Self { home: home.clone(), child };
        let started = Instant::now();
        while !is_mounted(&home.mount()) {
            served.check()?;
            if started.elapsed() > PATIENCE {
                let place = served.where_it_waits();
                return Err(RoundError::Found(format!("the import does not end: {place}")));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(served)
    }

    /// Checks that the process is still running.
    pub(super) fn check(&mut self) -> Result<(), RoundError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                let complaints = self.home.complaints();
                Err(RoundError::Found(format!("rzfs has ended: {status}: {complaints}")))
            }
            Err(error) => Err(RoundError::at(&self.home.rzfs)(error)),
        }
    }

    pub(super) fn is_suspended(&self) -> Result<bool, RoundError> {
        let words = ["zpool", "get", "-Ho", "value", "health", POOL];
        Ok(succeed(&mut self.home.command(&words))?.trim_end() == "SUSPENDED")
    }

    /// Clears the pool; it may be suspended again at once.
    pub(super) fn clear(&self) -> Result<(), RoundError> {
        bounded(&mut self.home.command(&["zpool", "clear", POOL])).map(drop)
    }

    /// Exports the pool, which ends the process.
    pub(super) fn export(mut self) -> Result<(), RoundError> {
        succeed(&mut self.home.command(&["zpool", "export", POOL]))?;
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > PATIENCE {
                let place = self.where_it_waits();
                return Err(RoundError::Found(format!("rzfs does not end, exported: {place}")));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Kills the process. Its mount, which then returns errors, is left to [`Self::drop`].
    pub(super) fn kill(&mut self) -> Result<(), RoundError> {
        self.child.kill().map_err(RoundError::at(&self.home.rzfs))?;
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > PATIENCE {
                let place = self.where_it_waits();
                return Err(RoundError::Found(format!("rzfs does not die: {place}")));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// The error output of the process.
    pub(super) fn complaints(&self) -> String {
        self.home.complaints()
    }

    /// What the threads of the process are waiting for, as far as the kernel reports it.
    pub(super) fn where_it_waits(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = tasks.into_iter().flatten().flatten().map(|task| {
            let told = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            format!("{} in {}", told("comm").trim_end(), told("wchan"))
        });
        threads.collect::<Vec<_>>().join(", ")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        while is_mounted(&self.home.mount()) {
            let detached = Command::new("umount").arg("-l").arg(self.home.mount()).status();
            if !detached.is_ok_and(|status| status.success()) {
                break;
            }
        }
    }
}

fn is_mounted(directory: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(directory))
}

/// Runs a command with a time limit.
pub(super) fn bounded(command: &mut Command) -> Result<Output, RoundError> {
    let words = words(command);
    let failed = |source| RoundError::Host { place: words.clone(), source };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    let process = Pid::from_child(&child);
    let (done, waiting) = mpsc::channel();
    let waits = std::thread::Builder::new().name("command".to_owned());
    waits.spawn(move || done.send(child.wait_with_output())).map_err(failed)?;
    match waiting.recv_timeout(PATIENCE) {
        Ok(output) => output.map_err(failed),
        Err(_) => {
            // It is still waited for, so its process id has not been reused.
            let _ = kill_process(process, Signal::KILL);
            Err(RoundError::Found(format!("{words} does not end")))
        }
    }
}

/// Runs an operation on a mount with a time limit. If it expires the thread is left behind, until
/// the process that serves the mount is killed.
pub(super) fn in_time<T: Send + 'static>(
    what: &str,
    act: impl FnOnce() -> Result<T, RoundError> + Send + 'static,
) -> Result<T, RoundError> {
    let (done, waiting) = mpsc::channel();
    let thread = std::thread::Builder::new().name("mount".to_owned());
    let started = thread.spawn(move || done.send(act()));
    started.map_err(|source| RoundError::Host { place: what.to_owned(), source })?;
    let late = |_| Err(RoundError::Found(format!("{what} does not end")));
    waiting.recv_timeout(PATIENCE).unwrap_or_else(late)
}

/// Runs a command that must succeed within the time limit; returns its output.
pub(super) fn succeed(command: &mut Command) -> Result<String, RoundError> {
    let output = bounded(command)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (words, status, errors) = (words(command), output.status, text(&output.stderr));
    Err(RoundError::Found(format!("{words}: {status}: {errors} {}", text(&output.stdout))))
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
