//! How far replaying a log has come, and what it changes about operations.

use crate::sync::Mutex;
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_format::ObjectId;
use rzfs_format::zil::ZilHeader;
use rzfs_format::znode::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the log says about a file that is made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::live) struct LoggedObject {
    pub(in crate::live) object: ObjectId,
    /// Slots of its dnode.
    pub(in crate::live) slots: u8,
    pub(in crate::live) generation: u64,
    pub(in crate::live) create_time: Timestamp,
}

/// Which transactions of a record's operation say that it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noting {
    /// None: it has several, and doing it once more changes nothing.
    Nothing,
    /// All: the first one does it, those after it only tidy up.
    Every,
}

/// What replay changes about operations. Off in a file system that is in use.
#[derive(Debug, Default)]
pub(in crate::live) struct Replay {
    is_on: AtomicBool,
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    header: ZilHeader,
    noting: Noting,
    /// The device that a rename is to leave.
    whiteout: Option<LoggedObject>,
}

impl Default for ReplayState {
    fn default() -> Self {
        Self { header: ZilHeader::default(), noting: Noting::Nothing, whiteout: None }
    }
}

impl Replay {
    /// Whether a log is being replayed: then nothing is logged, and nothing forbidden.
    pub(in crate::live) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has a transaction note how far replay has got.
    pub(in crate::live) fn note(&self, objset: &LiveObjset, tx: &dyn Transaction) {
        if !self.is_on() {
            return;
        }
        let state = self.state.lock();
        if state.noting == Noting::Every {
            objset.set_log_header(tx, state.header.clone());
        }
    }

    /// The device that the rename which is replayed leaves.
    pub(in crate::live) fn take_whiteout(&self) -> Option<LoggedObject> {
        if self.is_on() { self.state.lock().whiteout.take() } else { None }
    }

    /// Has operations be those of a log from now on.
    pub(super) fn begin(&self, header: ZilHeader) {
        self.state.lock().header = header;
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Has operations be those of users again.
    pub(super) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// Says what the device is that the rename which is replayed leaves.
    pub(super) fn set_whiteout(&self, whiteout: LoggedObject) {
        self.state.lock().whiteout = Some(whiteout);
    }

    /// Says which record is done next.
    pub(super) fn expect(&self, seq: u64, noting: Noting) {
        let mut state = self.state.lock();
        state.header.replayed_seq = seq;
        state.noting = noting;
        state.whiteout = None;
    }
}
