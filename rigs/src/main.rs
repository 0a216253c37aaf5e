//! The rigs of the rzfs repository: chores that need the engine (`cargo xtask --help`).
#![forbid(unsafe_code)]

mod bench;
mod crash;
mod faults;
mod full;
mod fuzz;
mod golden;
mod hostile;
mod kill;
mod reference;
mod suites;
mod zdb_oracle;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Counts the memory that `hostile` limits.
#[global_allocator]
static ALLOCATOR: rzfs_hostile::CountingAllocator = rzfs_hostile::CountingAllocator;

/// Rigs of the rzfs repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    rig: Rig,
}

#[derive(Subcommand)]
enum Rig {
    /// Measure.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Cut recorded runs of the write engine off at many moments, and look at what is left.
    Crash(crash::Crash),
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
    /// Kill processes that write to a pool, and see what is left of it.
    Kill(kill::Kill),
    /// Let rzfs and the kernel of OpenZFS change the same pools in turns.
    Reference(reference::Reference),
    /// Run pjdfstest, fsx, fio and others on file systems that are served for writing, as root.
    Suites(suites::Suites),
    /// Ask OpenZFS's zdb about the golden pools; the tests of `rzfs zdb` compare with its answers.
    ZdbOracle(zdb_oracle::ZdbOracle),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.rig {
        Rig::Bench(bench) => bench::run(&bench),
        Rig::Crash(crash) => crash::run(&crash),
        Rig::Faults(faults) => faults::run(&faults),
        Rig::Full(full) => full::run(&full),
        Rig::Fuzz(fuzz) => fuzz::run(&fuzz),
        Rig::Golden { filter, damage } => golden::run(&filter, damage),
        Rig::Hostile(hostile) => hostile::run(&hostile),
        Rig::Kill(kill) => kill::run(&kill),
        Rig::Reference(reference) => reference::run(&reference),
        Rig::Suites(chosen) => suites::run_suites(&chosen),
        Rig::ZdbOracle(oracle) => zdb_oracle::run(&oracle),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn xtask_knows_them_all() {
        let command = Arguments::command();
        let about = |rig: &clap::Command| rig.get_about().unwrap().to_string();
        let rigs: Vec<_> =
            command.get_subcommands().map(|rig| (rig.get_name().to_owned(), about(rig))).collect();
        let known = xtask::RIGS.map(|(name, about)| (name.to_owned(), about.to_owned()));
        assert_eq!(rigs, known);
    }
}
