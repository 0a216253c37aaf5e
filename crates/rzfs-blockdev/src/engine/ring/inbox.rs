//! What the ring's thread shares with those who submit.

use crate::engine::transfer::Transfer;
use crossbeam::channel::Sender;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;

/// What the thread shares with those who submit.
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

/// A file that is about to be closed; the ring must let go of it.
pub(super) struct Forgotten {
    pub(super) file: u64,
    /// Dropped when that has happened.
    pub(super) _done: Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// Looks into the inbox before it sleeps.
    #[default]
    Awake,
    /// Must be woken by the bell.
    Asleep,
    /// Ends when everything is answered.
    Closing,
    /// Has ended: nothing will be answered.
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
