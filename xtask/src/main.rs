//! Chores of the rzfs repository: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod checks;
mod citations;
mod demo;
mod docs_check;
mod import_cycles;
mod links;
mod markdown;
mod setup;
mod stranger;
mod workplace;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use xtask::process::Failure;
use xtask::{RIGS, rig};

/// Chores of the rzfs repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Make a pool, kill its process, find everything, mount a pool of OpenZFS's.
    Demo,
    /// Run every command in the documentation, on the sample pool, and look whether what is cited
    /// is there.
    DocsCheck,
    /// Look whether files of a crate import each other in a circle.
    ImportCycles,
    /// Install the Debian packages that tests and demo need; without root, name them.
    Setup,
    /// Run the tests as whoever has only a clone: without the larger set of pools, as root and not.
    Stranger(stranger::Stranger),
    /// Run what shows a mistake soon: formatting, lints, short tests; or everything that has to pass.
    Test(checks::Test),
}

/// The chores of this program, and the rigs for who asks what there is.
fn command() -> clap::Command {
    RIGS.into_iter().fold(Arguments::command(), |command, (name, about)| {
        command.subcommand(clap::Command::new(name).about(about))
    })
}

/// The rig that is asked for, and the words for it.
fn rig_of(mut words: impl Iterator<Item = OsString>) -> Option<(&'static str, Vec<OsString>)> {
    let first = words.next()?;
    let (name, _) = RIGS.into_iter().find(|(name, _)| first == *name)?;
    Some((name, words.collect()))
}

fn run() -> Result<(), Failure> {
    if let Some((name, words)) = rig_of(std::env::args_os().skip(1)) {
        let source = rig(name).args(words).exec();
        return Err(Failure::Start { program: name.to_owned(), source });
    }
    let matches = command().get_matches();
    match Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).chore {
        Chore::Demo => demo::run(),
        Chore::DocsCheck => docs_check::run(),
        Chore::ImportCycles => import_cycles::run(),
        Chore::Setup => setup::run(),
        Chore::Stranger(stranger) => stranger::run(&stranger),
        Chore::Test(test) => checks::run(&test),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_rigs_are_handed_on_as_they_are() {
        command().debug_assert();
        let of = |words: &[&str]| rig_of(words.iter().map(OsString::from));
        let words = ["--", "-bcc", "--help"];
        let (name, rest) = of(&["zdb-oracle", "--", "-bcc", "--help"]).unwrap();
        assert_eq!((name, rest), ("zdb-oracle", words.map(OsString::from).to_vec()));
        assert!(of(&["demo"]).is_none() && of(&["--help"]).is_none() && of(&[]).is_none());
    }
}
