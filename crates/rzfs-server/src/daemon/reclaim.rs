//! Memory reclaim by the kernel in threads of this process.
//!
//! When memory is short the kernel writes pages of files and waits for that. Pages of our own
//! mounts, written through a shared mapping, can be written only by this process: a deadlock. Linux
//! avoids that for its own file systems; a FUSE server has to ask for it.

use rustix::process::configure_io_flusher_behavior;

/// Keeps all threads started from now on from waiting for pages to be written.
pub(crate) fn set_io_flusher() {
    if let Err(error) = configure_io_flusher_behavior(true) {
        // This takes CAP_SYS_RESOURCE, which containers and ordinary users do not have.
        tracing::debug!(%error, "programs that write through mappings can starve this process");
    }
}
