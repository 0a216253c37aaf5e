//! `cargo xtask hostile`: seeded corruptions of the golden pools; with `--mounts`, pools that lie
//! or are damaged below the binary.

mod mounts;
mod walk;

use rzfs_hostile::{DamageKind, Finding, Limits, MemoryUse, MemoryWatch, Subject, run_case};
use rzfs_testkit::ReferencePool;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use walk::Trust;
use xtask::process::Failure;

/// What `cargo xtask hostile` is asked.
#[derive(clap::Args)]
pub(crate) struct Hostile {
    /// How many cases to run, one pool after the other.
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// The seed of the first case; every next one has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only pools with this in their names.
    #[arg(long, default_value = "")]
    pool: String,
    /// Mount so many pools that lie or are damaged, instead; nothing may come out of them.
    #[arg(long)]
    mounts: Option<u64>,
    /// This is a mount namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
    /// Walk over this mount, and say what must not be.
    #[arg(long, hide = true)]
    walk: Option<PathBuf>,
    /// Nothing in the mount is to be trusted.
    #[arg(long, hide = true)]
    distrust: bool,
}

/// Cases after which a run says how far it is.
const PROGRESS: u64 = 500;

/// What was seen in all cases.
#[derive(Default)]
struct Totals {
    cases: u64,
    imported: u64,
    errors: u64,
    findings: u64,
    memory: MemoryUse,
    slowest: Duration,
    by_kind: [u64; DamageKind::ALL.len()],
}

/// Runs the cases; a finding is a failure, and comes with the command that repeats it.
pub(crate) fn run(arguments: &Hostile) -> Result<(), Failure> {
    if let Some(directory) = &arguments.walk {
        let trust = if arguments.distrust { Trust::Nothing } else { Trust::Imported };
        return walk::run(directory, trust);
    }
    if let Some(cases) = arguments.mounts {
        return mounts::run(cases, arguments.seed, arguments.inside);
    }
    let start = Instant::now();
    let mut subjects = Vec::new();
    for pool in ReferencePool::all_golden() {
        if pool.name().contains(&arguments.pool) {
            subjects.push(Arc::new(Subject::open(&pool).map_err(Failure::file(pool.dir()))?));
        }
    }
    let before = MemoryWatch::allocated();
    let mut totals = Totals::default();
    let last = arguments.seed.saturating_add(arguments.cases);
    for (seed, subject) in (arguments.seed..last).zip(subjects.iter().cycle()) {
        if totals.cases > 0 && totals.cases.is_multiple_of(PROGRESS) {
            eprintln!("{} cases, {} findings", totals.cases, totals.findings);
        }
        if let Some(finding) = totals.case(subject, seed) {
            println!("{}: {finding}", subject.name());
            println!(
                "  again: cargo xtask hostile --pool {} --seed {seed} --cases 1",
                subject.name()
            );
            if finding == Finding::Hang {
                // The case still runs; nothing that is measured from now on would be right.
                break;
            }
        }
    }
    totals.print(start.elapsed());
    println!(
        "allocated after all cases: {} bytes",
        MemoryWatch::allocated().saturating_sub(before)
    );
    match totals.findings {
        0 => Ok(()),
        findings => Err(Failure::Checks(format!("hostile: {findings} cases"))),
    }
}

impl Totals {
    fn case(&mut self, subject: &Arc<Subject>, seed: u64) -> Option<Finding> {
        let outcome = run_case(subject, seed, &Limits::STATED);
        self.cases += 1;
        self.imported += u64::from(outcome.tally.imported);
        self.errors += outcome.tally.errors;
        self.findings += u64::from(outcome.finding.is_some());
        self.memory.peak = self.memory.peak.max(outcome.memory.peak);
        self.memory.largest = self.memory.largest.max(outcome.memory.largest);
        self.slowest = self.slowest.max(outcome.cpu);
        self.by_kind[Subject::kind(seed) as usize] += 1;
        outcome.finding
    }

    fn print(&self, time: Duration) {
        let kinds = DamageKind::ALL.iter().zip(self.by_kind);
        let kinds: Vec<_> = kinds.map(|(kind, cases)| format!("{cases} {}", kind.name())).collect();
        println!(
            "{} cases ({}) in {time:.0?}: {} findings, {} imported, {} errors returned",
            self.cases,
            kinds.join(", "),
            self.findings,
            self.imported,
            self.errors
        );
        println!(
            "slowest {:.1?} of processor time; memory at most {} bytes, {} in one allocation",
            self.slowest, self.memory.peak, self.memory.largest
        );
    }
}
