//! Bringing own maps up to date: flushing changes that are only in logs, and condensing a map to
//! the current free space (spec 06, sections 8 and 13.6).

use super::context::Context;
use super::metaslab::{FreeTree, LiveMetaslab, State, Synced};
use super::record::PassTrees;
use super::tunables::SpaceFeatures;
use crate::space_map::SpaceMap;
use crate::space_map::append::{HeaderForm, Part, Stamp, add_to_histogram};
use crate::store::SyncStore;
use crate::{MetaslabError, RangeTree};
use rzfs_format::ObjectId;
use rzfs_format::space_map::{Action, HISTOGRAM_BUCKETS, encoded_size_bound};

/// The result of bringing a map up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// The map is complete.
    Appended,
    /// The map is complete, and new; this is its object.
    Condensed(ObjectId),
    /// The metaslab is being loaded: not now.
    Busy,
}

impl LiveMetaslab {
    /// Whether the own map should be rewritten.
    fn should_condense(&self, state: &State, context: &Context, features: &SpaceFeatures) -> bool {
        let (FreeTree::Loaded(free), Some(map)) = (&state.free, &state.map) else { return false };
        let header = map.header();
        let old_form = header.histogram.is_none() && features.maps.header == HeaderForm::Histogram;
        if free.segments().is_empty() || old_form {
            return true;
        }
        let block_size = u64::from(map.block_size());
        let bound = encoded_size_bound(
            free.segments().histogram(),
            map.geometry(),
            block_size,
            features.maps.version,
        );
        let tunables = &context.tunables;
        let many = u128::from(header.length) * 100
            >= u128::from(bound) * u128::from(tunables.condense_pct);
        let blocks = block_size.max(1 << self.ashift);
        many && header.length > tunables.condense_block_threshold.saturating_mul(blocks)
    }

    /// Condenses the own map if that is worthwhile. Returns the map's object if so.
    pub(crate) fn condense(
        &self,
        store: &mut dyn SyncStore,
        context: &Context,
        features: &SpaceFeatures,
        stamp: Stamp,
    ) -> Result<Option<ObjectId>, MetaslabError> {
        let (free, mut map) = {
            let mut state = self.state.lock();
            if !self.should_condense(&state, context, features) {
                return Ok(None);
            }
            let (Some(free), Some(map)) = (self.free_before(&state)?, state.map.clone()) else {
                return Ok(None);
            };
            state.pinned = true;
            state.unflushed = None;
            (free, map)
        };
        let whole = RangeTree::full(self.range.clone(), self.ashift);
        map.truncate(store, features.map_block_size(), features.maps.header)?;
        let parts = [
            Part { action: Action::Allocate, segments: &whole },
            Part { action: Action::Free, segments: &free },
        ];
        map.append(store, stamp, features.maps.version, None, &parts)?;
        let object = map.object();
        self.stored(&mut self.state.lock(), map);
        Ok(Some(object))
    }

    /// The free space before the syncing txg: allocatable space, deferred frees, and unrecorded
    /// allocations. `None` if the metaslab is not loaded.
    fn free_before(&self, state: &State) -> Result<Option<RangeTree>, MetaslabError> {
        let FreeTree::Loaded(free) = &state.free else { return Ok(None) };
        let mut tree = free.segments().clone();
        if let Some(transient) = &state.transient {
            let deferred = transient.deferred.iter().map(|deferred| &deferred.segments);
            for pending in deferred.chain(&transient.allocating).chain([&transient.freed]) {
                tree.add_all(pending).map_err(self.conflict())?;
            }
        }
        Ok(Some(tree))
    }

    fn stored(&self, state: &mut State, map: SpaceMap) {
        let header = map.header();
        state.synced = Synced { length: header.length, allocated: header.allocated };
        state.map = Some(map);
    }

    /// Completes the existing own map: appends changes that are only in logs, or condenses it.
    pub(crate) fn flush(
        &self,
        store: &mut dyn SyncStore,
        context: &Context,
        features: &SpaceFeatures,
        stamp: Stamp,
    ) -> Result<Flushed, MetaslabError> {
        if matches!(self.state.lock().free, FreeTree::Loading) {
            return Ok(Flushed::Busy);
        }
        if let Some(object) = self.condense(store, context, features, stamp)? {
            let (histogram, map) = {
                let state = self.state.lock();
                (self.histogram(&state), state.map.clone())
            };
            if let Some(mut map) = map {
                map.set_histogram(store, &histogram)?;
                self.replace_map(map);
            }
            return Ok(Flushed::Condensed(object));
        }
        let (unflushed, map) = {
            let mut state = self.state.lock();
            if matches!(state.free, FreeTree::Loading) {
                return Ok(Flushed::Busy);
            }
            let Some(map) = state.map.clone() else { return Ok(Flushed::Appended) };
            state.flushing = true;
            (state.unflushed.take(), map)
        };
        let mut flushed = map;
        let result = match &unflushed {
            Some(unflushed) => {
                let parts = [
                    Part { action: Action::Allocate, segments: &unflushed.allocated },
                    Part { action: Action::Free, segments: &unflushed.freed },
                ];
                flushed.append(store, stamp, features.maps.version, None, &parts).map(drop)
            }
            None => Ok(()),
        };
        let mut state = self.state.lock();
        state.flushing = false;
        match result {
            Ok(()) => self.stored(&mut state, flushed),
            Err(_) => state.unflushed = unflushed,
        }
        self.settled.notify_all();
        drop(state);
        match result {
            Err(error) if error.is_damage(store) => {
                tracing::error!(%error, "a space map is damaged");
                let object = self.replace_damaged(store, features, stamp, None)?;
                Ok(Flushed::Condensed(object))
            }
            result => result.map(|()| Flushed::Appended),
        }
    }

