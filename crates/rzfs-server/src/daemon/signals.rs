//! The signals that end the process, and the time that may take.

use nix::sys::signal::SigSet;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often to check whether a pool without mounts can be closed.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

/// How long requests may continue when the pool is closed.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Unblocks signals that the parent process may have blocked: the mask is inherited, and nothing
/// would end the process. For its first thread, before there are others.
///
/// # Errors
/// The system refuses.
pub(crate) fn let_through() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// The signals that end the process.
pub(super) fn signals() -> io::Result<[Signal; 3]> {
    // An image that exceeds this user's file size limit fails the write (`EFBIG`); without a
    // handler the signal would end the process.
    drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ])
}
