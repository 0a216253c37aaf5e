//! Signals that end the process, and how long it takes over that.

use nix::sys::signal::SigSet;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often it is looked whether a pool without mounts can be let go of.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

/// How long requests may go on when the pool is let go of.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Lets signals through that whoever started the process may have blocked: such a mask is inherited,
/// and nothing would end the process. For its first thread, before there are others.
///
/// # Errors
/// The system refuses.
pub(crate) fn let_through() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Those that end the process.
pub(super) fn signals() -> io::Result<[Signal; 3]> {
    // An image that is longer than this user's files may be is an error of that write (`EFBIG`),
    // not the end of the process, which it is without a handler.
    drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ])
}
