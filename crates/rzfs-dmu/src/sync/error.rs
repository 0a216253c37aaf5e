//! Why an object set cannot be synced.

use crate::DmuError;
use crate::write::WriteError;

/// Why an object set cannot be synced. The txg does not proceed: the pool is suspended until the
/// cause is gone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SyncError {
    /// An object to be changed cannot be read.
    #[error(transparent)]
    Read(#[from] DmuError),
    /// A block cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
