//! Pools that a process of their own has open: `rzfs mount`, `zpool create`, `zpool import`.
//!
//! [`serve`] does the work: it opens or makes the pool, mounts, and answers until the pool is let
//! go of. Usually it runs in a process in the background, to which the command hands a
//! [`ServeRequest`]; with `rzfs mount --foreground` it runs in the command itself.

mod change;
mod contents;
mod ending;
mod events;
pub(crate) mod keys;
mod lookers;
mod mounted;
mod mounter;
pub(crate) mod named_key;
mod open;
mod opening;
pub(crate) mod paths;
mod plan;
mod refusal;
pub(crate) mod request;
mod snapshots;
mod socket;
mod table;

use crate::arguments::MountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use crate::daemon::{
    self, Completeness, Daemon, Ending, Input, Mounted, Readiness, ServeError, Verdict,
};
use crate::sandbox::{self, Duty};
use crate::zpool::create_request::CreateRequest;
use contents::Contents;
use mounted::MountedPool;
use opening::{Opened, Place};
use refusal::failed;
use request::{ImportRequest, KeyLoading, MountRequest};
use rzfs_fuse::mounts_without_helper;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// What follows a usage error.
const HELP: &str = "For more information, try 'rzfs mount --help'.";

/// What a process in the background is to serve.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ServeRequest {
    /// A pool, as long as it is mounted.
    Mount(MountRequest),
    /// A new pool.
    Create(CreateRequest),
    /// A pool.
    Import(ImportRequest),
}

impl ServeRequest {
    /// What it needs of standard input. Keys of a [`CreateRequest`] and those that a command line
    /// names were read before.
    fn input(&self) -> Input {
        match self {
            Self::Import(request) if request.key_loading == KeyLoading::FilesAndInput => {
                Input::Shared
            }
            Self::Mount(_) | Self::Create(_) | Self::Import(_) => Input::Nothing,
        }
    }
}

/// `rzfs mount`. Comes back when everything is mounted, or with `--foreground` when it is
/// unmounted.
pub(crate) fn run(arguments: &MountArguments, verbose: u8, console: &mut Console<'_>) -> u8 {
    if arguments.foreground {
        // Before keys are read, perhaps from standard input.
        daemon::restart_tuned(std::env::args_os().skip(1));
    }
    let request = match MountRequest::of(arguments) {
        Ok(request) => ServeRequest::Mount(request),
        Err(failure) => return conclude(Err(failure), HELP, console),
    };
    let outcome = match arguments.foreground {
        true => serve(request, console, |_| Ok(())),
        false => in_background(&request, verbose),
    };
    conclude(outcome, HELP, console)
}

/// Has a process in the background serve a pool, and waits until it does.
pub(crate) fn in_background(request: &ServeRequest, verbose: u8) -> Outcome {
    let verbosity = vec!["--verbose"; usize::from(verbose)];
    match daemon::in_background(request, request.input(), &verbosity) {
        Ok(Verdict::Ready(Completeness::Complete)) => Ok(()),
        Ok(Verdict::Ready(Completeness::Partial)) => Err(Failure::Told),
        // It has said why.
        Ok(Verdict::Ended(status)) if status.code().is_some() => Err(Failure::Told),
        Ok(Verdict::Ended(status)) => Err(Failure::Failed(format!(
            "the process in the background ended before everything was mounted: {status}"
        ))),
        Err(error) => {
            Err(Failure::Failed(format!("cannot start a process in the background: {error}")))
        }
    }
}

/// The process in the background.
pub(crate) fn serve_in_background(console: &mut Console<'_>) -> u8 {
    let outcome = match Readiness::request::<ServeRequest>() {
        Ok((request, readiness)) => {
            serve(request, console, |completeness| readiness.ready(completeness))
        }
        Err(error) => Err(Failure::Failed(format!("request of a command: {error}"))),
    };
    conclude(outcome, HELP, console)
}

/// Opens the pool, mounts, calls `ready`, and serves until the pool is let go of.
fn serve(
    request: ServeRequest,
    console: &mut Console<'_>,
    ready: impl FnOnce(Completeness) -> io::Result<()>,
) -> Outcome {
    // Before anything is read of a device.
    if mounts_without_helper() {
        sandbox::enter(Duty::Serving);
    }
    if let Err(error) = rzfs_fuse::hold_process_files() {
        // Whoever mounts something is told.
        tracing::debug!(%error, "nothing can be mounted");
    }
    // Before anything is opened that a process in trouble must not keep.
    if let Err(error) = rzfs_fuse::run_errands_apart() {
        // Many containers forbid it; then only a process that is killed at the wrong moment
        // lingers.
        tracing::debug!(%error, "no threads with descriptors of their own");
    }
    let Opened { daemon, contents, place, advice, event } = match request {
        ServeRequest::Mount(request) => opening::mount(&request, console)?,
        ServeRequest::Create(request) => opening::create(&request, console)?,
        ServeRequest::Import(request) => opening::import(&request, console)?,
    };
    let (mounted, ended) = mount(&daemon, contents, (&place, advice.as_deref()), console)?;
    // Keys that were named are in it.
    drop(place);
    mounted.note(event);
    let completeness = mounted.completeness();
    let served = ready(completeness)
        .map_err(ServeError::from)
        .and_then(|()| daemon.serve(Arc::clone(&mounted), ended));
    if let Err(error) = &served {
        // Nobody may be there to read what is written below.
        tracing::error!(%error, "the pool is let go of");
        // Nobody can end the mounts any more.
        let ended = mounted.end(Ending::FORCED);
        ended.map_err(failed)?;
    }
    served.map_err(failed)?;
    match completeness {
        Completeness::Complete => Ok(()),
        Completeness::Partial => Err(Failure::Told),
    }
}

/// Mounts what is to be mounted of a pool. One that is written is exported if that fails.
fn mount(
    daemon: &Daemon,
    contents: Contents,
    (place, advice): (&Place, Option<&str>),
    console: &mut Console<'_>,
) -> Result<(Arc<MountedPool>, daemon::MountsEnd), Failure> {
    let planned = match opening::planned(&contents, place, console) {
        Ok(planned) => planned,
        Err(failure) => {
            contents.release();
            return Err(failure);
        }
    };
    daemon.mounting(contents.relief());
    let (while_mounted, ended) = daemon::mounts_end();
    let how = (&place.options, &place.placement, place.lifetime);
    let mounted = MountedPool::mount(contents, &planned, how, advice, while_mounted, console)?;
    Ok((Arc::new(mounted), ended))
}
