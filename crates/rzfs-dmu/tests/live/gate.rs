//! A device that lets a test act while a read is in progress.

use parking_lot::{Condvar, Mutex};
use rzfs_blockdev::{BlockDevice, CompletionQueue, DeviceGeometry, IoOperation, IoRequest};
use std::sync::Arc;

/// A device that blocks the next read of one place.
#[derive(Debug)]
pub(crate) struct GatedDevice {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    Open,
    /// For reads of this place.
    Closed(u64),
    /// One waits.
    Occupied,
}

impl GatedDevice {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, state: Mutex::new(Gate::Open), changed: Condvar::new() }
    }

    /// Blocks the next read that starts at this place.
    pub(crate) fn close(&self, place: u64) {
        *self.state.lock() = Gate::Closed(place);
    }

    /// Waits for that read to arrive.
    pub(crate) fn wait_for_reader(&self) {
        let mut state = self.state.lock();
        while *state != Gate::Occupied {
            self.changed.wait(&mut state);
        }
    }

    /// Releases it.
    pub(crate) fn open(&self) {
        *self.state.lock() = Gate::Open;
        self.changed.notify_all();
    }
}

impl BlockDevice for GatedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.inner.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        {
            let mut state = self.state.lock();
            let is_closed_to = |request: &IoRequest| {
                matches!(request.operation, IoOperation::Read(_))
                    && *state == Gate::Closed(request.offset)
            };
            if requests.iter().any(is_closed_to) {
                *state = Gate::Occupied;
                self.changed.notify_all();
                while *state == Gate::Occupied {
                    self.changed.wait(&mut state);
                }
            }
        }
        self.inner.submit(requests, completions);
    }
}
