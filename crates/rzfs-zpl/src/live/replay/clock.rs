//! The time while a log is replayed: that of the record, if it says one.

use super::super::options::WallClock;
use crate::sync::{Arc, Mutex};
use rzfs_format::znode::Timestamp;

/// Tells the time of the record that is replayed.
#[derive(Debug)]
pub(super) struct ReplayClock {
    present: Arc<dyn WallClock>,
    logged: Mutex<Option<Timestamp>>,
}

impl ReplayClock {
    pub(super) fn new(present: Arc<dyn WallClock>) -> Self {
        Self { present, logged: Mutex::new(None) }
    }

    /// Goes by this time; `None` = by the present.
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
