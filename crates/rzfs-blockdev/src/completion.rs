//! Where devices put finished requests and callers wait for them.

use crate::{DeviceError, IoBuffer};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A finished request.
#[derive(Debug)]
pub struct IoCompletion {
    /// The token of the request.
    pub token: u64,
    /// For reads the filled buffer, for the rest `None`; or what went wrong.
    pub result: Result<Option<IoBuffer>, DeviceError>,
}

/// A queue of finished requests; one caller waits on it, any number of devices fill it.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    done: Mutex<VecDeque<IoCompletion>>,
    arrived: Condvar,
}

impl CompletionQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Adds a finished request (for devices).
    pub fn push(&self, completion: IoCompletion) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push_back(completion);
        self.arrived.notify_one();
    }

    /// Takes the next finished request, waiting for it.
    ///
    /// The caller knows how many requests it has in flight; waiting for more than that blocks
    /// for ever.
    #[must_use]
    pub fn wait(&self) -> IoCompletion {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(completion) = done.pop_front() {
                return completion;
            }
            done = self.arrived.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
