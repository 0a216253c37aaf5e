//! A sweep while its thread is running.

use parking_lot::{Condvar, Mutex};
use rzfs_clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// A running sweep.
#[derive(Debug)]
pub(super) struct Run {
    /// Progress on the leaf, as in [`SweepRecord::offset`].
    pub(super) offset: AtomicU64,
    /// The progress last stored.
    pub(super) stored: AtomicU64,
    pub(super) clock: Clock,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
    pub(super) has_ended: AtomicBool,
}

impl Run {
    pub(super) fn new(offset: u64, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            offset: AtomicU64::new(offset),
            stored: AtomicU64::new(offset),
            clock,
            is_stopped: Mutex::default(),
            stopped: Condvar::new(),
            has_ended: AtomicBool::new(false),
        })
    }

    pub(super) fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.stopped.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.is_stopped.lock()
    }

    /// Waits for some time; returns whether the sweep is to stop.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            self.clock.wait_for(&self.stopped, &mut is_stopped, time);
        }
        *is_stopped
    }
}
