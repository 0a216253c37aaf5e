//! State shared between the ring's thread and submitters.

use crate::engine::transfer::Transfer;
use crossbeam::channel::Sender;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;

/// State shared between the ring's thread and submitters.
pub(super) struct Shared {
    pub(super) inbox: Mutex<Inbox>,
    /// Wakes the thread.
    pub(super) bell: OwnedFd,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) transfers: Vec<Transfer>,
    pub(super) forgotten: Vec<Forgotten>,
    pub(super) state: State,
}

/// A file about to be closed, which the ring must release.
pub(super) struct Forgotten {
    pub(super) file: u64,
    /// Dropped when it is released.
    pub(super) _done: Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// Looks into the inbox before it sleeps.
    #[default]
    Awake,
    /// Must be woken by the bell.
    Asleep,
    /// Ends when everything is completed.
    Closing,
    /// Has ended: nothing will be completed.
    Gone,
}

impl Shared {
    /// Wakes the thread if it sleeps.
    pub(super) fn wake(&self, inbox: &mut Inbox) {
        if inbox.state == State::Asleep {
            inbox.state = State::Awake;
            self.ring_bell();
        }
    }

    pub(super) fn ring_bell(&self) {
        // The counter of an eventfd takes 2^64 - 2 rings before this could block or fail.
        if let Err(error) = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake the io_uring thread");
        }
    }
}
