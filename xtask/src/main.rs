//! Chores of the rzfs repository: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod bench;
mod checks;
mod citations;
mod crash;
mod demo;
mod docs_check;
mod faults;
mod full;
mod fuzz;
mod golden;
mod hostile;
mod import_cycles;
mod kill;
mod links;
mod markdown;
mod process;
mod reference;
mod rzfs;
mod setup;
mod stranger;
mod suites;
mod zdb_oracle;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Counts the memory that `hostile` limits.
#[global_allocator]
static ALLOCATOR: rzfs_hostile::CountingAllocator = rzfs_hostile::CountingAllocator;

/// Chores of the rzfs repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Cut recorded runs of the write engine off at many moments, and look at what is left.
    Crash(crash::Crash),
    /// Mount the sample pool, show what is in it, unmount it.
    Demo,
    /// Run every command in the documentation, on the sample pool, and look whether what is cited
    /// is there.
    DocsCheck,
    /// Let devices fail in many ways under programs that wait for what they do, and cut the power.
    Faults(faults::Faults),
    /// Fill pools to the last byte in ten ways and empty them, again and again.
    Full(full::Full),
    /// Fuzz the decoders and whole pools, with a nightly toolchain and cargo-fuzz.
    Fuzz(fuzz::Fuzz),
    /// Mount the reference pools of OpenZFS and compare every file.
    Golden {
        /// Only pools with this in their names.
        #[arg(default_value = "")]
        filter: String,
        /// What happens to members of redundant pools first.
        #[arg(long, value_enum, default_value_t = golden::Damage::None)]
        damage: golden::Damage,
    },
    /// Damage the golden pools in many ways, and read everything that is left of them.
    Hostile(hostile::Hostile),
    /// Look whether files of a crate import each other in a circle.
    ImportCycles,
    /// Kill processes that write to a pool, and see what is left of it.
    Kill(kill::Kill),
    /// Let rzfs and the kernel of OpenZFS change the same pools in turns.
    Reference(reference::Reference),
    /// Install the Debian packages that tests and demo need; without root, name them.
    Setup,
    /// Run the tests as whoever has only a clone: without the larger set of pools, as root and not.
    Stranger(stranger::Stranger),
    /// Run pjdfstest, fsx, fio and others on file systems that are served for writing, as root.
    Suites(suites::Suites),
    /// Run everything that has to pass: formatting, lints, documentation, tests.
    Test,
    /// Ask OpenZFS's zdb about the golden pools; the tests of `rzfs zdb` compare with its answers.
    ZdbOracle(zdb_oracle::ZdbOracle),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.chore {
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Crash(crash) => crash::run(&crash),
        Chore::Demo => demo::run(),
        Chore::DocsCheck => docs_check::run(),
        Chore::Faults(faults) => faults::run(&faults),
        Chore::Full(full) => full::run(&full),
        Chore::Fuzz(fuzz) => fuzz::run(&fuzz),
        Chore::Golden { filter, damage } => golden::run(&filter, damage),
        Chore::Hostile(hostile) => hostile::run(&hostile),
        Chore::ImportCycles => import_cycles::run(),
        Chore::Kill(kill) => kill::run(&kill),
        Chore::Reference(reference) => reference::run(&reference),
        Chore::Setup => setup::run(),
        Chore::Stranger(stranger) => stranger::run(&stranger),
        Chore::Suites(chosen) => suites::run_suites(&chosen),
        Chore::Test => checks::run(),
        Chore::ZdbOracle(oracle) => zdb_oracle::run(&oracle),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
