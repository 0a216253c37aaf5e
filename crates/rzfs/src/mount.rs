//! `rzfs mount`: the file systems of a pool, each with a mount of its own.
//!
//! [`serve`] does the work: it opens the pool, mounts, and answers until the pool is unmounted.
//! Usually it runs in a process in the background, to which the command hands its
//! [`MountRequest`]; with `--foreground` it runs in the command itself.

pub(crate) mod keys;
mod mounted;
mod plan;
pub(crate) mod request;

use crate::arguments::MountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use crate::daemon::{self, Completeness, Daemon, Mounted, Readiness, Verdict};
use crate::source::import_failure;
use mounted::MountedPool;
use plan::{Candidate, PlannedMount, plan};
use request::{MountOptions, MountRequest};
use rzfs::control::ControlDirectory;
use rzfs::{OpenError, Pool, PoolOptions};
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind};
use std::io;
use std::sync::Arc;

/// What follows a usage error.
const HELP: &str = "For more information, try 'rzfs mount --help'.";

/// Mounts. Comes back when everything is mounted, or with `--foreground` when it is unmounted.
pub(crate) fn run(arguments: &MountArguments, verbose: u8, console: &mut Console<'_>) -> u8 {
    let request = match MountRequest::of(arguments) {
        Ok(request) => request,
        Err(failure) => return conclude(Err(failure), HELP, console),
    };
    if arguments.foreground {
        daemon::restart_tuned(std::env::args_os().skip(1));
        let outcome = serve(&request, console, |_| Ok(()));
        return conclude(outcome, HELP, console);
    }
    let verbosity = vec!["--verbose"; usize::from(verbose)];
    let outcome = match daemon::in_background(&request, &verbosity) {
        Ok(Verdict::Ready(Completeness::Complete)) => Ok(()),
        Ok(Verdict::Ready(Completeness::Partial)) => Err(Failure::Told),
        // It has said why.
        Ok(Verdict::Ended(status)) if status.code().is_some() => Err(Failure::Told),
        Ok(Verdict::Ended(status)) => Err(Failure::Failed(format!(
            "the process in the background ended before everything was mounted: {status}"
        ))),
        Err(error) => Err(Failure::Failed(format!("cannot mount in the background: {error}"))),
    };
    conclude(outcome, HELP, console)
}

/// The process in the background.
pub(crate) fn serve_in_background(console: &mut Console<'_>) -> u8 {
    let outcome = match Readiness::request::<MountRequest>() {
        Ok((request, readiness)) => {
            serve(&request, console, |completeness| readiness.ready(completeness))
        }
        Err(error) => Err(Failure::Failed(format!("request on standard input: {error}"))),
    };
    conclude(outcome, HELP, console)
}

/// Opens the pool, mounts, calls `ready`, and serves until the pool is unmounted.
fn serve(
    request: &MountRequest,
    console: &mut Console<'_>,
    ready: impl FnOnce(Completeness) -> io::Result<()>,
) -> Outcome {
    let pool = open(request, console)?;
    let control = ControlDirectory::of_user();
    control.prepare().map_err(failed)?;
    let socket = control.socket(pool.name());
    if daemon::is_running(&socket) {
        return Err(already_mounted(&pool));
    }
    keys::load_named(&pool, &request.keys)?;
    let planned = planned(&pool, request).map_err(failed)?;
    let planned = with_keys(&pool, planned, request, console)?;
    if planned.is_empty() {
        let name = pool.name();
        return Err(Failure::Failed(format!("cannot mount '{name}': no file system to mount")));
    }
    // From here on a signal ends the mounts instead of the process.
    let daemon = Daemon::bind(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => already_mounted(&pool),
        _ => Failure::Failed(format!("control socket: {error}")),
    })?;
    let (while_mounted, ended) = daemon::mounts_end();
    let mounted = MountedPool::mount(pool, &planned, &request.options, while_mounted, console)?;
    let completeness = mounted.completeness();
    let mounted = Arc::new(mounted);
    let served = ready(completeness).and_then(|()| daemon.serve(Arc::clone(&mounted), ended));
    if served.is_err() {
        // Nobody can end the mounts any more.
        mounted.unmount(true).map_err(failed)?;
    }
    served.map_err(|error| Failure::Failed(format!("control socket: {error}")))?;
    match completeness {
        Completeness::Complete => Ok(()),
        Completeness::Partial => Err(Failure::Told),
    }
}

fn already_mounted(pool: &Pool) -> Failure {
    Failure::Failed(format!("cannot mount '{}': a pool with that name is mounted", pool.name()))
}

/// Opens the pool. Devices that cannot be opened are complained about; the others may do.
fn open(request: &MountRequest, console: &mut Console<'_>) -> Result<Pool, Failure> {
    let mut options = PoolOptions::new().device_paths(&request.devices);
    if let Some(pool) = &request.pool {
        options = options.pool(pool);
    }
    if request.force {
        options = options.force();
    }
    if let Some(bytes) = request.options.arc_max {
        options = options.arc_max(bytes);
    }
    let found = options.discover();
    for error in found.unopened() {
        console.complain(error);
    }
    let pool = options.open_among(&found).map_err(|error| {
        Failure::Failed(match error {
            OpenError::Import(failure) => import_failure(&failure, "rzfs mount -f"),
            error => error.to_string(),
        })
    })?;
    if !pool.unreplayed_logs().map_err(failed)?.is_empty() {
        console.complain(format_args!(
            "{}: the intent log was not replayed; this is the pool as of txg {}",
            pool.name(),
            pool.txg()
        ));
    }
    Ok(pool)
}

/// What is to be mounted where.
fn planned(pool: &Pool, request: &MountRequest) -> Result<Vec<PlannedMount>, DatasetError> {
    if let (Some(snapshot), Some(directory)) = (&request.options.snapshot, &request.directory) {
        let dataset = pool.datasets().open(snapshot)?.name().to_owned();
        return Ok(vec![PlannedMount { dataset, mountpoint: directory.clone() }]);
    }
    let mut candidates = Vec::new();
    for dataset in pool.datasets().root()?.descendants()? {
        if dataset.kind()? == DatasetKind::FileSystem {
            candidates.push(Candidate {
                name: dataset.name().to_owned(),
                canmount: dataset.text("canmount")?,
                mountpoint: dataset.text("mountpoint")?,
            });
        }
    }
    Ok(plan(pool.name(), &candidates, request.directory.as_deref(), request.choice))
}

/// Leaves out what has no key.
fn with_keys(
    pool: &Pool,
    planned: Vec<PlannedMount>,
    request: &MountRequest,
    console: &mut Console<'_>,
) -> Result<Vec<(Dataset, PlannedMount)>, Failure> {
    let mut possible = Vec::new();
    let mut refused = Vec::new();
    for mount in planned {
        let dataset = pool.datasets().open(&mount.dataset).map_err(failed)?;
        let root = dataset.encryption_root().map_err(failed)?;
        let root = root.map(|root| root.name().to_owned());
        let is_refused = root.as_ref().is_some_and(|root| refused.contains(root));
        if !is_refused && keys::obtain(&dataset, request.prompting, console)? {
            possible.push((dataset, mount));
        } else {
            console
                .complain(format_args!("'{}' is left out: its key is not loaded", mount.dataset));
            refused.extend(root);
        }
    }
    Ok(possible)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
