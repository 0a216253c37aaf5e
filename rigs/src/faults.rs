//! Rounds of failing devices under programs that wait for what they do.

use rzfs_proof::crash::{FaultRound, Workload};
use rzfs_proof::images::{Figures, Honesty, ImageRound, ImageShape, Programs};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use xtask::process::Failure;
use xtask::rzfs::Rzfs;

/// Let devices fail in many ways under programs that wait for what they do, and cut the power.
#[derive(clap::Args)]
pub(crate) struct Faults {
    /// How many rounds: 1000 if this is not given, 10 with --images.
    #[arg(long)]
    rounds: Option<u64>,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On which pool: single, mirror, raidz2 or log; all of them in turn when this is not given.
    #[arg(long)]
    shape: Option<String>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Below the binary, as root: its devices are images that a process serves which fails, and it
    /// is killed.
    #[arg(long)]
    images: bool,
    /// With images that forget what they were told to flush: each round has a finding then.
    #[arg(long, requires = "images")]
    forgetful: bool,
    /// The binary to test with --images; without, it is built.
    #[arg(long, requires = "images")]
    rzfs: Option<PathBuf>,
}

/// Rounds without --images and with it.
const SIMULATED_ROUNDS: u64 = 1000;
const IMAGE_ROUNDS: u64 = 10;
/// How often the process of a round is killed.
const LIVES: u64 = 2;

/// Carries it out.
pub(crate) fn run(faults: &Faults) -> Result<(), Failure> {
    if faults.images { faults.run_images() } else { faults.run_simulated() }
}

/// The shapes with the name that was given, all of them without one.
fn chosen<S: Copy>(
    all: &[S],
    name: fn(S) -> &'static str,
    wanted: Option<&str>,
) -> Result<Vec<S>, Failure> {
    let is_wanted = |shape: &S| wanted.is_none_or(|wanted| wanted == name(*shape));
    let chosen: Vec<S> = all.iter().copied().filter(is_wanted).collect();
    if chosen.is_empty() {
        let name = wanted.unwrap_or_default();
        return Err(Failure::Checks(format!("finding the shape '{name}'")));
    }
    Ok(chosen)
}

impl Faults {
    fn run_simulated(&self) -> Result<(), Failure> {
        let workloads = chosen(&Workload::FAULTY, Workload::name, self.shape.as_deref())?;
        self.play(SIMULATED_ROUNDS, |seed| {
            let workload = workloads[(seed % workloads.len() as u64) as usize];
            let finding = FaultRound { workload, seed }.finding()?;
            let which = format!("--shape {} --seed {seed} --rounds 1", workload.name());
            Some(format!("{finding}\n  again: cargo xtask faults {which}"))
        })
    }

    fn run_images(&self) -> Result<(), Failure> {
        let shapes = chosen(&ImageShape::ALL, ImageShape::name, self.shape.as_deref())?;
        let rzfs = match &self.rzfs {
            Some(rzfs) => rzfs.clone(),
            None => Rzfs::build()?.binary,
        };
        let zdb = rzfs_testkit::zdb_program().map(Path::to_owned);
        let programs = Programs { rzfs, zdb };
        let honesty = if self.forgetful { Honesty::ForgetsFlushes } else { Honesty::KeepsItsWord };
        let figures = Mutex::new(Figures::default());
        let result = self.play(IMAGE_ROUNDS, |seed| {
            let shape = shapes[(seed % shapes.len() as u64) as usize];
            let round =
                ImageRound { shape, seed, lives: LIVES, honesty, programs: programs.clone() };
            let scratch = match tempfile::tempdir() {
                Ok(scratch) => scratch,
                Err(error) => return Some(error.to_string()),
            };
            match round.play(scratch.path()) {
                Ok(played) => {
                    let Figures { acknowledged, suspensions, .. } = played;
                    println!(
                        "{} {seed}: {acknowledged} acknowledgements, {suspensions} suspensions",
                        shape.name()
                    );
                    if let Ok(mut figures) = figures.lock() {
                        figures.add(played);
                    }
                    None
                }
                Err(error) => {
                    let forgetful = if self.forgetful { "--forgetful " } else { "" };
                    let which =
                        format!("{forgetful}--shape {} --seed {seed} --rounds 1", shape.name());
                    let kept = scratch.keep();
                    let kept = kept.display();
                    Some(format!(
                        "{error}\n  again: cargo xtask faults --images {which}\n  kept: {kept}"
                    ))
                }
            }
        });
        let Figures { acknowledged, refused, strikes, suspensions, cuts } =
            figures.into_inner().unwrap_or_default();
        println!(
            "{acknowledged} acknowledgements, {refused} errors, {strikes} troubles, {suspensions} \
             suspensions, {cuts} power cuts in rounds without findings"
        );
        result
    }

    /// Plays rounds until there are as many as were asked for; each may have a finding.
    fn play(
        &self,
        rounds: u64,
        round: impl Fn(u64) -> Option<String> + Sync,
    ) -> Result<(), Failure> {
        let rounds = self.rounds.unwrap_or(rounds);
        let (started, findings) = (Instant::now(), AtomicU64::new(0));
        let next = AtomicU64::new(self.seed);
        let end = self.seed.saturating_add(rounds);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            break;
                        }
                        if let Some(finding) = round(seed) {
                            println!("FOUND {finding}");
                            findings.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let found = findings.into_inner();
        let seconds = started.elapsed().as_secs_f64();
        println!("{rounds} rounds: {found} findings, {seconds:.0} s");
        if found == 0 { Ok(()) } else { Err(Failure::Checks("surviving faults".to_owned())) }
    }
}
