//! Making changes durable.
//!
//! Changes are on disk when their transaction group is. To wait for that, ask for the current open
//! group: everything done so far is in it or in an older one.

use super::file_system::LiveFileSystem;
use crate::error::ZplError;
use rzfs_format::{ObjectId, Txg};

impl LiveFileSystem {
    /// Requests that everything done so far is written soon, and returns the last group of it.
    #[must_use]
    pub fn request_sync(&self) -> Txg {
        let txg = self.engine.open_txg();
        self.engine.request(txg);
        txg
    }

    /// Waits until a group is on disk.
    ///
    /// # Errors
    /// It never will be: the pool no longer accepts changes.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), ZplError> {
        Ok(self.engine.wait_synced(txg)?)
    }

    /// Waits until everything that was done so far is on disk.
    ///
    /// # Errors
    /// As [`LiveFileSystem::wait_synced`].
    pub fn sync(&self) -> Result<(), ZplError> {
        self.wait_synced(self.engine.open_txg())
    }

    /// As [`LiveFileSystem::sync`], but does not wait while the pool is suspended: changes are kept
    /// in memory, and written when it resumes.
    ///
    /// # Errors
    /// [`ZplError::Stopped`]: the pool is suspended, or no longer accepts changes.
    pub fn sync_unless_suspended(&self) -> Result<(), ZplError> {
        Ok(self.engine.wait_synced_unless_suspended(self.engine.open_txg())?)
    }

    /// Whether all changes of a file are on disk, so that its space is known.
    ///
    /// # Errors
    /// The number is not that of a file.
    pub fn is_settled(&self, object: ObjectId) -> Result<bool, ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        Ok(state.object().clean().is_some() && state.pending_atime.is_none())
    }
}
