//! A metaslab of a pool that is open for writing.
//!
//! ```text
//! allocate   free ──> allocating[txg & 3] ──> (ALLOC record) ──> allocated
//! free       freeing ──> (FREE record) ──> freed ──> deferred ──> (two txgs later) ──> free
//! ```
//! The free tree exists only while the metaslab is loaded; the others only while they are not
//! empty. So an idle metaslab is its space map's header and a few numbers.
//!
//! For a loaded metaslab in syncing context, with everything in bytes (spec 06, section 7.1):
//! `size - allocated = free + all of allocating + deferred + freed`.

use super::context::{Context, slot};
use super::group::{Group, OrderKey};
use super::tunables::SpaceFeatures;
use crate::fragmentation;
use crate::free_space::FreeSpace;
use crate::log::book::MetaslabId;
use crate::metaslab::Freshness;
use crate::metaslab::MetaslabParts;
use crate::space_map::SpaceMap;
use crate::space_map::append::HeaderForm;
use crate::weight::{Activation, SpaceFigures, Weight};
use crate::{MetaslabError, RangeError, RangeTree};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rzfs_format::Txg;
use rzfs_format::space_map::{Geometry, HISTOGRAM_BUCKETS};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Counts of free segments by size, as in a space map's header.
pub(crate) type MapHistogram = [u64; HISTOGRAM_BUCKETS];

/// Segments freed in a txg, which wait until they may be used again.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) txg: Txg,
    pub(crate) segments: RangeTree,
    /// Their counts in the map's histogram.
    pub(crate) counted: MapHistogram,
}

/// State of a metaslab in txgs that are not on disk yet.
#[derive(Debug)]
pub(crate) struct Transient {
    /// Allocated in open context or this pass and not recorded, by `txg & 3`.
    pub(crate) allocating: [RangeTree; 4],
    /// Freed in this pass, not recorded.
    pub(crate) freeing: RangeTree,
    /// Freed in this pass, but the checkpoint needs it.
    pub(crate) checkpointing: RangeTree,
    /// Freed in this txg and recorded.
    pub(crate) freed: RangeTree,
    /// The counts of `freed` in the map's histogram.
    pub(crate) counted: MapHistogram,
    /// Freed in the last two txgs.
    pub(crate) deferred: VecDeque<Deferred>,
    /// Bytes allocated and recorded in this txg.
    pub(crate) recorded: u64,
}

/// Changes that only the logs have.
#[derive(Debug)]
pub(crate) struct Unflushed {
    pub(crate) allocated: RangeTree,
    pub(crate) freed: RangeTree,
}

impl Unflushed {
    /// Bytes of memory that they count as.
    pub(crate) const fn memory(&self) -> u64 {
        let segments = self.allocated.segment_count() + self.freed.segment_count();
        segments as u64 * self.allocated.segment_size()
    }
}

/// What is known of a metaslab's free space.
#[derive(Debug)]
pub(crate) enum FreeTree {
    /// Nothing.
    Unloaded,
    /// The map is being read.
    Loading,
    /// All of it.
    Loaded(Box<FreeSpace>),
    /// The map contradicts itself or cannot be read: nothing can be allocated.
    Unusable,
}

/// Up to where a metaslab's own map is complete: later records were added in this txg.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Synced {
    pub(crate) length: u64,
    pub(crate) allocated: i64,
}

/// Which allocator uses a metaslab, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Active {
    pub(crate) activation: Activation,
    pub(crate) allocator: usize,
    /// log2 of the largest segment when it was chosen.
    pub(crate) index: u32,
}

/// The mutable state of a metaslab.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) map: Option<SpaceMap>,
    pub(crate) synced: Synced,
    pub(crate) unflushed_txg: Txg,
    pub(crate) freshness: Freshness,
    pub(crate) unflushed: Option<Box<Unflushed>>,
    /// Bytes that are allocated according to everything recorded.
    pub(crate) allocated: i64,
    pub(crate) free: FreeTree,
    pub(crate) transient: Option<Box<Transient>>,
    /// Reusable freed ranges worth a TRIM.
    pub(crate) trim: Option<Box<RangeTree>>,
    /// The unflushed changes are being written to the own map.
    pub(crate) flushing: bool,
    /// Records were written in the txg that is syncing: it must stay loaded.
    pub(crate) pinned: bool,
    /// The frees of this txg are in a log or were in the map when it began.
    pub(crate) frees_logged: bool,
    /// Whether its space is usable: its vdev is not new in the syncing txg.
    pub(crate) available: bool,
    /// Number of users that keep allocations away from its free space.
    pub(crate) disabled: u32,
    pub(crate) active: Option<Active>,
    pub(crate) weight: Weight,
    pub(crate) key: OrderKey,
    pub(crate) selected: Txg,
}

