//! Panics of what threads do for others, one after the other.
//!
//! They have been reported where they happened. What is behind one in the queue is not to wait for
//! ever: what was about to be answered is answered with `EIO` as it is dropped, and the thread goes
//! on.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does something; what was not done because of a panic is dropped.
pub(crate) fn outlive(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        tracing::error!("a thread that works for the kernel has panicked; it goes on");
    }
}
