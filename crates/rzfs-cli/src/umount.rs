//! `rzfs umount`: ends the mounts of a pool, given by name or by one of their directories.

use crate::arguments::UmountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use crate::zfs::name;
use rzfs_server::control::{ControlClient, ControlDirectory, ControlError};
use rzfs_server::protocol::{Answer, Request};
use std::path::Path;

/// Asks the process that has the pool mounted to end, and waits until it has closed the devices.
pub(crate) fn run(arguments: &UmountArguments, console: &mut Console<'_>) -> u8 {
    let outcome = unmount(&arguments.target, arguments.force);
    conclude(outcome, "", console)
}

fn unmount(target: &str, force: bool) -> Outcome {
    let failed = |error: ControlError| Failure::Failed(error.to_string());
    let control = ControlDirectory::of_user();
    let client = match control.mounted_as(target).map_err(failed)? {
        Some(client) => Some(client),
        None => mounted_at(target, control.mounted().map_err(failed)?.clients).map_err(failed)?,
    };
    let Some(mut client) = client else {
        if has_cleared_dead(target) {
            return Ok(());
        }
        return Err(Failure::Failed(format!("cannot unmount '{target}': not currently mounted")));
    };
    client.ask(&Request::Unmount { force, command: None }).map_err(failed)?;
    Ok(())
}

/// Detaches a mount with this name or directory whose process was killed.
fn has_cleared_dead(target: &str) -> bool {
    let place = std::path::absolute(target).unwrap_or_else(|_| target.into());
    let cleared = rzfs_server::clear_dead_mounts(|source, directory| {
        directory == place || name::pool_of(source) == target
    });
    cleared.is_ok_and(|cleared| !cleared.is_empty())
}

/// The pool that has a mount at this directory.
fn mounted_at(
    target: &str,
    clients: Vec<ControlClient>,
) -> Result<Option<ControlClient>, ControlError> {
    // A mount there may not respond any more: then the path is used as typed.
    let directory = Path::new(target).canonicalize().or_else(|_| std::path::absolute(target));
    let Ok(directory) = directory else { return Ok(None) };
    for mut client in clients {
        let Answer::Mounts(mounts) = client.ask(&Request::Mounts)? else { continue };
        if mounts.iter().any(|mount| Path::new(&mount.mountpoint) == directory) {
            return Ok(Some(client));
        }
    }
    Ok(None)
}
