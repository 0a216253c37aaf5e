//! Whether object sets that somebody reads are still there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an object set exists. Whoever destroys it says so to those who read it: from then on its
/// blocks may become others, and they get an error instead ([`DmuError::Superseded`]).
///
/// [`DmuError::Superseded`]: crate::DmuError::Superseded
#[derive(Clone, Debug, Default)]
pub struct Existence(Arc<AtomicBool>);

impl Existence {
    /// Says that the object set is gone.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether somebody else wants to know.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
