//! The signals that end the process, and the time that may take.

use nix::sys::signal::{SigSet, Signal as NixSignal};
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
pub(crate) fn unblock_signals() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Signals that would end the process halfway. XFSZ says that an image is longer than this user's files
/// may be, which is an error of that write (`EFBIG`).
const IGNORED: [NixSignal; 8] = [
    NixSignal::SIGXFSZ,
    NixSignal::SIGUSR1,
    NixSignal::SIGUSR2,
    NixSignal::SIGALRM,
    NixSignal::SIGVTALRM,
    NixSignal::SIGPROF,
    NixSignal::SIGIO,
    NixSignal::SIGXCPU,
];

/// Signals that end the process in order; [`IGNORED`] are ignored from now on.
pub(super) fn signals() -> io::Result<[Signal; 4]> {
    for one in IGNORED {
        drop(signal(SignalKind::from_raw(one as i32))?);
    }
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::quit())?,
    ])
}
