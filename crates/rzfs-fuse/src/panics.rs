//! Panics in threads that run work for others.
//!
//! Each has been reported where it happened. Later work in the queue must not wait for ever: a
//! pending reply becomes `EIO` as it is dropped, and the thread goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an action; drops it if it panics.
pub(crate) fn outlive(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        tracing::error!("a thread that works for the kernel has panicked; it goes on");
    }
}
