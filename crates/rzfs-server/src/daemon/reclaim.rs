//! What the kernel does when a thread of this process needs memory and there is none.
//!
//! It writes pages of files, and waits until they are written. If they are pages of our own mounts,
//! written through a shared mapping, nobody but this process can write them: all would wait for
//! each other. Linux knows that of its own file systems; a server of FUSE has to say it.

use rustix::process::configure_io_flusher_behavior;

/// Has threads that are started from now on never wait for pages to be written.
pub(crate) fn wait_for_no_pages() {
    if let Err(error) = configure_io_flusher_behavior(true) {
        // It takes CAP_SYS_RESOURCE, which containers and ordinary users do not have.
        tracing::debug!(%error, "programs that write through mappings can starve this process");
    }
}
