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
/// Until it is completed or dropped, all others that ask for the block wait. So a thread must
/// complete all its tickets before it waits for any [`Arrival`](super::Arrival); otherwise two
/// threads may wait for each other. Dropping a ticket (the read failed) makes one of the waiters
/// retry.
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

    /// Inserts the block and passes it to all waiters.
    pub fn complete(self, value: V) {
        self.complete_with(value, Retention::Cache);
    }

    /// Passes the block to all waiters and, as `retention` says, inserts it.
    pub fn complete_with(self, value: V, retention: Retention) {
        // Once the block is cached, no caller joins the flight; those who have get it here.
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
