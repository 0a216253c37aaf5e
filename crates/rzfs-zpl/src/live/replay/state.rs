//! The progress of a replay, and its effect on operations.

use crate::sync::Mutex;
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_format::ObjectId;
use rzfs_format::zil::ZilHeader;
use rzfs_format::znode::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the log says about a file to be recreated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::live) struct LoggedObject {
    pub(in crate::live) object: ObjectId,
    /// Slots of its dnode.
    pub(in crate::live) slots: u8,
    pub(in crate::live) generation: u64,
    pub(in crate::live) create_time: Timestamp,
}

/// Which transactions of a record's operation mark it as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noting {
    /// None: it spans several, and repeating it is harmless.
    Nothing,
    /// All: the first one completes it, later ones only clean up.
    Every,
}

/// The effects of replay on operations. Off in a file system in normal use.
#[derive(Debug, Default)]
pub(in crate::live) struct Replay {
    is_on: AtomicBool,
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    header: ZilHeader,
    noting: Noting,
    /// The device left by a rename.
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

    /// Records the progress of the replay in a transaction.
    pub(in crate::live) fn note(&self, objset: &LiveObjset, tx: &dyn Transaction) {
        if !self.is_on() {
            return;
        }
        let state = self.state.lock();
        if state.noting == Noting::Every {
            objset.set_log_header(tx, state.header.clone());
        }
    }

    /// The device left by the replayed rename.
    pub(in crate::live) fn take_whiteout(&self) -> Option<LoggedObject> {
        if self.is_on() { self.state.lock().whiteout.take() } else { None }
    }

    /// Starts replay mode.
    pub(super) fn begin(&self, header: ZilHeader) {
        self.state.lock().header = header;
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Ends replay mode.
    pub(super) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// Sets the device left by the replayed rename.
    pub(super) fn set_whiteout(&self, whiteout: LoggedObject) {
        self.state.lock().whiteout = Some(whiteout);
    }

    /// Sets the next record.
    pub(super) fn expect(&self, seq: u64, noting: Noting) {
        let mut state = self.state.lock();
        state.header.replayed_seq = seq;
        state.noting = noting;
        state.whiteout = None;
    }
}
