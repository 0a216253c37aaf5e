//! `rzfs mount`, and the start of pool processes for `zpool create` and `zpool import`.
//!
//! Usually that is a background process, which gets a [`ServeRequest`]; with `rzfs mount
//! --foreground` it is the command itself.

mod attendant;
mod named_key;
pub(crate) mod request;
mod wording;

pub(crate) use attendant::Attendant;
pub(crate) use named_key::read_all as read_named_keys;

use crate::arguments::MountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use rzfs_server::request::ServeRequest;
use rzfs_server::{Completeness, Readiness, ServeError, Verdict, restart_tuned};
use std::io;
use wording::Wording;

/// The hint after a usage error.
const HELP: &str = "For more information, try 'rzfs mount --help'.";

/// Runs `rzfs mount`. Returns when everything is mounted, or with `--foreground` when it is
/// unmounted.
pub(crate) fn run(arguments: &MountArguments, verbose: u8, console: &mut Console<'_>) -> u8 {
    if arguments.foreground {
        // Before keys are read, possibly from standard input.
        restart_tuned(std::env::args_os().skip(1));
    }
    let request = match request::of(arguments) {
        Ok(request) => ServeRequest::Mount(request),
        Err(failure) => return conclude(Err(failure), HELP, console),
    };
    let outcome = match arguments.foreground {
        true => serve(request, console, |_| Ok(())),
        false => in_background(&request, verbose),
    };
    conclude(outcome, HELP, console)
}

/// Starts a background process that serves a pool, and waits until it does.
pub(crate) fn in_background(request: &ServeRequest, verbose: u8) -> Outcome {
    let verbosity = vec!["--verbose"; usize::from(verbose)];
    match rzfs_server::in_background(request, &verbosity) {
        Ok(Verdict::Ready(completeness)) => outcome(completeness),
        // It has printed the reason.
        Ok(Verdict::Ended(status)) if status.code().is_some() => Err(Failure::Told),
        Ok(Verdict::Ended(status)) => Err(Failure::Failed(format!(
            "the process in the background ended before everything was mounted: {status}"
        ))),
        Err(error) => {
            Err(Failure::Failed(format!("cannot start a process in the background: {error}")))
        }
    }
}

/// Runs the background process.
pub(crate) fn serve_in_background(console: &mut Console<'_>) -> u8 {
    let outcome = match Readiness::request::<ServeRequest>() {
        Ok((request, readiness)) => {
            serve(request, console, |completeness| readiness.ready(completeness))
        }
        Err(error) => Err(Failure::Failed(format!("request of a command: {error}"))),
    };
    conclude(outcome, HELP, console)
}

/// Serves a pool in this process until it is closed.
fn serve(
    request: ServeRequest,
    console: &mut Console<'_>,
    ready: impl FnOnce(Completeness) -> io::Result<()>,
) -> Outcome {
    let wording = Wording::of(&request);
    let mut attendant = Attendant::new(console).advising(wording.where_denied());
    match rzfs_server::serve(request, &mut attendant, ready) {
        Ok(completeness) => outcome(completeness),
        Err(ServeError::NothingMounted) => Err(Failure::Told),
        Err(error) => Err(Failure::Failed(wording.of_error(&error))),
    }
}

/// Missing parts were reported.
fn outcome(completeness: Completeness) -> Outcome {
    match completeness {
        Completeness::Complete => Ok(()),
        Completeness::Partial => Err(Failure::Told),
    }
}
