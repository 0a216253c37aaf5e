//! Kills processes that write to a pool, and sees what is left of it.

use crate::crash::zdb;
use rzfs_proof::killed::{look_at, write_until_killed};
use rzfs_proof::{PoolFiles, Settings, Shape};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xtask::process::{Failure, run as run_program};

/// How often it is looked whether a writer has begun.
const GLANCE: Duration = Duration::from_millis(20);
/// How long a writer may take until it has written something.
const PATIENCE: Duration = Duration::from_secs(300);

/// Kill processes that write to a pool, and see what is left of it.
#[derive(clap::Args)]
pub(crate) struct Kill {
    /// How many processes.
    #[arg(long, default_value_t = 30)]
    times: u32,
    /// The shape of the pool, as `reference` names them.
    #[arg(long, default_value = "two-sided")]
    shape: String,
    /// When the processes are killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that keep processors busy meanwhile.
    #[arg(long, default_value_t = 0)]
    load: usize,
    /// Be such a process, with the pool in this directory.
    #[arg(long, hide = true)]
    writer: Option<PathBuf>,
}

/// Carries it out.
pub(crate) fn run(kill: &Kill) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Checks(error.to_string());
    let shape = Shape::named(&kill.shape)
        .ok_or_else(|| Failure::Checks(format!("finding the shape '{}'", kill.shape)))?;
    if let Some(directory) = &kill.writer {
        let files = PoolFiles::new(&directory.join("images"), shape.name);
        return write_until_killed(&files, &directory.join("journal"))
            .map_err(|error| failed(&error));
    }
    let scratch = tempfile::tempdir().map_err(Failure::file(Path::new("/tmp")))?;
    let images = scratch.path().join("images");
    std::fs::create_dir(&images).map_err(Failure::file(&images))?;
    let files = PoolFiles::new(&images, shape.name);
    let made = files.create(&shape, &Settings::default()).and_then(rzfs_proof::OpenPool::export);
    made.map_err(|error| failed(&error))?;
    let is_over = AtomicBool::new(false);
    let noted = std::thread::scope(|scope| {
        for _ in 0..kill.load {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let noted = kill_all(kill, &files, scratch.path());
        is_over.store(true, Ordering::Relaxed);
        noted
    });
    match noted {
        Ok(noted) => {
            let times = kill.times;
            println!("{times} processes killed, {noted} notes of what was on disk: nothing lost");
            Ok(())
        }
        Err(failure) => {
            println!("kept: {}", scratch.keep().display());
            Err(failure)
        }
    }
}

/// Kills one process after the other; answers with how often something was noted.
fn kill_all(kill: &Kill, files: &PoolFiles, scratch: &Path) -> Result<usize, Failure> {
    let mut noted = 0;
    let journal = scratch.join("journal");
    for time in 1..=kill.times {
        let before = length(&journal);
        let mut child = start(kill, scratch)?;
        wait_for_growth(&journal, before, &mut child)?;
        let more = (kill.seed * 7919 + u64::from(time) * 104_729) % 900;
        std::thread::sleep(Duration::from_millis(more));
        child.kill().and_then(|()| child.wait()).map_err(Failure::file(&journal))?;
        noted = std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        keep(files.dir(), &scratch.join("before"))?;
        let finding = look_at(files, &journal).map_err(|error| failed(time, &error))?;
        if let Some(finding) = finding.or_else(|| zdb(files.dir(), files.name())) {
            return Err(failed(time, &finding));
        }
    }
    Ok(noted)
}

/// Keeps images as the kill left them: to look at them is to replay their intent log.
fn keep(images: &Path, copy: &Path) -> Result<(), Failure> {
    if copy.exists() {
        std::fs::remove_dir_all(copy).map_err(Failure::file(copy))?;
    }
    run_program(Command::new("cp").args(["-r", "--sparse=always"]).args([images, copy]))
}

fn failed(time: u32, finding: &dyn std::fmt::Display) -> Failure {
    Failure::Checks(format!("kill {time}: {finding}: surviving it"))
}

fn start(kill: &Kill, directory: &Path) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(Failure::file(Path::new("xtask")))?;
    Command::new(&program)
        .args(["kill", "--shape", &kill.shape, "--writer"])
        .arg(directory)
        .stdin(Stdio::null())
        .spawn()
        .map_err(Failure::file(&program))
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Waits until a writer has something on disk.
fn wait_for_growth(journal: &Path, before: u64, child: &mut Child) -> Result<(), Failure> {
    let started = Instant::now();
    while length(journal) == before {
        let ended = child.try_wait().map_err(Failure::file(journal))?;
        if ended.is_some() || started.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(Failure::Checks("writing to a pool that is to be killed".to_owned()));
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}
