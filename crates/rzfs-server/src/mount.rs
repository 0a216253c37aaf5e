//! Serving a pool: it is opened or made, mounted, and answered for until it is let go of.

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

/// Has a process in the background serve a pool, and waits until it does. It is this program with
/// `options` and the subcommand [`crate::SERVE`].
///
/// # Errors
/// No process can be started or told what to serve.
pub fn in_background(request: &ServeRequest, options: &[&str]) -> io::Result<Verdict> {
    daemon::in_background(request, request.input(), options)
}

/// Opens the pool, mounts, calls `ready`, and serves until the pool is let go of.
///
/// # Errors
/// [`ServeError`]: the pool could not be served, or was not let go of in order.
pub fn serve(
    request: ServeRequest,
    starter: &mut dyn Starter,
    ready: impl FnOnce(Completeness) -> io::Result<()>,
) -> Result<Completeness, ServeError> {
    daemon::let_through().map_err(ServeError::Signals)?;
    daemon::wait_for_no_pages();
    // Before anything is read of a device.
    if mounts_without_helper() {
        privileges::drop_needless();
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
    let Opened { daemon, contents, place, event } = match request {
        ServeRequest::Mount(request) => opening::mount(&request, starter)?,
        ServeRequest::Create(request) => opening::create(&request, starter)?,
        ServeRequest::Import(request) => opening::import(&request, starter)?,
    };
    let (mounted, ended) = mount(&daemon, contents, &place, starter)?;
    // Keys that were named are in it.
    drop(place);
    mounted.note(event);
    let completeness = mounted.completeness();
    let served = ready(completeness)
        .map_err(DaemonError::from)
        .and_then(|()| daemon.serve(Arc::clone(&mounted), ended));
    if let Err(error) = &served
        && !mounted.is_over()
    {
        // Nobody may be there to read what is written below.
        tracing::error!(%error, "the pool is let go of");
        // Nobody can end the mounts any more.
        mounted.end(Ending::FORCED)?;
    }
    served?;
    Ok(completeness)
}

/// Mounts what is to be mounted of a pool. One that is written is exported if that fails.
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
