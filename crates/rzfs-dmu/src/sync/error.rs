//! Why an object set cannot be synced.

use crate::DmuError;
use crate::write::WriteError;

/// Why an object set cannot be synced. The txg stays where it is: the pool is suspended until the
/// cause is gone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SyncError {
    /// Something that has to be changed cannot be read.
    #[error(transparent)]
    Read(#[from] DmuError),
    /// Something cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
