//! Ends the loops of other threads.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also while a failed assertion unwinds: threads that go on until the
/// flag is set end then, and the test fails instead of hanging.
#[derive(Debug)]
pub struct SetWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
