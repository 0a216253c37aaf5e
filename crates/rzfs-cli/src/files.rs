//! `rzfs ls`, `cat`, `stat`, `find` and `cp`: files of a pool that is not mounted.
//!
//! A target is `POOL/FS[@SNAP]:/PATH`, or a volume `POOL/VOL[@SNAP]`. Unreadable files are
//! reported, with place and reason; the command continues with the rest and exits with 1.

pub(crate) mod arguments;
mod cat;
mod complaints;
mod cp;
mod find;
mod ls;
mod pattern;
mod session;
mod stat;
mod text;

pub(crate) use arguments::expand_devices;

use crate::console::{Console, Outcome, conclude};
use arguments::{CpArguments, FindArguments, LsArguments, TargetsArguments};
use complaints::Complaints;

/// Runs a command, and converts its outcome to an exit status.
fn run(
    command: &'static str,
    console: &mut Console<'_>,
    body: impl FnOnce(&mut Complaints<'_, '_>) -> Outcome,
) -> u8 {
    let mut complaints = Complaints::new(command, console);
    let outcome = body(&mut complaints).and_then(|()| complaints.outcome());
    conclude(outcome, &format!("For more information, try 'rzfs {command} --help'."), console)
}

pub(crate) fn ls(arguments: &LsArguments, console: &mut Console<'_>) -> u8 {
    run("ls", console, |complaints| ls::run(arguments, complaints))
}

pub(crate) fn cat(arguments: &TargetsArguments, console: &mut Console<'_>) -> u8 {
    run("cat", console, |complaints| cat::run(arguments, complaints))
}

pub(crate) fn stat(arguments: &TargetsArguments, console: &mut Console<'_>) -> u8 {
    run("stat", console, |complaints| stat::run(arguments, complaints))
}

pub(crate) fn find(arguments: &FindArguments, console: &mut Console<'_>) -> u8 {
    run("find", console, |complaints| find::run(arguments, complaints))
}

pub(crate) fn cp(arguments: &CpArguments, console: &mut Console<'_>) -> u8 {
    run("cp", console, |complaints| cp::run(arguments, complaints))
}
