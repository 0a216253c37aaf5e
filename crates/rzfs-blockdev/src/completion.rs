//! Queues where devices put finished requests and callers wait for them.

use crate::{DeviceError, IoBuffer};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// A finished request.
#[derive(Debug)]
pub struct IoCompletion {
    /// The token of the request.
    pub token: u64,
    /// The filled buffer for reads, `None` for others; or the error.
    pub result: Result<Option<IoBuffer>, DeviceError>,
}

/// A queue of finished requests; callers wait on it, any number of devices fill it.
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
        self.done.lock().push_back(completion);
        self.arrived.notify_one();
    }

    /// Adds finished requests, waking waiters once for all of them (for devices).
    pub fn push_all(&self, completions: impl IntoIterator<Item = IoCompletion>) {
        self.done.lock().extend(completions);
        self.arrived.notify_all();
    }

    /// Takes the next finished request, waiting for it.
    ///
    /// The caller knows how many requests it has in flight; waiting for more than that blocks
    /// for ever.
    #[must_use]
    pub fn wait(&self) -> IoCompletion {
        let mut done = self.done.lock();
        loop {
            if let Some(completion) = done.pop_front() {
                return completion;
            }
            self.arrived.wait(&mut done);
        }
    }

    /// Takes every request that has finished, waiting for at least one.
    ///
    /// One lock for many requests; the caller must have at least one in flight, or this blocks
    /// for ever.
    #[must_use]
    pub fn wait_many(&self) -> VecDeque<IoCompletion> {
        let mut done = self.done.lock();
        while done.is_empty() {
            self.arrived.wait(&mut done);
        }
        std::mem::take(&mut *done)
    }

    /// Takes the next finished request if there is one.
    #[must_use]
    pub fn try_take(&self) -> Option<IoCompletion> {
        self.done.lock().pop_front()
    }
}