/// A metaslab, shared by all allocating threads.
#[derive(Debug)]
pub(crate) struct LiveMetaslab {
    pub(crate) id: MetaslabId,
    pub(crate) range: Range<u64>,
    pub(crate) ashift: u32,
    /// The vdev's number of metaslabs when it was opened.
    pub(crate) group: Arc<Group>,
    pub(crate) state: Mutex<State>,
    /// Notified when loading or flushing ends.
    pub(crate) settled: Condvar,
}

impl LiveMetaslab {
    /// A metaslab as read, or a new one (`parts` is `None`).
    pub(crate) fn new(
        id: MetaslabId,
        range: Range<u64>,
        ashift: u32,
        group: Arc<Group>,
        parts: Option<MetaslabParts>,
        available: bool,
    ) -> Self {
        let mut state = State::empty(id.index, available);
        if let Some(parts) = parts {
            let unflushed =
                Unflushed { allocated: parts.unflushed_allocated, freed: parts.unflushed_freed };
            let net =
                unflushed.allocated.space().cast_signed() - unflushed.freed.space().cast_signed();
            if let Some(map) = &parts.space_map {
                let header = map.header();
                state.synced = Synced { length: header.length, allocated: header.allocated };
                state.allocated = header.allocated;
            }
            state.allocated = state.allocated.saturating_add(net);
            state.map = parts.space_map;
            state.unflushed_txg = parts.unflushed_txg;
            state.freshness = parts.freshness;
            if unflushed.memory() != 0 {
                state.unflushed = Some(Box::new(unflushed));
            }
        }
        Self { id, range, ashift, group, state: Mutex::new(state), settled: Condvar::new() }
    }

    pub(crate) const fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(crate) const fn geometry(&self) -> Geometry {
        Geometry { start: self.range.start, size: self.size(), shift: self.ashift }
    }

    pub(crate) fn tree(&self) -> RangeTree {
        RangeTree::new(self.range.clone(), self.ashift)
    }

    /// Adds the metaslab to an error about its trees.
    pub(crate) fn conflict(&self) -> impl Fn(RangeError) -> MetaslabError + Copy {
        let MetaslabId { vdev, index } = self.id;
        move |source| MetaslabError::Range { vdev, metaslab: index, source }
    }

