//! Ping-pong: rzfs and the kernel of OpenZFS change the same pools in turns.
//!
//! ```text
//! rzfs    make or open ─ fill, change ─ record ─ export ─ OpenZFS's zdb
//!                                         │ images, packed
//! kernel  import ─ same files? ─ scrub ─ change ─ snapshot ─ record ─ export
//!                                         │ images, packed
//! rzfs    same files, same snapshots? ─ open ─ change ...
//! ```
//! All pools of a round are judged in one boot of the reference machine. Of some shapes the kernel
//! gets a copy as well that was taken while rzfs had the pool, as a crash would leave it: with
//! changes that are in intent logs only, which the kernel replays.

mod contest;
mod machine;

use contest::Contest;
use rzfs_proof::SHAPES;
use rzfs_testkit::ReferencePool;
use std::path::PathBuf;
use xtask::process::Failure;

/// Let rzfs and the kernel of OpenZFS change the same pools in turns.
#[derive(clap::Args)]
pub(crate) struct Reference {
    /// Only pools with one of these words, parted by commas, in their names.
    #[arg(default_value = "")]
    filter: String,
    /// How often each of them has its turn.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Which files are changed, and how.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only what does not need the reference machine: rzfs' first turn, judged by zdb.
    #[arg(long)]
    without_machine: bool,
    /// Most seconds that the reference machine may take for a round.
    #[arg(long, default_value_t = 1100)]
    timeout: u32,
    /// Where images are kept; they are removed at the end when this is not given.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Carries the contests out.
pub(crate) fn run(reference: &Reference) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(Failure::file(std::path::Path::new("/tmp")))?;
    let directory = reference.directory.clone().unwrap_or_else(|| scratch.path().to_owned());
    let mut contests = contests(reference, &directory)?;
    if contests.is_empty() {
        return Err(Failure::Checks(format!("finding pools like '{}'", reference.filter)));
    }
    for round in 1..=reference.rounds {
        println!("round {round}: rzfs");
        let copies: Vec<Contest> =
            contests.iter_mut().filter_map(|contest| contest.turn(round)).collect();
        contests.extend(copies);
        if reference.without_machine {
            break;
        }
        println!("round {round}: the kernel of OpenZFS");
        if let Err(failure) = machine::judge(&mut contests, &directory, round, reference.timeout) {
            // What is known without the machine is worth telling.
            let _ = summary(&contests);
            return Err(failure);
        }
    }
    if !reference.without_machine {
        println!("the end: rzfs");
        contests.iter_mut().for_each(Contest::end);
    }
    summary(&contests)
}

fn contests(reference: &Reference, directory: &std::path::Path) -> Result<Vec<Contest>, Failure> {
    let is_wanted = |name: &str| reference.filter.split(',').any(|word| name.contains(word));
    let mut contests = Vec::new();
    for shape in SHAPES.iter().filter(|shape| is_wanted(shape.name)) {
        contests.push(Contest::of_shape(*shape, directory, reference.seed)?);
    }
    for pool in ReferencePool::all_golden().iter().filter(|pool| is_wanted(pool.name())) {
        contests.push(Contest::of_golden(pool, directory, reference.seed)?);
    }
    Ok(contests)
}

fn summary(contests: &[Contest]) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for contest in contests {
        println!("{}", contest.verdict());
        if !contest.findings().is_empty() {
            failed.push(contest.name().to_owned());
        }
        for finding in contest.findings() {
            println!("    {finding}");
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(", "))) }
}
