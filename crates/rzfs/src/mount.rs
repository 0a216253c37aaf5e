//! Pools that a process of their own has open: `rzfs mount`, `zpool create`, `zpool import`.
//!
//! [`serve`] does the work: it opens or makes the pool, mounts, and answers until the pool is let
//! go of. Usually it runs in a process in the background, to which the command hands a
//! [`ServeRequest`]; with `rzfs mount --foreground` it runs in the command itself.

mod change;
mod events;
pub(crate) mod keys;
mod lookers;
mod mounted;
mod mounter;
mod opening;
mod plan;
pub(crate) mod request;
mod snapshots;
mod table;

use crate::arguments::MountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use crate::daemon::{
    self, Completeness, Daemon, Ending, Input, Mounted, Readiness, ServeError, Verdict,
};
use crate::sandbox::{self, Duty};
use crate::zpool::CreateRequest;
use mounted::{Contents, MountedPool};
use opening::{Opened, Place};
use request::{ImportRequest, KeyLoading, MountRequest};
use rzfs::control::{ControlClient, ControlDirectory, is_listened_on};
use rzfs_format::Guid;
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

/// The socket of a pool that is not served yet.
struct FreeSocket {
    directory: ControlDirectory,
    pool: String,
}

impl FreeSocket {
    fn of_pool(pool: &str, verb: &str) -> Result<Self, Failure> {
        let directory = ControlDirectory::of_user();
        directory.check_length(pool).and_then(|()| directory.prepare()).map_err(failed)?;
        if directory.sockets(pool).any(|path| is_listened_on(&path)) {
            return Err(taken(pool, verb));
        }
        Ok(Self { directory, pool: pool.to_owned() })
    }

    /// Refuses a pool that is imported for writing under any name: its devices are claimed, but
    /// perhaps not those that were found now.
    fn for_writing(self, guid: Guid) -> Result<Self, Failure> {
        // Where one of them does not answer now, the claims of the devices have to do.
        let imported = ControlDirectory::of_user().mounted().unwrap_or_default();
        let same = imported.iter().map(ControlClient::identity);
        match same.clone().find(|one| one.guid == guid.get() && one.is_writable) {
            Some(one) => Err(Failure::Failed(format!(
                "cannot import '{}': pool is busy\nprocess {} has it imported as '{}'",
                self.pool, one.process, one.pool
            ))),
            None => Ok(self),
        }
    }

    /// Binds it. From here on a signal ends the mounts instead of the process.
    fn bind(self, verb: &str) -> Result<Daemon, Failure> {
        Daemon::bind(&self.directory, &self.pool).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => taken(&self.pool, verb),
            _ => Failure::Failed(format!("control socket: {error}")),
        })
    }
}

/// What is said when another pool with the name is in use.
fn taken(pool: &str, verb: &str) -> Failure {
    Failure::Failed(match verb {
        "mount" => format!("cannot mount '{pool}': a pool with that name is mounted"),
        "create" => format!("cannot create '{pool}': pool already exists"),
        _ => format!(
            "cannot {verb} '{pool}': a pool with that name already exists\n\
             use the form 'zpool import <pool | id> <newpool>' to give it a new name"
        ),
    })
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

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
