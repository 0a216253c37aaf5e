//! Limits the requests that may wait for devices.
//!
//! ```text
//! changes, mending, readings    a few of each have a thread
//!                               some wait for a turn, without one, as long as their clients wait
//!                               the others are refused
//! streams                       a few have a thread of their own, the others are refused
//! facts in memory               at once
//! ```
//! Unresponsive devices may block such requests for ever. So there are never so many that other
//! requests are not answered.

use crate::protocol::{Change, Request};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The requests that may occupy threads of the runtime, which has hundreds.
#[derive(Debug)]
pub(super) struct Turns {
    changes: Queue,
    /// Changes that end the waits of others.
    mending: Queue,
    readings: Queue,
    sends: Queue,
    receives: Queue,
}

/// Requests of a kind.
#[derive(Debug)]
pub(super) struct Queue {
    turns: Arc<Semaphore>,
    places: Semaphore,
}

/// A turn, as long as this is held.
pub(super) type Turn = OwnedSemaphorePermit;

/// The waiting room is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many commands wait for the pool")]
pub(super) struct QueueFull;

impl Queue {
    fn new(turns: usize, places: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(turns)), places: Semaphore::new(places) }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// Too many wait already.
    pub(super) async fn turn(&self) -> Result<Turn, QueueFull> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Ok(turn);
        }
        let _place = self.places.try_acquire().map_err(|_| QueueFull)?;
        Arc::clone(&self.turns).acquire_owned().await.map_err(|_| QueueFull)
    }
}

impl Turns {
    /// Concurrent changes: those of a txg share its cost.
    pub(super) const CHANGES: usize = 32;
    const MENDING: usize = 8;
    const READINGS: usize = 32;
    /// How many of each kind may wait for their turn.
    pub(super) const PLACES: usize = 256;
    /// Concurrent streams in each direction: one takes some 3 MiB, and a peer that does not read,
    /// or write, holds it for ever.
    const STREAMS: usize = 48;

    pub(super) fn new() -> Self {
        Self {
            changes: Queue::new(Self::CHANGES, Self::PLACES),
            mending: Queue::new(Self::MENDING, Self::PLACES),
            readings: Queue::new(Self::READINGS, Self::PLACES),
            // None waits: a stream may wait for another one that the same pool receives.
            sends: Queue::new(Self::STREAMS, 0),
            receives: Queue::new(Self::STREAMS, 0),
        }
    }

    /// The queue of a request; one that needs no devices has none.
    pub(super) const fn queue(&self, request: &Request) -> Option<&Queue> {
        match request {
            Request::Change { change, .. } if mends(change) => Some(&self.mending),
            Request::Change { .. } | Request::PlanAdd(_) => Some(&self.changes),
            Request::Holds { .. }
            | Request::Accounts(_)
            | Request::UnfreedFiles { .. }
            | Request::Reclaimed { .. }
            | Request::Differences(_)
            | Request::StreamSizes(_)
            | Request::Datasets(_)
            | Request::History => Some(&self.readings),
            Request::Send(_) => Some(&self.sends),
            Request::Receive(_) => Some(&self.receives),
            Request::Identify
            | Request::Pool
            | Request::Mounts
            | Request::Events
            | Request::ClearEvents
            | Request::Stats
            | Request::Unmount { .. }
            | Request::Destroy { .. } => None,
        }
    }
}

/// Whether a change serves to mend a pool whose devices block others.
const fn mends(change: &Change) -> bool {
    matches!(
        change,
        Change::Clear { .. }
            | Change::Unmount { force: true, .. }
            | Change::UnmountAll { force: true }
    )
}
