//! The lists of the cache, and their memory.

use super::balance::Share;
use super::entry::{CLASSES, Class, Purpose, State, header_size};
use super::evictor::Evictor;
use super::flight::Flight;
use super::shard::{Change, Lookup, Shard};
use super::stats::ArcStats;
use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Weighted};
use parking_lot::{Mutex, MutexGuard};
use rzfs_clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps what different threads write from sharing a cache line.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// The lists of all shards, and their weights.
pub(super) struct Lists<V: Weighted> {
    pub(super) shards: Box<[Padded<Mutex<Shard<V>>>]>,
    pub(super) clock: Clock,
    pub(super) max: AtomicU64,
    /// All memory accounted for: see the module.
    pub(super) size: Padded<AtomicU64>,
    /// Weights by class; changed only under the lock of the shard that the block is in.
    pub(super) list_sizes: Padded<[AtomicU64; CLASSES]>,
    /// Weights of ghosts that were missed since the last eviction, by class.
    pub(super) ghost_hits: Padded<[AtomicU64; CLASSES]>,
    /// Insertions that found no room.
    pub(super) not_enough: AtomicU64,
    pub(super) evictor: Mutex<Evictor>,
}

impl<V: Weighted> Lists<V> {
    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard<V>> {
        self.shards[shard].0.lock()
    }

    pub(super) fn shard(&self, key: &Hashed<BlockKey>) -> MutexGuard<'_, Shard<V>> {
        self.lock(key.shard(self.shards.len()))
    }

    pub(super) fn grow_list(&self, class: Class, weight: u64) {
        self.list_sizes.0[class.index()].fetch_add(weight, Ordering::Relaxed);
    }

    pub(super) fn shrink_list(&self, class: Class, weight: u64) {
        self.list_sizes.0[class.index()].fetch_sub(weight, Ordering::Relaxed);
    }

    pub(super) fn list_size(&self, class: Class) -> u64 {
        self.list_sizes.0[class.index()].load(Ordering::Relaxed)
    }

    /// Takes the weight of the ghosts of a class missed since the last call.
    pub(super) fn take_ghost_hits(&self, class: Class) -> u64 {
        self.ghost_hits.0[class.index()].swap(0, Ordering::Relaxed)
    }

    /// Looks up a block and uses it.
    pub(super) fn find(
        &self,
        shard: &mut Shard<V>,
        key: &Hashed<BlockKey>,
        purpose: Purpose,
    ) -> Option<V> {
        match shard.find(key, purpose, || self.clock.now()) {
            Lookup::Hit(value, change) => {
                self.apply(change);
                Some(value)
            }
            Lookup::Ghost(Some((class, weight))) => {
                self.ghost_hits.0[class.index()].fetch_add(weight, Ordering::Relaxed);
                None
            }
            Lookup::Ghost(None) | Lookup::Nothing => None,
        }
    }

    fn apply(&self, change: Change) {
        match change {
            Change::None => {}
            Change::Moved { from, to, weight } => {
                self.shrink_list(from, weight);
                self.grow_list(to, weight);
            }
            // The caller now owns the value.
            Change::Removed { from, weight } => {
                self.shrink_list(from, weight);
                self.release(weight + header_size::<V>());
            }
        }
    }

    /// Releases room.
    pub(super) fn release(&self, bytes: u64) {
        self.size.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes a failed flight.
    pub(super) fn end_flight(&self, key: &Hashed<BlockKey>, flight: &Arc<Flight<V>>) {
        self.shard(key).end_flight(key, flight);
    }

    pub(super) fn stats(&self) -> ArcStats {
        let mut stats = ArcStats::default();
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.add(&shard.stats);
            stats.hash_elements += shard.len() as u64;
        }
        stats.evict_not_enough += self.not_enough.load(Ordering::Relaxed);
        let balance = self.evictor.lock().balance;
        [stats.meta, stats.pd, stats.pm] =
            [balance.meta, balance.pd, balance.pm].map(Share::fraction);
        stats.c = self.max.load(Ordering::Relaxed);
        stats.c_max = stats.c;
        stats.size = self.size.0.load(Ordering::Relaxed);
        stats.hdr_size = stats.hash_elements * header_size::<V>();
        let size = |state, kind| self.list_size(Class { state, kind });
        let sizes = |state| (size(state, BlockKind::Data), size(state, BlockKind::Metadata));
        (stats.mru_data, stats.mru_metadata) = sizes(State::Mru);
        (stats.mfu_data, stats.mfu_metadata) = sizes(State::Mfu);
        (stats.mru_ghost_data, stats.mru_ghost_metadata) = sizes(State::MruGhost);
        (stats.mfu_ghost_data, stats.mfu_ghost_metadata) = sizes(State::MfuGhost);
        (stats.uncached_data, stats.uncached_metadata) = sizes(State::Uncached);
        stats.mru_size = stats.mru_data + stats.mru_metadata;
        stats.mfu_size = stats.mfu_data + stats.mfu_metadata;
        stats.mru_ghost_size = stats.mru_ghost_data + stats.mru_ghost_metadata;
        stats.mfu_ghost_size = stats.mfu_ghost_data + stats.mfu_ghost_metadata;
        stats.uncached_size = stats.uncached_data + stats.uncached_metadata;
        stats.data_size = stats.mru_data + stats.mfu_data + stats.uncached_data;
        stats.metadata_size = stats.mru_metadata + stats.mfu_metadata + stats.uncached_metadata;
        stats
    }
}
