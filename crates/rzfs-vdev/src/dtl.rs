//! Dirty time logs: the transaction groups whose data a leaf lacks (spec 07, section 5).
//!
//! A leaf's log grows when a write to it finally fails (`crate::unconfirmed`), and shrinks when a
//! resilver has restored the data. It is stored in the MOS with the txg in which it changed. The
//! state of interior vdevs is derived on demand; writes that a leaf owes count as missing there as
//! well. What a leaf may turn out to lack when the txg is committed is stored with it ahead of
//! time, as it could not be stored then:
//!
//! ```text
//!             leaf                         interior
//! missing     stored                       in the outage of so many children that data is lost
//! partial     missing                      union of the children's
//! outage      missing, or all txgs of      as missing
//!             a leaf that is not there
//! ```

mod reassess;
mod store;
mod txg_set;

pub use reassess::{DirtyTimes, Resilvered};
pub use store::{DtlReader, DtlStore};
pub use txg_set::TxgSet;

use parking_lot::RwLock;
use rzfs_format::Txg;

/// What a leaf lacks, as far as known.
#[derive(Debug)]
pub(crate) struct DirtyTimeLog(RwLock<State>);

#[derive(Debug)]
struct State {
    missing: Missing,
    /// What a running scrub or resilver could not repair.
    scrub: TxgSet,
    /// What the leaf may turn out to lack when the txg being written is committed: stored, but not
    /// missing yet.
    expected: TxgSet,
    /// Whether the stored log is out of date.
    is_changed: bool,
}

#[derive(Debug)]
enum Missing {
    /// The log was not loaded; a leaf waiting for a resilver then counts as empty.
    Unknown {
        /// Whether the configuration says that a resilver or rebuild was requested.
        waits_for_resilver: bool,
    },
    /// The log's contents.
    Known(TxgSet),
}

impl DirtyTimeLog {
    /// A log that was not loaded yet.
    pub(crate) fn unloaded(waits_for_resilver: bool) -> Self {
        let missing = Missing::Unknown { waits_for_resilver };
        let (scrub, expected) = (TxgSet::new(), TxgSet::new());
        Self(RwLock::new(State { missing, scrub, expected, is_changed: false }))
    }

    /// Loads the stored contents. What was recorded before stays.
    pub(crate) fn load(&self, stored: TxgSet) {
        let mut state = self.0.write();
        let missing = match &state.missing {
            Missing::Known(noted) if state.is_changed => stored.union(noted),
            _ => stored,
        };
        state.missing = Missing::Known(missing);
    }

    /// Records that the leaf lacks something born in `birth`. A log not loaded yet starts with it,
    /// unless the leaf counts as empty anyway.
    pub(crate) fn add(&self, birth: Txg) {
        self.add_range(birth, birth.next());
    }

    /// Records that the leaf lacks something of a half-open range of txgs.
    pub(crate) fn add_range(&self, start: Txg, end: Txg) {
        let state = &mut *self.0.write();
        match &mut state.missing {
            Missing::Unknown { waits_for_resilver: true } => return,
            Missing::Unknown { waits_for_resilver: false } => {
                state.missing = Missing::Known(TxgSet::from_ranges([(start, end)]));
            }
            Missing::Known(missing) if start.next() == end && missing.contains(start) => return,
            Missing::Known(missing) => missing.insert_range(start, end),
        }
        state.is_changed = true;
    }

    /// Records that the leaf may lack something born in `birth` when the txg is committed.
    pub(crate) fn expect(&self, birth: Txg) {
        let state = &mut *self.0.write();
        match &state.missing {
            Missing::Unknown { waits_for_resilver: true } => return,
            Missing::Unknown { waits_for_resilver: false } => {
                state.missing = Missing::Known(TxgSet::new());
            }
            Missing::Known(missing) if missing.contains(birth) => return,
            Missing::Known(_) => {}
        }
        if !state.expected.contains(birth) {
            state.expected.insert(birth);
            state.is_changed = true;
        }
    }

    /// Marks the state of everything born until `last` as known.
    pub(crate) fn settle(&self, last: Txg) {
        if self.0.read().expected.is_empty() {
            return;
        }
        let state = &mut *self.0.write();
        let before = state.expected.clone();
        state.expected.remove_below(last.next());
        state.is_changed |= state.expected != before;
    }

    /// Records that a repair of something born in `birth` failed.
    fn add_scrub(&self, birth: Txg) {
        self.add(birth);
        self.0.write().scrub.insert(birth);
    }

    /// Removes everything below `end` except for what could not be repaired. Returns whether
    /// nothing is missing any longer.
    fn excise(&self, end: Txg) -> bool {
        let state = &mut *self.0.write();
        let scrub = std::mem::take(&mut state.scrub);
        let Missing::Known(missing) = &mut state.missing else { return false };
        let before = missing.clone();
        missing.remove_below(end);
        *missing = missing.union(&scrub);
        state.is_changed |= *missing != before;
        missing.is_empty()
    }

    /// What is known to be missing; `None` if unknown.
    pub(crate) fn get(&self) -> Option<TxgSet> {
        match &self.0.read().missing {
            Missing::Unknown { .. } => None,
            Missing::Known(missing) => Some(missing.clone()),
        }
    }

    /// What must be assumed missing.
    fn assumed(&self) -> TxgSet {
        match &self.0.read().missing {
            Missing::Unknown { waits_for_resilver: true } => TxgSet::all(),
            Missing::Unknown { waits_for_resilver: false } => TxgSet::new(),
            Missing::Known(missing) => missing.clone(),
        }
    }

    /// Whether what was born in `birth` is known to be missing.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        match &self.0.read().missing {
            Missing::Unknown { waits_for_resilver } => *waits_for_resilver,
            Missing::Known(missing) => missing.contains(birth),
        }
    }

    /// Whether anything that was born in `birth` or later is known to be missing.
    pub(crate) fn lacks_since(&self, birth: Txg) -> bool {
        match &self.0.read().missing {
            Missing::Unknown { waits_for_resilver } => *waits_for_resilver,
            Missing::Known(missing) => missing.last().is_some_and(|last| last >= birth),
        }
    }

    /// Whether the stored log is out of date.
    fn is_changed(&self) -> bool {
        self.0.read().is_changed
    }

    /// The log to store, if it has changed; it then counts as stored.
    fn take_changes(&self) -> Option<TxgSet> {
        let state = &mut *self.0.write();
        match &state.missing {
            Missing::Known(missing) if state.is_changed => {
                state.is_changed = false;
                Some(missing.union(&state.expected))
            }
            _ => None,
        }
    }

    /// Marks the log as not stored.
    fn mark_changed(&self) {
        self.0.write().is_changed = true;
    }
}
