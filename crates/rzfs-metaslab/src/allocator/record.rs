//! Recording the changes of a metaslab, pass by pass, and the end of its txg (spec 06, sections 7.4
//! and 19.6).
//!
//! A pass takes the trees out under the metaslab's lock, the syncing thread stores them, and then
//! reports that to the metaslab.

use super::context::{Context, slot};
use super::metaslab::{Deferred, FreeTree, LiveMetaslab, MapHistogram, State, Synced};
use crate::range_tree::cancel_or_add;
use crate::space_map::SpaceMap;
use crate::space_map::append::add_to_histogram;
use crate::{MetaslabError, RangeTree};
use rzfs_format::Txg;
use rzfs_format::space_map::HISTOGRAM_BUCKETS;

/// The records of a metaslab in one pass.
#[derive(Debug)]
pub(crate) struct PassTrees {
    pub(crate) allocated: RangeTree,
    pub(crate) freed: RangeTree,
    /// Freed, but the checkpoint needs it.
    pub(crate) checkpointed: RangeTree,
}

/// Where a pass's records went.
#[derive(Debug)]
pub(crate) enum Recorded {
    /// To the txg's log.
    Log,
    /// To the own map, which this is now.
    Own(Box<SpaceMap>),
}

/// Whether frees are deferred by two txgs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deferral {
    /// They are, and for as long as an older txg is held.
    TwoTxgs {
        /// The oldest txg that is held.
        held: Option<Txg>,
    },
    /// They are usable at once: space is short.
    None,
}

impl Deferral {
    /// Whether space freed in `freed` is usable when `txg` is on disk.
    fn is_over(self, freed: Txg, txg: Txg) -> bool {
        let is_held = match self {
            // A held txg still has what was freed in a later one.
            Self::TwoTxgs { held } => held.is_some_and(|held| held < freed),
            Self::None => false,
        };
        freed.0.saturating_add(2) <= txg.0 && !is_held
    }
}

/// Whether freed ranges are remembered for TRIM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Autotrim {
    /// They are.
    On,
    /// They are not.
    Off,
}

/// How the end of a txg changed the space of a metaslab.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SpaceChange {
    pub(crate) allocated: i64,
    pub(crate) deferred: i64,
}

impl LiveMetaslab {
    /// Whether a pass of `txg` has something to record.
    pub(crate) fn has_records(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        state.transient.as_ref().is_some_and(|transient| {
            !transient.allocating[slot(txg)].is_empty()
                || !transient.freeing.is_empty()
                || !transient.checkpointing.is_empty()
        })
    }

    /// Takes out the records of this pass. Until [`LiveMetaslab::recorded`] a loaded metaslab stays
    /// loaded.
    pub(crate) fn take_pass(&self, txg: Txg) -> PassTrees {
        let mut state = self.state.lock();
        state.pinned = true;
        let transient = self.transient(&mut state);
        PassTrees {
            allocated: transient.allocating[slot(txg)].take(),
            freed: transient.freeing.take(),
            checkpointed: transient.checkpointing.take(),
        }
    }

    /// Marks the records of a pass as stored. Returns the new histogram of the own map.
    pub(crate) fn recorded(
        &self,
        trees: &PassTrees,
        recorded: Recorded,
    ) -> Result<MapHistogram, MetaslabError> {
        let conflict = self.conflict();
        let mut state = self.state.lock();
        let state = &mut *state;
        let (allocated, freed) = (trees.allocated.space(), trees.freed.space());
        state.allocated += allocated.cast_signed() - freed.cast_signed();
        match recorded {
            Recorded::Own(map) => {
                state.map = Some(*map);
                state.frees_logged = false;
            }
            Recorded::Log => {
                state.frees_logged = true;
                let unflushed = self.unflushed(state);
                for range in trees.allocated.iter() {
                    cancel_or_add(range, &mut unflushed.freed, &mut unflushed.allocated)
                        .map_err(conflict)?;
                }
                for range in trees.freed.iter() {
                    cancel_or_add(range, &mut unflushed.allocated, &mut unflushed.freed)
                        .map_err(conflict)?;
                }
                if unflushed.memory() == 0 {
                    state.unflushed = None;
                }
            }
        }
        let mut histogram = self.histogram(state);
        add_to_histogram(&mut histogram, trees.freed.histogram(), self.ashift);
        let loaded = matches!(state.free, FreeTree::Loaded(_));
        let ashift = self.ashift;
        let transient = self.transient(state);
        if loaded {
            transient.count_again(ashift);
        }
        add_to_histogram(&mut transient.counted, trees.freed.histogram(), ashift);
        transient.recorded += allocated;
        transient.freed.add_all(&trees.freed).map_err(conflict)?;
        Ok(histogram)
    }

