//! The control socket of a pool that is about to be served.

use crate::control::{ControlClient, ControlDirectory, is_listened_on};
use crate::daemon::Daemon;
use crate::error::ServeError;
use crate::protocol::{Answer, Request};
use rzfs_format::Guid;
use std::io;
use std::time::{Duration, Instant};

/// How long the previous process of a pool may take to close it after its last mount has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long pools may take to report that they are the one to be imported. The command has already
/// waited for unresponsive ones.
const LOOK: Duration = Duration::from_millis(500);

/// The socket of a pool that is not served yet.
pub(super) struct FreeSocket {
    directory: ControlDirectory,
    pool: String,
}

impl FreeSocket {
    /// The socket of a pool with this name, unless it is in use.
    pub(super) fn of_pool(pool: &str) -> Result<Self, ServeError> {
        let socket = Self::checked(pool)?;
        match socket.is_listened_on() {
            true => Err(socket.taken()),
            false => Ok(socket),
        }
    }

    /// The same; waits for the close of a pool whose last mount has ended.
    pub(super) fn of_pool_after_mounts(pool: &str) -> Result<Self, ServeError> {
        let socket = Self::checked(pool)?;
        let since = Instant::now();
        while socket.is_listened_on() {
            if socket.has_mounts() || since.elapsed() > FAREWELL {
                return Err(socket.taken());
            }
            std::thread::sleep(FAREWELL / 100);
        }
        Ok(socket)
    }

    fn checked(pool: &str) -> Result<Self, ServeError> {
        let directory = ControlDirectory::of_user();
        directory.check_length(pool).and_then(|()| directory.prepare())?;
        Ok(Self { directory, pool: pool.to_owned() })
    }

    fn taken(&self) -> ServeError {
        ServeError::NameTaken(self.pool.clone())
    }

    fn is_listened_on(&self) -> bool {
        self.directory.sockets(&self.pool).any(|path| is_listened_on(&path))
    }

    /// Whether the listening pool has mounts, if it answers.
    fn has_mounts(&self) -> bool {
        let Ok(Some(mut client)) = self.directory.mounted_as(&self.pool) else { return false };
        matches!(client.ask(&Request::Mounts), Ok(Answer::Mounts(mounts)) if !mounts.is_empty())
    }

    /// Refuses a pool that is imported for writing under any name: its devices are claimed, but
    /// perhaps not the ones found now.
    pub(super) fn for_writing(self, guid: Guid) -> Result<Self, ServeError> {
        // If one of them does not answer, only the claims on devices protect it.
        let imported = ControlDirectory::of_user().mounted_within(LOOK).unwrap_or_default();
        let same = imported.clients.iter().map(ControlClient::identity);
        match same.clone().find(|one| one.guid == guid.get() && one.is_writable) {
            Some(one) => Err(ServeError::Imported {
                pool: self.pool,
                process: one.process,
                name: one.pool.clone(),
            }),
            None => Ok(self),
        }
    }

    /// Binds it. From now on a signal ends the mounts instead of the process.
    pub(super) fn bind(self) -> Result<Daemon, ServeError> {
        Daemon::bind(&self.directory, &self.pool).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => self.taken(),
            _ => ServeError::Socket(error),
        })
    }
}
