//! Time, which tests can make.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells the time since some fixed moment; clones tell the same time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The system's monotonic clock.
    #[must_use]
    pub fn system() -> Self {
        let start = Instant::now();
        Self::from_fn(move || start.elapsed())
    }

    /// A clock that shows what a function says, which must not go backwards.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}
