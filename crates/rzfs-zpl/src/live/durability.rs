//! Making changes durable.
//!
//! What an operation has changed is on disk when its transaction group is. Who wants to know that
//! asks for the group that is open now: everything that is done is in it or in an older one.

use super::file_system::LiveFileSystem;
use crate::error::ZplError;
use rzfs_format::{ObjectId, Txg};

impl LiveFileSystem {
    /// Asks for everything that was done so far to be written soon, and says which group has the
    /// last of it.
    #[must_use]
    pub fn request_sync(&self) -> Txg {
        let txg = self.engine.open_txg();
        self.engine.request(txg);
        txg
    }

    /// Waits until a group is on disk.
    ///
    /// # Errors
    /// It never will be: the pool takes no changes any more.
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

    /// As [`LiveFileSystem::sync`], but does not wait while the pool is suspended: what was done is
    /// kept in memory, and written when it goes on.
    ///
    /// # Errors
    /// [`ZplError::Stopped`]: the pool is suspended, or takes no changes any more.
    pub fn sync_unless_suspended(&self) -> Result<(), ZplError> {
        Ok(self.engine.wait_synced_unless_suspended(self.engine.open_txg())?)
    }

    /// Whether all that was done to a file is on disk, and its space is known therefore.
    ///
    /// # Errors
    /// No file has this number.
    pub fn is_settled(&self, object: ObjectId) -> Result<bool, ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        Ok(state.object().clean().is_some() && state.pending_atime.is_none())
    }
}
