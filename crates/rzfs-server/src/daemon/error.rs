//! Errors of a daemon.

use crate::protocol::Refusal;
use rzfs_blockdev::without_number;
use std::io;

/// Why a daemon fails to serve its pool in order.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket failed.
    #[error("control socket: {}", without_number(.0))]
    Socket(#[from] io::Error),
    /// The pool was closed, but not as requested.
    #[error(transparent)]
    Ended(Refusal),
    /// A thread that closes the pool has panicked.
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}
