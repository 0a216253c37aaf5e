//! Rounds of failing devices under programs that wait for what they do.

use crate::process::Failure;
use rzfs_proof::crash::{FaultRound, Workload};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Let devices fail in many ways under programs that wait for what they do, and cut the power.
#[derive(clap::Args)]
pub(crate) struct Faults {
    /// How many rounds.
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On which pool: single, mirror, raidz2 or log; all of them in turn when this is not given.
    #[arg(long)]
    shape: Option<String>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Carries it out.
pub(crate) fn run(faults: &Faults) -> Result<(), Failure> {
    let wanted =
        |workload: &Workload| faults.shape.as_ref().is_none_or(|name| name == workload.name());
    let workloads: Vec<Workload> = Workload::FAULTY.into_iter().filter(wanted).collect();
    if workloads.is_empty() {
        let name = faults.shape.clone().unwrap_or_default();
        return Err(Failure::Checks(format!("finding the shape '{name}'")));
    }
    let (started, findings) = (Instant::now(), Mutex::new(0_u64));
    let next = AtomicU64::new(faults.seed);
    let end = faults.seed.saturating_add(faults.rounds);
    std::thread::scope(|scope| {
        for _ in 0..faults.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let workload = workloads[(seed % workloads.len() as u64) as usize];
                    if let Some(finding) = (FaultRound { workload, seed }).finding() {
                        let which = format!("--shape {} --seed {seed} --rounds 1", workload.name());
                        println!("FOUND {finding}\n  again: cargo xtask faults {which}");
                        if let Ok(mut findings) = findings.lock() {
                            *findings += 1;
                        }
                    }
                }
            });
        }
    });
    let found = findings.into_inner().unwrap_or_default();
    let seconds = started.elapsed().as_secs_f64();
    println!("{} rounds: {found} findings, {seconds:.0} s", faults.rounds);
    if found == 0 { Ok(()) } else { Err(Failure::Checks("surviving faults".to_owned())) }
}
