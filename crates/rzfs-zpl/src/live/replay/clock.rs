//! The time during replay: that of the record, if it has one.

use super::super::options::WallClock;
use crate::sync::{Arc, Mutex};
use rzfs_format::znode::Timestamp;

/// A clock that shows the time of the replayed record.
#[derive(Debug)]
pub(super) struct ReplayClock {
    present: Arc<dyn WallClock>,
    logged: Mutex<Option<Timestamp>>,
}

impl ReplayClock {
    pub(super) fn new(present: Arc<dyn WallClock>) -> Self {
        Self { present, logged: Mutex::new(None) }
    }

    /// Sets this time; `None` = the current time.
    pub(super) fn set(&self, logged: Option<Timestamp>) {
        *self.logged.lock() = logged;
    }
}

impl WallClock for ReplayClock {
    fn now(&self) -> Timestamp {
        let logged = *self.logged.lock();
        logged.unwrap_or_else(|| self.present.now())
    }
}
