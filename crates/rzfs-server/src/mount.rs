//! Serving a pool: it is opened or created, mounted, and served until it is closed.

mod change;
mod contents;
mod dataset_mount;
mod deleted;
mod ending;
mod events;
mod fixed;
mod left_behind;
mod locked;
mod lookers;
mod mounted;
mod mounter;
mod open;
mod opening;
mod own_file_systems;
mod passages;
mod plan;
mod refusal;
mod relief;
mod snapshots;
mod socket;
mod still_mounted;
mod table;

use crate::daemon::{self, Completeness, Daemon, DaemonError, Ending, Mounted, Verdict};
use crate::error::ServeError;
use crate::privileges;
use crate::request::ServeRequest;
use crate::sandbox::{self, Duty};
use crate::starter::Starter;
use contents::Contents;
use mounted::MountedPool;
use opening::{Opened, Place};
use rzfs_fuse::mounts_without_helper;
use std::io;
use std::sync::Arc;

/// Starts a background process that serves a pool, and waits until it does. It is this program with
/// `options` and the subcommand [`crate::SERVE`].
///
/// # Errors
/// The process cannot be started, or the request cannot be passed.
pub fn in_background(request: &ServeRequest, options: &[&str]) -> io::Result<Verdict> {
    daemon::in_background(request, request.input(), options)
}

/// Opens the pool, mounts, calls `ready`, and serves until the pool is closed.
///
/// # Errors
/// [`ServeError`]: the pool could not be served, or was not closed in order.
pub fn serve(
    request: ServeRequest,
    starter: &mut dyn Starter,
    ready: impl FnOnce(Completeness) -> io::Result<()>,
) -> Result<Completeness, ServeError> {
    daemon::unblock_signals().map_err(ServeError::Signals)?;
    daemon::set_io_flusher();
    // Before anything is read from a device.
    if mounts_without_helper() {
        privileges::drop_needless();
        sandbox::enter(Duty::Serving);
    }
    if let Err(error) = rzfs_fuse::hold_process_files() {
        // Each later mount fails with an error.
        tracing::debug!(%error, "nothing can be mounted");
    }
    // Before anything is opened that a hung process must not hold.
    if let Err(error) = rzfs_fuse::run_errands_apart() {
        // Many containers forbid it; then only a process that is killed at a bad moment lingers.
        tracing::debug!(%error, "no threads with descriptors of their own");
    }
    let Opened { daemon, contents, place, event } = match request {
        ServeRequest::Mount(request) => opening::mount(&request, starter)?,
        ServeRequest::Create(request) => opening::create(&request, starter)?,
        ServeRequest::Import(request) => opening::import(&request, starter)?,
    };
    let (mounted, ended) = mount(&daemon, contents, &place, starter)?;
    // It contains the named keys.
    drop(place);
    mounted.note(event);
    let completeness = mounted.completeness();
    let served = ready(completeness)
        .map_err(DaemonError::from)
        .and_then(|()| daemon.serve(Arc::clone(&mounted), ended));
    if let Err(error) = &served
        && !mounted.is_over()
    {
        // There may be no reader of the message below.
        tracing::error!(%error, "the pool is let go of");
        // The mounts could not be ended any more.
        mounted.end(Ending::FORCED)?;
    }
    served?;
    Ok(completeness)
}

/// Mounts the pool as planned. A writable pool is exported if that fails.
fn mount(
    daemon: &Daemon,
    contents: Contents,
    place: &Place,
    starter: &mut dyn Starter,
) -> Result<(Arc<MountedPool>, daemon::MountsGone), ServeError> {
    let planned = match opening::planned(&contents, place, starter) {
        Ok(planned) => planned,
        Err(error) => {
            contents.release();
            return Err(error);
        }
    };
    daemon.mounting(contents.relief());
    let (while_mounted, ended) = daemon::mounts_end();
    let how = (&place.options, &place.placement, place.lifetime);
    let mounted = MountedPool::mount(contents, &planned, how, while_mounted, starter)?;
    Ok((Arc::new(mounted), ended))
}
