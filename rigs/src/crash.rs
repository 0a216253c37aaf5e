//! Cuts recorded runs of the write engine off at many moments, and looks at what is left.

use rzfs_proof::crash::{CrashCase, Depth, Recording, SyncedRecording, Workload};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use xtask::process::{Failure, outcome};

/// Crashes of one recorded run.
const POINTS_OF_RUN: u64 = 250;
/// How often a pool is changed and exported after its crash.
const GO_ON_EVERY: u64 = 8;

/// Cut recorded runs of the write engine off at many moments, and look at what is left.
#[derive(clap::Args)]
pub(crate) struct Crash {
    /// How many crashes.
    #[arg(long, default_value_t = 500)]
    points: u64,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is done to the pool: single, mirror, raidz2, classes, logs, nologs, datasets, shared,
    /// add, encrypted or limits; all of them in turn when this is not given.
    #[arg(long)]
    workload: Option<String>,
    /// Of programs that wait for what they do, whose intent log has to be replayed.
    #[arg(long)]
    synced: bool,
    /// Only the crash with this number, of the run with this seed.
    #[arg(long)]
    number: Option<u64>,
    /// Every how many crashes OpenZFS's zdb is asked as well; 0 for never.
    #[arg(long, default_value_t = 100)]
    zdb_every: u64,
    /// Where images of crashes with a finding are kept.
    #[arg(long, default_value = "target/crash")]
    keep: PathBuf,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// What came of the crashes so far.
#[derive(Debug, Default)]
struct Score {
    done: AtomicU64,
    judged: AtomicU64,
    findings: Mutex<Vec<String>>,
}

/// Carries it out.
pub(crate) fn run(crash: &Crash) -> Result<(), Failure> {
    let workloads = workloads(crash)?;
    let score = Score::default();
    let started = Instant::now();
    let (mut left, mut seed) = (crash.points, crash.seed);
    while left > 0 {
        let workload = workloads[(seed % workloads.len() as u64) as usize];
        let points = if crash.number.is_some() { 1 } else { left.min(POINTS_OF_RUN) };
        match crash.synced {
            true => crash.run_synced(workload, seed, points, &score)?,
            false => crash.run_one(workload, seed, points, &score)?,
        }
        left = if crash.number.is_some() { 0 } else { left - points };
        seed += 1;
    }
    let findings = score.findings.into_inner().unwrap_or_default();
    println!(
        "{} crashes, {} of them judged by zdb too: {} findings, {:.0} s",
        score.done.into_inner(),
        score.judged.into_inner(),
        findings.len(),
        started.elapsed().as_secs_f64()
    );
    if findings.is_empty() { Ok(()) } else { Err(Failure::Checks("surviving crashes".to_owned())) }
}

fn workloads(crash: &Crash) -> Result<Vec<Workload>, Failure> {
    let wanted =
        |workload: &Workload| crash.workload.as_ref().is_none_or(|name| name == workload.name());
    let all = if crash.synced { &Workload::SYNCED[..] } else { &Workload::ALL };
    let workloads: Vec<_> = all.iter().copied().filter(wanted).collect();
    if workloads.is_empty() {
        let name = crash.workload.clone().unwrap_or_default();
        return Err(Failure::Checks(format!("finding the workload '{name}'")));
    }
    Ok(workloads)
}

impl Crash {
    fn run_one(
        &self,
        workload: Workload,
        seed: u64,
        points: u64,
        score: &Score,
    ) -> Result<(), Failure> {
        let recording = Recording::make(workload, seed)
            .map_err(|error| Failure::Checks(format!("{} {seed}: {error}", workload.name())))?;
        println!(
            "{} {seed}: {} groups, {} moments",
            workload.name(),
            recording.groups(),
            recording.moments()
        );
        self.for_each(points, |number| {
            self.examine(CrashCase { recording: &recording, number }, score);
        });
        Ok(())
    }

    /// Does something for each number of a run, in several threads.
    fn for_each(&self, points: u64, act: impl Fn(u64) + Sync) {
        let next = AtomicU64::new(self.number.unwrap_or(0));
        let end = self.number.map_or(points, |number| number + 1);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end {
                            break;
                        }
                        act(number);
                    }
                });
            }
        });
    }

    /// Crashes of programs that wait for what they do.
    fn run_synced(
        &self,
        workload: Workload,
        seed: u64,
        points: u64,
        score: &Score,
    ) -> Result<(), Failure> {
        let name = workload.name();
        let recording = SyncedRecording::make(workload, seed)
            .map_err(|error| Failure::Checks(format!("{name} {seed}: {error}")))?;
        println!("{name} {seed}: {} waits, {} moments", recording.waits(), recording.moments());
        self.for_each(points, |number| {
            let finding = recording.finding(number);
            score.done.fetch_add(1, Ordering::Relaxed);
            if let Some(finding) = finding {
                let which = format!("--workload {name} --seed {seed} --number {number}");
                println!("FOUND {finding}\n  again: cargo xtask crash --synced {which}");
                if let Ok(mut findings) = score.findings.lock() {
                    findings.push(finding);
                }
            }
        });
        Ok(())
    }

    fn examine(&self, case: CrashCase<'_>, score: &Score) {
        let (workload, seed) = (case.recording.workload.name(), case.recording.seed);
        let is_thorough = case.number.is_multiple_of(GO_ON_EVERY) || self.number.is_some();
        let depth = if is_thorough { Depth::GoOn } else { Depth::Import };
        let mut finding = case.finding(depth);
        if self.zdb_every > 0 && case.number % self.zdb_every == 1 {
            score.judged.fetch_add(1, Ordering::Relaxed);
            finding = finding.or_else(|| judged(case));
        }
        score.done.fetch_add(1, Ordering::Relaxed);
        if let Some(finding) = finding {
            let number = case.number;
            let kept = self.keep.join(format!("{workload}-{seed}-{number}"));
            if let Err(error) = case.images().save(&kept) {
                println!("{}: {error}", kept.display());
            }
            let command =
                format!("cargo xtask crash --workload {workload} --seed {seed} --number {number}");
            println!("FOUND {finding}\n  again: {command}\n  images: {}", kept.display());
            if let Ok(mut findings) = score.findings.lock() {
                findings.push(finding);
            }
        }
    }
}

/// What OpenZFS's zdb has to say about what a crash left.
fn judged(case: CrashCase<'_>) -> Option<String> {
    let scratch = match tempfile::tempdir() {
        Ok(scratch) => scratch,
        Err(error) => return Some(error.to_string()),
    };
    if let Err(error) = case.images().save(scratch.path()) {
        return Some(error.to_string());
    }
    zdb(scratch.path(), case.recording.workload.shape().name)
}

/// What OpenZFS's zdb finds wrong with a pool whose images are in a directory.
pub(crate) fn zdb(directory: &Path, pool: &str) -> Option<String> {
    let mut zdb = Command::new("zdb");
    zdb.args(["-bcc", "-e", "-p"]).arg(directory).arg(pool);
    let output = match outcome(&mut zdb) {
        Ok(output) => output,
        Err(failure) => return Some(failure.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_clean = output.status.success() && text.contains("No leaks");
    (!is_clean).then(|| format!("zdb: {}: {errors} {text}", output.status))
}