    /// Rewrites the own map as damage prevents appending to it; returns its new object. If the
    /// metaslab is not loaded its free space is unknown and leaked, except for what was freed since
    /// the map was complete. `taken` is what this pass is about to record.
    pub(crate) fn replace_damaged(
        &self,
        store: &mut dyn SyncStore,
        features: &SpaceFeatures,
        stamp: Stamp,
        taken: Option<&PassTrees>,
    ) -> Result<ObjectId, MetaslabError> {
        let conflict = self.conflict();
        let mut state = self.state.lock();
        self.wait_settled(&mut state);
        let (mut free, freed) = match self.free_before(&state)? {
            Some(free) => (free, self.tree()),
            None => self.freed_since(&state)?,
        };
        if let Some(taken) = taken {
            free.add_all(&taken.allocated).map_err(conflict)?;
        }
        let Some(mut map) = state.map.clone() else { return Ok(ObjectId(0)) };
        // It must not be loaded meanwhile.
        state.flushing = true;
        state.pinned = true;
        drop(state);
        let written = self.write_anew(store, features, stamp, &mut map, (&free, &freed));
        let mut state = self.state.lock();
        state.flushing = false;
        self.settled.notify_all();
        let before = written?;
        state.unflushed = None;
        let allocated = self.size().saturating_sub(free.space() + freed.space()).cast_signed();
        let leaked = allocated.saturating_sub(state.allocated);
        state.allocated = allocated;
        let object = map.object();
        self.stored(&mut state, before);
        state.map = Some(map);
        if matches!(state.free, FreeTree::Unusable) {
            state.free = FreeTree::Unloaded;
        }
        self.reweigh(&mut state, features);
        drop(state);
        let mut totals = self.group.totals.lock();
        totals.allocated = totals.allocated.saturating_add_signed(leaked);
        tracing::error!(
            vdev = %self.id.vdev, metaslab = self.id.index, leaked,
            "a damaged space map was written anew; free space is leaked"
        );
        Ok(object)
    }

    /// Writes the earlier free space, and then the frees of this txg, to another object. Returns
    /// the map as it was in between: a load must not see the latter, which cannot be used yet.
    fn write_anew(
        &self,
        store: &mut dyn SyncStore,
        features: &SpaceFeatures,
        stamp: Stamp,
        map: &mut SpaceMap,
        (free, freed): (&RangeTree, &RangeTree),
    ) -> Result<SpaceMap, MetaslabError> {
        map.replace(store, features.map_block_size(), features.maps.header)?;
        let whole = RangeTree::full(self.range.clone(), self.ashift);
        let parts = [
            Part { action: Action::Allocate, segments: &whole },
            Part { action: Action::Free, segments: free },
        ];
        map.append(store, stamp, features.maps.version, None, &parts)?;
        let before = map.clone();
        let parts = [Part { action: Action::Free, segments: freed }];
        map.append(store, stamp, features.maps.version, None, &parts)?;
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        add_to_histogram(&mut histogram, free.histogram(), self.ashift);
        add_to_histogram(&mut histogram, freed.histogram(), self.ashift);
        map.set_histogram(store, &histogram)?;
        Ok(before)
    }

    /// The free space of an unloaded metaslab, as far as known in memory: what was freed since its
    /// own map was complete, and unrecorded allocations. Frees of earlier passes of the syncing txg
    /// are returned separately.
    fn freed_since(&self, state: &State) -> Result<(RangeTree, RangeTree), MetaslabError> {
        let conflict = self.conflict();
        let mut free = self.tree();
        let unflushed = state.unflushed.iter().map(|unflushed| &unflushed.freed);
        let transient = state.transient.iter().flat_map(|transient| {
            let deferred = transient.deferred.iter().map(|deferred| &deferred.segments);
            deferred.chain(&transient.allocating)
        });
        for range in unflushed.chain(transient).flat_map(RangeTree::iter) {
            free.clear(range.clone()).map_err(conflict)?;
            free.add(range).map_err(conflict)?;
        }
        let mut freed = self.tree();
        for range in state.transient.iter().flat_map(|transient| transient.freed.iter()) {
            free.clear(range.clone()).map_err(conflict)?;
            freed.add(range).map_err(conflict)?;
        }
        Ok((free, freed))
    }
}
