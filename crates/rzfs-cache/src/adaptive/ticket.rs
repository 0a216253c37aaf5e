//! The obligation to read a block.

use super::entry::{Purpose, Retention};
use super::flight::Flight;
use super::lists::Lists;
use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Weighted};
use std::fmt;
use std::sync::Arc;

/// The obligation to read a block that the cache does not have.
///
/// Until it is completed or dropped, everybody else who asks for the block waits. So a thread
/// completes all tickets that it holds before it waits for any [`Arrival`](super::Arrival); two threads that do
/// otherwise may wait for each other. Dropping a ticket (the read failed) has one of those who
/// wait try for itself.
#[must_use = "others wait for the block"]
pub struct Ticket<V: Weighted> {
    cache: Arc<Lists<V>>,
    key: Hashed<BlockKey>,
    kind: BlockKind,
    purpose: Purpose,
    flight: Arc<Flight<V>>,
}

impl<V: Weighted> Ticket<V> {
    pub(super) const fn new(
        cache: Arc<Lists<V>>,
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
        self.cache.land(
            (self.key, &self.flight),
            self.kind,
            self.purpose,
            retention,
            value.clone(),
        );
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
