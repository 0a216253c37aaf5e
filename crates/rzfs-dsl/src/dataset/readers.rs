//! The snapshots that are read while the pool changes.
//!
//! ```text
//! txg            7 durable                8 durable
//! destruction        └── end(s, 8)            │
//! view of 7      enter(s): told at once       │ enter(s): told at once
//! view of 8                                   └ enter(t): the next one that has this number
//! ```
//! Object numbers are reused, so a snapshot is identified by its creation txg as well. A reader of
//! a txg may open what a later one has destroyed, so destroyed snapshots are remembered as long as
//! an older txg is being read, or may be.

use parking_lot::Mutex;
use rzfs_dmu::Existence;
use rzfs_format::dsl::DslDataset;
use rzfs_format::{ObjectId, Txg};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The snapshots of a pool in use by readers, so that a destroyer can notify them.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of readers of each txg.
    views: BTreeMap<Txg, usize>,
    /// The youngest txg that was read: no new reader can look at an older one.
    newest: Txg,
    snapshots: HashMap<SnapshotIdentity, Snapshot>,
}

/// Identifies a snapshot among all that have or had its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SnapshotIdentity {
    pub(crate) object: ObjectId,
    pub(crate) created: Txg,
}

impl SnapshotIdentity {
    pub(crate) const fn of(object: ObjectId, snapshot: &DslDataset) -> Self {
        Self { object, created: snapshot.creation_txg }
    }
}

/// A snapshot that was read.
#[derive(Debug, Default)]
struct Snapshot {
    existence: Existence,
    /// The txg that destroyed it.
    destroyed: Option<Txg>,
    /// Number of holders that need the whole snapshot to the end.
    keepers: usize,
}

impl State {
    /// Drops entries that are no longer needed, from time to time.
    fn tidy(&mut self) {
        if self.snapshots.len() < self.snapshots.capacity() {
            return;
        }
        let oldest = self.views.keys().next().map_or(self.newest, |txg| self.newest.min(*txg));
        self.snapshots.retain(|_, snapshot| match snapshot.destroyed {
            Some(txg) => txg > oldest,
            None => snapshot.keepers > 0 || snapshot.existence.is_shared(),
        });
    }
}

impl Readers {
    /// A view of a durable txg: the last one, or one that already has readers.
    pub(crate) fn view(self: &Arc<Self>, txg: Txg) -> View {
        let mut state = self.0.lock();
        *state.views.entry(txg).or_default() += 1;
        state.newest = state.newest.max(txg);
        View { readers: Arc::clone(self), txg }
    }

    /// Whether a holder needs the whole snapshot to the end.
    pub(crate) fn is_kept(&self, snapshot: SnapshotIdentity) -> bool {
        self.0.lock().snapshots.get(&snapshot).is_some_and(|snapshot| snapshot.keepers > 0)
    }

    /// Notifies the readers of a snapshot, and those who open it later in an older txg, that it is
    /// gone with this one.
    pub(crate) fn end(&self, snapshot: SnapshotIdentity, txg: Txg) {
        let mut state = self.0.lock();
        state.tidy();
        let snapshot = state.snapshots.entry(snapshot).or_default();
        snapshot.existence.end();
        snapshot.destroyed = Some(txg);
    }
}

/// A view of a txg.
#[derive(Debug)]
pub(crate) struct View {
    readers: Arc<Readers>,
    txg: Txg,
}

impl View {
    /// Registers a reader of a snapshot of this txg; reports when the snapshot is destroyed.
    pub(super) fn enter(&self, snapshot: SnapshotIdentity) -> Existence {
        let mut state = self.readers.0.lock();
        state.tidy();
        state.snapshots.entry(snapshot).or_default().existence.clone()
    }

    /// Protects a snapshot of this txg from destruction, unless that has begun.
    pub(super) fn keep(&self, snapshot: SnapshotIdentity) -> KeptSnapshot {
        let readers = Arc::clone(&self.readers);
        readers.0.lock().snapshots.entry(snapshot).or_default().keepers += 1;
        KeptSnapshot { readers, snapshot }
    }
}

/// A snapshot that cannot be destroyed as long as this guard is held.
#[derive(Debug)]
pub struct KeptSnapshot {
    readers: Arc<Readers>,
    snapshot: SnapshotIdentity,
}

impl Drop for KeptSnapshot {
    fn drop(&mut self) {
        if let Some(snapshot) = self.readers.0.lock().snapshots.get_mut(&self.snapshot) {
            snapshot.keepers = snapshot.keepers.saturating_sub(1);
        }
    }
}

/// For a pool that does not change.
impl Default for View {
    fn default() -> Self {
        Arc::<Readers>::default().view(Txg(0))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut state = self.readers.0.lock();
        if let Some(count) = state.views.get_mut(&self.txg) {
            *count -= 1;
            if *count == 0 {
                state.views.remove(&self.txg);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SnapshotIdentity = identity(7);
    /// The next snapshot with the same number.
    const NEXT: SnapshotIdentity = SnapshotIdentity { created: Txg(11), ..ID };

    const fn identity(object: u64) -> SnapshotIdentity {
        SnapshotIdentity { object: ObjectId(object), created: Txg(1) }
    }

    #[test]
    fn readers_of_a_snapshot_are_told_and_those_of_the_next_one_with_its_number_are_not() {
        let readers = Arc::new(Readers::default());
        let view = readers.view(Txg(10));
        let (first, second) = (view.enter(ID), view.enter(ID));
        let other = view.enter(identity(8));
        readers.end(ID, Txg(11));
        assert!(first.has_ended() && second.has_ended() && !other.has_ended());
        let next = readers.view(Txg(11)).enter(NEXT);
        assert!(!next.has_ended());
        // A reader of the older txg still finds the first one there.
        assert!(view.enter(ID).has_ended());
        assert!(!next.has_ended() && !readers.view(Txg(11)).enter(NEXT).has_ended());
        readers.end(NEXT, Txg(12));
        assert!(next.has_ended());
    }

    #[test]
    fn who_opens_a_snapshot_that_a_txg_destroys_before_that_is_durable_is_told() {
        let readers = Arc::new(Readers::default());
        let early = readers.view(Txg(10));
        readers.end(ID, Txg(11));
        assert!(early.enter(ID).has_ended());
        let late = readers.view(Txg(10));
        drop(early);
        // However many others come and go.
        (100..10_000).for_each(|id| drop(late.enter(identity(id))));
        assert!(late.enter(ID).has_ended());
    }

    #[test]
    fn a_snapshot_is_kept_as_long_as_one_of_many_needs_it() {
        let readers = Arc::new(Readers::default());
        let view = readers.view(Txg(10));
        let (first, second) = (view.keep(ID), view.keep(ID));
        drop(view);
        // However many others come and go.
        let view = readers.view(Txg(10));
        (100..10_000).for_each(|id| drop(view.enter(identity(id))));
        drop(first);
        assert!(readers.is_kept(ID) && !readers.is_kept(NEXT) && !readers.is_kept(identity(8)));
        drop(second);
        assert!(!readers.is_kept(ID));
    }

    #[test]
    fn what_nobody_needs_any_more_is_forgotten() {
        let readers = Arc::new(Readers::default());
        for txg in 1..10_000 {
            let view = readers.view(Txg(txg));
            drop(view.enter(identity(txg)));
            readers.end(identity(txg), Txg(txg + 1));
            drop(view.enter(identity(20_000 + txg)));
        }
        let state = readers.0.lock();
        assert!(state.snapshots.len() < 100 && state.views.is_empty(), "{}", state.snapshots.len());
    }
}
