//! One shared read for all threads that want the same block at the same time.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// A block that is being read.
#[derive(Debug)]
pub(super) struct Flight<V> {
    outcome: Mutex<Outcome<V>>,
    landed: Condvar,
}

#[derive(Debug)]
enum Outcome<V> {
    Flying,
    Landed(V),
    Lost,
}

impl<V> Flight<V> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { outcome: Mutex::new(Outcome::Flying), landed: Condvar::new() })
    }

    /// Ends the flight, if it has not ended; wakes the waiters.
    pub(super) fn end(&self, value: Option<V>) {
        let mut outcome = self.outcome.lock();
        if matches!(*outcome, Outcome::Flying) {
            *outcome = value.map_or(Outcome::Lost, Outcome::Landed);
            self.landed.notify_all();
        }
    }
}

/// A block that another thread is reading.
#[derive(Debug)]
pub struct Arrival<V> {
    flight: Arc<Flight<V>>,
}

impl<V: Clone> Arrival<V> {
    pub(super) const fn new(flight: Arc<Flight<V>>) -> Self {
        Self { flight }
    }

    /// Waits for the block; `None` if the read has failed and may be retried.
    #[must_use]
    pub fn wait(&self) -> Option<V> {
        let mut outcome = self.flight.outcome.lock();
        loop {
            match &*outcome {
                Outcome::Landed(value) => return Some(value.clone()),
                Outcome::Lost => return None,
                Outcome::Flying => self.flight.landed.wait(&mut outcome),
            }
        }
    }
}
