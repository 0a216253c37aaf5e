//! Whether object sets that are being read still exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an object set exists. Its destroyer notifies readers with it: from then on its blocks
/// may be reused, and readers get an error instead ([`DmuError::Superseded`]).
///
/// [`DmuError::Superseded`]: crate::DmuError::Superseded
#[derive(Clone, Debug, Default)]
pub struct Existence(Arc<AtomicBool>);

impl Existence {
    /// Marks the object set as gone.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether there are other holders.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
