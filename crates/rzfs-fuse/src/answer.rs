//! Replies to requests.

use fuser::Errno;
use rzfs_zpl::ZplError;

pub(crate) type Answer<T> = Result<T, Errno>;

pub(crate) fn errno(error: &ZplError) -> Errno {
    tracing::debug!(%error, "request failed");
    Errno::from_i32(error.errno())
}

/// Whether to retry an operation when the pool is no longer suspended.
pub(crate) fn is_suspended(error: Errno) -> bool {
    error.code() == libc::ERESTART
}
