//! One read for everybody who wants the same block at the same time.

use super::{Inner, Purpose, Retention};
use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Weighted};
use parking_lot::{Condvar, Mutex};
use std::fmt;
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

    /// Ends the flight, if it has not ended; wakes who waits.
    fn end(&self, value: Option<V>) {
        let mut outcome = self.outcome.lock();
        if matches!(*outcome, Outcome::Flying) {
            *outcome = value.map_or(Outcome::Lost, Outcome::Landed);
            self.landed.notify_all();
        }
    }
}

/// The obligation to read a block that the cache does not have.
///
/// Until it is completed or dropped, everybody else who asks for the block waits. So a thread
/// completes all tickets that it holds before it waits for any [`Arrival`]; two threads that do
/// otherwise may wait for each other. Dropping a ticket (the read failed) has one of those who
/// wait try for itself.
#[must_use = "others wait for the block"]
pub struct Ticket<V: Weighted> {
    cache: Arc<Inner<V>>,
    key: Hashed<BlockKey>,
    kind: BlockKind,
    purpose: Purpose,
    flight: Arc<Flight<V>>,
}

impl<V: Weighted> Ticket<V> {
    pub(super) const fn new(
        cache: Arc<Inner<V>>,
        key: Hashed<BlockKey>,
        kind: BlockKind,
        purpose: Purpose,
        flight: Arc<Flight<V>>,
    ) -> Self {
        Self { cache, key, kind, purpose, flight }
    }

    /// The block that is to be read.
    #[must_use]
    pub const fn key(&self) -> BlockKey {
        self.key.key
    }

    /// Puts the block into the cache and hands it to all who wait.
    pub fn complete(self, value: V) {
        self.complete_with(value, Retention::Cache);
    }

    /// Hands the block to all who wait and, as `retention` says, puts it into the cache.
    pub fn complete_with(self, value: V, retention: Retention) {
        // From when the block is in the cache nobody joins the flight; who has, gets it here.
        self.cache.land(self.key, self.kind, self.purpose, retention, value.clone());
        self.flight.end(Some(value));
    }
}

impl<V: Weighted> Drop for Ticket<V> {
    fn drop(&mut self) {
        self.cache.end_flight(&self.key, &self.flight);
        self.flight.end(None);
    }
}

impl<V: Weighted> fmt::Debug for Ticket<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?}, {:?}, {:?})", self.key.key, self.kind, self.purpose)
    }
}

/// A block that somebody else is reading.
#[derive(Debug)]
pub struct Arrival<V> {
    flight: Arc<Flight<V>>,
}

impl<V: Clone> Arrival<V> {
    pub(super) const fn new(flight: Arc<Flight<V>>) -> Self {
        Self { flight }
    }

    /// Waits for the block; none if the read has failed, and then it is worth another try.
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
