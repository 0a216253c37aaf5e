//! Errors between a command and a mounted pool.

use crate::protocol::{Refusal, WireError};
use rzfs_blockdev::without_number;
use std::io::ErrorKind;
use std::path::PathBuf;

/// An error between a command and a mounted pool.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The directory of the sockets cannot be used.
    #[error("control directory {path}: {}", without_number(source))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The directory of the sockets is open to other users.
    #[error(
        "control directory {0}: must be a directory that only its owner, you, may enter \
         (RZFS_RUNTIME_DIR can name the directory for another)"
    )]
    Unsafe(PathBuf),
    /// The directory leaves no room for the name of a socket.
    #[error(
        "control directory {path}: {variable} is {excess} bytes too long for the path of a socket \
         (RZFS_RUNTIME_DIR can name a shorter directory, which need not exist)"
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
        /// The variable that names it.
        variable: &'static str,
        /// The excess in bytes.
        excess: usize,
    },
    /// The pool did not answer, or broke the protocol.
    #[error("pool '{pool}': {source}")]
    Wire {
        /// The pool.
        pool: String,
        /// The reason.
        source: WireError,
    },
    /// The pool exists, but its process does not answer in time.
    #[error("pool '{pool}' does not answer{}", in_process(*process))]
    Silent {
        /// The pool.
        pool: String,
        /// The process, if known.
        process: Option<u32>,
    },
    /// The pool's answer does not match the request.
    #[error("pool '{0}': the answer does not fit the question")]
    Mismatch(String),
    /// The pool refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

fn in_process(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

impl ControlError {
    /// The error for a failed conversation with the process of a pool.
    pub(super) fn of_wire(pool: &str, process: Option<u32>, source: WireError) -> Self {
        let pool = pool.to_owned();
        match source {
            WireError::Io(error) if error.kind() == ErrorKind::TimedOut => {
                Self::Silent { pool, process }
            }
            source => Self::Wire { pool, source },
        }
    }
}
