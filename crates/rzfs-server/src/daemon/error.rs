//! Why a daemon does not serve its pool to a good end.

use crate::protocol::Refusal;
use rzfs_blockdev::without_number;
use std::io;

/// Why a daemon does not serve its pool to a good end.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Nobody can ask for anything.
    #[error("control socket: {}", without_number(.0))]
    Socket(#[from] io::Error),
    /// The pool was let go of, but not as it was to be.
    #[error(transparent)]
    Ended(Refusal),
    /// What lets go of the pool has panicked.
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}
