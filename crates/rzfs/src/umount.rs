//! `rzfs umount`: ends the mounts of a pool, by name or by one of their directories.

use crate::arguments::UmountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use rzfs::control::{ControlClient, ControlDirectory, ControlError};
use rzfs::protocol::{Answer, Request};
use std::path::Path;

/// Asks the process that has the pool mounted to end, and waits until it has let go of the
/// devices.
pub(crate) fn run(arguments: &UmountArguments, console: &mut Console<'_>) -> u8 {
    let outcome = unmount(&arguments.target, arguments.force);
    conclude(outcome, "", console)
}

fn unmount(target: &str, force: bool) -> Outcome {
    let failed = |error: ControlError| Failure::Failed(error.to_string());
    let mut clients = ControlDirectory::of_user().mounted().map_err(failed)?;
    let by_name = clients.iter().position(|client| client.identity().pool == target);
    let position = match by_name {
        Some(position) => Some(position),
        None => mounted_at(target, &mut clients).map_err(failed)?,
    };
    let Some(position) = position else {
        return Err(Failure::Failed(format!("cannot unmount '{target}': not currently mounted")));
    };
    clients.swap_remove(position).ask(&Request::Unmount { force }).map_err(failed)?;
    Ok(())
}

/// Which pool has a mount at this directory.
fn mounted_at(target: &str, clients: &mut [ControlClient]) -> Result<Option<usize>, ControlError> {
    // What was mounted there may not answer any more: the path has to do then.
    let directory = Path::new(target).canonicalize().or_else(|_| std::path::absolute(target));
    let Ok(directory) = directory else { return Ok(None) };
    for (position, client) in clients.iter_mut().enumerate() {
        let Answer::Mounts(mounts) = client.ask(&Request::Mounts)? else { continue };
        if mounts.iter().any(|mount| Path::new(&mount.mountpoint) == directory) {
            return Ok(Some(position));
        }
    }
    Ok(None)
}