    /// The trees of open txgs, created if missing.
    pub(crate) fn transient<'a>(&self, state: &'a mut State) -> &'a mut Transient {
        state.transient.get_or_insert_with(|| {
            Box::new(Transient {
                allocating: std::array::from_fn(|_| self.tree()),
                freeing: self.tree(),
                checkpointing: self.tree(),
                freed: self.tree(),
                counted: [0; HISTOGRAM_BUCKETS],
                deferred: VecDeque::new(),
                recorded: 0,
            })
        })
    }

    /// The changes only in logs, created if missing.
    pub(crate) fn unflushed<'a>(&self, state: &'a mut State) -> &'a mut Unflushed {
        state.unflushed.get_or_insert_with(|| {
            Box::new(Unflushed { allocated: self.tree(), freed: self.tree() })
        })
    }

    /// Recomputes the weight and reorders the metaslab in its group.
    pub(crate) fn reweigh(&self, state: &mut State, features: &SpaceFeatures) {
        state.weight = self.weight(state, features);
        self.reorder(state);
    }

    /// Reorders the metaslab in its group by weight and use.
    pub(crate) fn reorder(&self, state: &mut State) {
        let rank = state.active.map(|active| active.activation);
        let key = OrderKey::new(rank, state.weight, self.id.index);
        if key != state.key {
            self.group.replace(state.key, key);
            state.key = key;
        }
    }

    fn weight(&self, state: &State, features: &SpaceFeatures) -> Weight {
        if !state.available || matches!(state.free, FreeTree::Unusable) {
            return Weight::NONE;
        }
        let by_segments = features.maps.header == HeaderForm::Histogram
            && state.map.as_ref().is_none_or(|map| map.header().histogram.is_some());
        if !by_segments {
            return Weight::of_space(SpaceFigures {
                free: self.free_bytes(state),
                fragmentation: self.fragmentation(state),
                place: None,
            });
        }
        if let FreeTree::Loaded(free) = &state.free {
            return Weight::of_segments(free.segments().histogram(), self.ashift);
        }
        let histogram = state.map.as_ref().and_then(|map| map.header().histogram.as_ref());
        match histogram {
            Some(histogram) if state.allocated != 0 || state.transient.is_some() => {
                Weight::of_map(histogram, &state.pending(), self.ashift)
            }
            _ => Weight::of_whole(self.size(), self.ashift),
        }
    }

    /// Bytes not allocated, including deferred frees.
    pub(crate) fn free_bytes(&self, state: &State) -> u64 {
        self.size().saturating_sub(state.allocated.max(0).cast_unsigned())
    }

    /// How fragmented its free space is; `None` if its map has no histogram.
    pub(crate) fn fragmentation(&self, state: &State) -> Option<u64> {
        match &state.map {
            None => Some(0),
            Some(map) => {
                let histogram = map.header().histogram.as_ref()?;
                Some(fragmentation::of_histogram(histogram, self.ashift))
            }
        }
    }

    /// Takes `size` bytes of a loaded metaslab for a block of `txg`.
    pub(crate) fn take_space(
        &self,
        state: &mut State,
        context: &Context,
        size: u64,
        txg: Txg,
    ) -> Option<Range<u64>> {
        let FreeTree::Loaded(free) = &mut state.free else { return None };
        let range = free.allocate(size)?;
        self.note_allocation(state, context, range, txg)
    }

    /// Records that a range removed from the free tree is allocated in `txg`.
    pub(crate) fn note_allocation(
        &self,
        state: &mut State,
        context: &Context,
        range: Range<u64>,
        txg: Txg,
    ) -> Option<Range<u64>> {
        if let Some(trim) = &mut state.trim {
            trim.clear(range.clone()).ok()?;
        }
        let allocating = &mut self.transient(state).allocating[slot(txg)];
        let first = allocating.is_empty();
        allocating.add(range.clone()).ok()?;
        if first {
            context.mark_dirty(txg, self.id);
        }
        state.selected = state.selected.max(txg);
        Some(range)
    }

    /// Waits until the metaslab is neither being loaded nor flushed.
    pub(crate) fn wait_settled(&self, state: &mut MutexGuard<'_, State>) {
        while state.flushing || matches!(state.free, FreeTree::Loading) {
            self.settled.wait(state);
        }
    }
}

impl State {
    fn empty(index: u64, available: bool) -> Self {
        Self {
            map: None,
            synced: Synced::default(),
            unflushed_txg: Txg(0),
            freshness: Freshness::Clean,
            unflushed: None,
            allocated: 0,
            free: FreeTree::Unloaded,
            transient: None,
            trim: None,
            flushing: false,
            pinned: false,
            frees_logged: true,
            available,
            disabled: 0,
            active: None,
            weight: Weight::NONE,
            key: OrderKey::new(None, Weight::NONE, index),
            selected: Txg(0),
        }
    }

    /// The map's histogram counts of space that cannot be allocated yet.
    fn pending(&self) -> MapHistogram {
        let mut sum = [0; HISTOGRAM_BUCKETS];
        if let Some(transient) = &self.transient {
            let counts = transient.deferred.iter().map(|deferred| &deferred.counted);
            for counted in counts.chain([&transient.counted]) {
                for (sum, count) in sum.iter_mut().zip(counted) {
                    *sum += count;
                }
            }
        }
        sum
    }

    /// Bytes of the unflushed changes.
    pub(crate) fn unflushed_memory(&self) -> u64 {
        self.unflushed.as_ref().map_or(0, |unflushed| unflushed.memory())
    }

    /// Whether the free tree can be dropped, as map, logs and deferred frees determine it.
    pub(crate) fn can_unload(&self) -> bool {
        let idle = self.transient.as_ref().is_none_or(|transient| transient.is_recorded());
        matches!(self.free, FreeTree::Loaded(_))
            && idle
            && !self.pinned
            && !self.flushing
            && self.active.is_none()
            && self.disabled == 0
    }
}

impl Transient {
    /// Whether everything but deferred frees is recorded and on disk.
    fn is_recorded(&self) -> bool {
        self.allocating.iter().all(RangeTree::is_empty)
            && self.freeing.is_empty()
            && self.checkpointing.is_empty()
            && self.freed.is_empty()
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_recorded() && self.deferred.is_empty() && self.recorded == 0
    }
}