    /// The histogram of the own map from memory: exact if the metaslab is loaded, else the old one.
    pub(crate) fn histogram(&self, state: &State) -> MapHistogram {
        let FreeTree::Loaded(free) = &state.free else {
            let stored = state.map.as_ref().and_then(|map| map.header().histogram);
            return stored.unwrap_or([0; HISTOGRAM_BUCKETS]);
        };
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        add_to_histogram(&mut histogram, free.segments().histogram(), self.ashift);
        if let Some(transient) = &state.transient {
            let deferred = transient.deferred.iter().map(|deferred| &deferred.segments);
            for waiting in deferred.chain([&transient.freed]) {
                add_to_histogram(&mut histogram, waiting.histogram(), self.ashift);
            }
        }
        histogram
    }

    /// Replaces the own map after a change without records.
    pub(crate) fn replace_map(&self, map: SpaceMap) {
        self.state.lock().map = Some(map);
    }

    /// Ends a txg that is on disk: space freed two txgs ago, and not in a held txg, becomes usable.
    pub(crate) fn committed(
        &self,
        context: &Context,
        txg: Txg,
        deferral: Deferral,
        autotrim: Autotrim,
    ) -> Result<SpaceChange, MetaslabError> {
        let conflict = self.conflict();
        let mut guard = self.state.lock();
        self.wait_settled(&mut guard);
        let state = &mut *guard;
        let mut change = SpaceChange::default();
        if autotrim == Autotrim::Off {
            state.trim = None;
        }
        let mut reusable = Vec::new();
        if let Some(transient) = &mut state.transient {
            while transient.deferred.front().is_some_and(|old| deferral.is_over(old.txg, txg)) {
                reusable.extend(transient.deferred.pop_front().map(|old| old.segments));
            }
            let released: u64 = reusable.iter().map(RangeTree::space).sum();
            let freed = transient.freed.take();
            change.allocated =
                std::mem::take(&mut transient.recorded).cast_signed() - freed.space().cast_signed();
            change.deferred = -released.cast_signed();
            let counted = std::mem::replace(&mut transient.counted, [0; HISTOGRAM_BUCKETS]);
            match deferral {
                _ if freed.is_empty() => {}
                Deferral::TwoTxgs { .. } => {
                    change.deferred += freed.space().cast_signed();
                    transient.deferred.push_back(Deferred { txg, segments: freed, counted });
                }
                Deferral::None => reusable.push(freed),
            }
            change.allocated += change.deferred;
            if transient.is_empty() {
                state.transient = None;
            }
        }
        for segments in &reusable {
            if let FreeTree::Loaded(free) = &mut state.free {
                segments.iter().try_for_each(|range| free.add(range)).map_err(conflict)?;
            }
            if autotrim == Autotrim::On {
                let trim = state.trim.get_or_insert_with(|| Box::new(self.tree()));
                trim.add_all(segments).map_err(conflict)?;
            }
        }
        if let Some(map) = &state.map {
            let header = map.header();
            state.synced = Synced { length: header.length, allocated: header.allocated };
        }
        state.available = true;
        state.pinned = false;
        state.frees_logged = true;
        self.reweigh(state, &context.features());
        Ok(change)
    }

    /// Whether the end of later txgs changes the metaslab, even if nothing else happens to it.
    pub(crate) fn is_draining(&self) -> bool {
        let state = self.state.lock();
        state.transient.as_ref().is_some_and(|transient| !transient.deferred.is_empty())
    }
}

impl super::metaslab::Transient {
    /// Recounts deferred space of a loaded metaslab as in its map's current histogram.
    fn count_again(&mut self, ashift: u32) {
        let count = |segments: &RangeTree| {
            let mut counted = [0; HISTOGRAM_BUCKETS];
            add_to_histogram(&mut counted, segments.histogram(), ashift);
            counted
        };
        self.counted = count(&self.freed);
        for deferred in &mut self.deferred {
            deferred.counted = count(&deferred.segments);
        }
    }
}
