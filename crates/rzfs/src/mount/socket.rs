//! The control socket of a pool that is going to be served.

use super::refusal::failed;
use crate::console::Failure;
use crate::daemon::Daemon;
use rzfs::control::{ControlClient, ControlDirectory, is_listened_on};
use rzfs_format::Guid;
use std::io;

/// The socket of a pool that is not served yet.
pub(super) struct FreeSocket {
    directory: ControlDirectory,
    pool: String,
}

impl FreeSocket {
    pub(super) fn of_pool(pool: &str, verb: &str) -> Result<Self, Failure> {
        let directory = ControlDirectory::of_user();
        directory.check_length(pool).and_then(|()| directory.prepare()).map_err(failed)?;
        if directory.sockets(pool).any(|path| is_listened_on(&path)) {
            return Err(taken(pool, verb));
        }
        Ok(Self { directory, pool: pool.to_owned() })
    }

    /// Refuses a pool that is imported for writing under any name: its devices are claimed, but
    /// perhaps not those that were found now.
    pub(super) fn for_writing(self, guid: Guid) -> Result<Self, Failure> {
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
    pub(super) fn bind(self, verb: &str) -> Result<Daemon, Failure> {
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
