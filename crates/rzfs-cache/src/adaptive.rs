//! The block cache: OpenZFS's adaptive replacement cache (spec 03, section 10).
//!
//! # Lists
//! A block that was used once is in the *recently used* list (MRU), one that was used again after
//! a while in the *frequently used* one (MFU); both lists exist for data and for metadata. A block
//! that is evicted leaves a *ghost*: its key without its content. A miss that finds a ghost says
//! that the list from which the block came was too small, and shifts the balance between the
//! lists.
//!
//! ```text
//!            first use            second use
//!   nothing -----------> MRU -----------------> MFU <---.
//!                         | evicted              |      | read again
//!                         v                      v      |
//!                     MRU ghost              MFU ghost -'
//!                         `---- read again ----> MFU
//! ```
//!
//! # Memory
//! [`ArcStats::size`] counts the weight of every cached value, a header for every block and every
//! ghost, and the room that is reserved for blocks on their way into a list. It never exceeds
//! `arc_max`, at no moment and with any number of threads: room is reserved with a
//! compare-and-swap before a block enters, and made by evicting first; what is evicted is dropped
//! before its bytes are given away. If no room can be made, the block is not kept. Headers count
//! double, as the tables that hold them grow by doubling. Not counted are values that callers
//! still hold after their eviction, and that tables do not shrink.
//!
//! # Concurrency
//! Blocks are spread over shards by a hash of their keys. A lookup takes the lock of one shard. An
//! insertion that has to evict takes the evictor's lock, then that of one shard after the other.
//! No lock is held while a value is dropped, or while somebody waits.

mod balance;
mod entry;
mod evict;
mod flight;
#[cfg(test)]
mod model;
mod shard;
#[cfg(test)]
mod simulation;
mod stats;

pub use entry::{Purpose, Retention};
pub use flight::{Arrival, Ticket};
pub use stats::ArcStats;

use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Clock, Weighted};
use balance::Share;
use entry::{CLASSES, Class, State, header_size};
use evict::Evictor;
use flight::Flight;
use parking_lot::{Mutex, MutexGuard};
use shard::{Arriving, Change, Found, Inserted, Shard};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of cache for which another shard pays.
const BYTES_PER_SHARD: u64 = 4 << 20;

/// The most shards.
const MAX_SHARDS: usize = 128;

/// A cache of blocks by identity, bounded by the memory that it needs; clones are the same cache.
#[derive(Clone)]
pub struct AdaptiveCache<V: Weighted> {
    inner: Arc<Inner<V>>,
}

/// What a cache is made with.
#[derive(Clone, Debug)]
pub struct ArcOptions {
    /// The most memory to use, in bytes.
    pub arc_max: u64,
    /// The number of shards, rounded up to a power of two; by default one for every 4 MiB, at most
    /// 128.
    pub shards: Option<usize>,
    /// The time.
    pub clock: Clock,
}

/// What [`AdaptiveCache::get_or_begin`] has found.
#[derive(Debug)]
pub enum Lookup<V: Weighted> {
    /// The block.
    Hit(V),
    /// Nothing: the caller is the one to read the block.
    Miss(Ticket<V>),
    /// Somebody else is reading the block.
    Pending(Arrival<V>),
}

/// Keeps what different threads write from sharing a cache line.
#[repr(align(128))]
struct Padded<T>(T);

struct Inner<V: Weighted> {
    shards: Box<[Padded<Mutex<Shard<V>>>]>,
    clock: Clock,
    max: AtomicU64,
    /// All memory accounted for: see the module.
    size: Padded<AtomicU64>,
    /// Weights by class; changed only under the lock of the shard that the block is in.
    list_sizes: Padded<[AtomicU64; CLASSES]>,
    /// Weights of ghosts that were missed since the last eviction, by class.
    ghost_hits: Padded<[AtomicU64; CLASSES]>,
    /// Insertions that found no room.
    not_enough: AtomicU64,
    evictor: Mutex<Evictor>,
}

impl<V: Weighted> AdaptiveCache<V> {
    /// An empty cache that uses at most `arc_max` bytes.
    #[must_use]
    pub fn new(arc_max: u64) -> Self {
        Self::with_options(ArcOptions { arc_max, shards: None, clock: Clock::system() })
    }

    /// An empty cache.
    #[must_use]
    pub fn with_options(options: ArcOptions) -> Self {
        let by_size = usize::try_from(options.arc_max / BYTES_PER_SHARD).unwrap_or(MAX_SHARDS);
        let shards = options.shards.unwrap_or(by_size).clamp(1, MAX_SHARDS).next_power_of_two();
        let inner = Inner {
            shards: (0..shards).map(|_| Padded(Mutex::new(Shard::new()))).collect(),
            clock: options.clock,
            max: AtomicU64::new(options.arc_max),
            size: Padded(AtomicU64::new(0)),
            list_sizes: Padded(Default::default()),
            ghost_hits: Padded(Default::default()),
            not_enough: AtomicU64::new(0),
            evictor: Mutex::new(Evictor::new()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The block, if it is in memory. Counts as a use on demand.
    #[must_use]
    pub fn get(&self, key: &BlockKey) -> Option<V> {
        let key = hashed(*key);
        let mut shard = self.inner.shard(&key);
        let found = self.inner.find(&mut shard, &key, Purpose::Demand);
        if found.is_none() {
            shard.stats.misses += 1;
        }
        found
    }

    /// The block, or the obligation to read it, or somebody else's promise.
    ///
    /// Of all threads that ask for a block that is not in memory one gets the [`Ticket`]; the
    /// others wait for it, so the block is read once.
    #[must_use]
    pub fn get_or_begin(&self, key: BlockKey, kind: BlockKind, purpose: Purpose) -> Lookup<V> {
        let key = hashed(key);
        let mut shard = self.inner.shard(&key);
        if let Some(value) = self.inner.find(&mut shard, &key, purpose) {
            return Lookup::Hit(value);
        }
        match shard.join_or_start(key, kind, purpose) {
            Ok(flight) => Lookup::Pending(Arrival::new(flight)),
            Err(flight) => {
                let cache = Arc::clone(&self.inner);
                Lookup::Miss(Ticket::new(cache, key, kind, purpose, flight))
            }
        }
    }

    /// Puts a block into the cache, as read on demand. One that is there already stays: a key
    /// stands for one content.
    pub fn insert(&self, key: BlockKey, kind: BlockKind, value: V) {
        let key = hashed(key);
        self.inner.admit(key, kind, value);
    }

    /// Whether the block is in memory; does not count as a use.
    #[must_use]
    pub fn contains(&self, key: &BlockKey) -> bool {
        let key = hashed(*key);
        self.inner.shard(&key).holds(&key)
    }

    /// Forgets a block and its ghost: it was freed.
    pub fn remove(&self, key: &BlockKey) {
        let key = hashed(*key);
        let mut shard = self.inner.shard(&key);
        let Some(entry) = shard.remove(&key) else { return };
        self.inner.shrink_list(entry.class, entry.weight);
        drop(shard);
        let held = if entry.value.is_some() { entry.weight } else { 0 };
        drop(entry);
        self.inner.release(held + header_size::<V>());
    }

    /// Forgets all blocks and ghosts. Blocks that are being read still arrive.
    pub fn clear(&self) {
        for shard in &self.inner.shards {
            let mut shard = shard.0.lock();
            let entries = shard.drain();
            for entry in &entries {
                self.inner.shrink_list(entry.class, entry.weight);
            }
            drop(shard);
            let live = entries.iter().filter(|entry| entry.value.is_some());
            let weight: u64 = live.map(|entry| entry.weight).sum();
            let headers = entries.len() as u64 * header_size::<V>();
            drop(entries);
            self.inner.release(weight + headers);
        }
    }

    /// Changes the most memory to use, evicting what is too much now.
    pub fn set_max(&self, arc_max: u64) {
        self.inner.max.store(arc_max, Ordering::Relaxed);
        let mut evictor = self.inner.evictor.lock();
        loop {
            let excess = self.inner.size.0.load(Ordering::Relaxed).saturating_sub(arc_max);
            if excess == 0 || self.inner.evict(&mut evictor, excess) == 0 {
                return;
            }
        }
    }

    /// Counters and sizes. Each number is right, but while others use the cache they may be of
    /// slightly different moments.
    #[must_use]
    pub fn stats(&self) -> ArcStats {
        self.inner.stats()
    }
}

/// A key with its hash.
fn hashed(key: BlockKey) -> Hashed<BlockKey> {
    Hashed::new(key, [u64::from(key.vdev), key.offset, key.birth])
}

impl<V: Weighted> Inner<V> {
    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard<V>> {
        self.shards[shard].0.lock()
    }

    fn shard(&self, key: &Hashed<BlockKey>) -> MutexGuard<'_, Shard<V>> {
        self.lock(key.shard(self.shards.len()))
    }

    fn grow_list(&self, class: Class, weight: u64) {
        self.list_sizes.0[class.index()].fetch_add(weight, Ordering::Relaxed);
    }

    fn shrink_list(&self, class: Class, weight: u64) {
        self.list_sizes.0[class.index()].fetch_sub(weight, Ordering::Relaxed);
    }

    fn list_size(&self, class: Class) -> u64 {
        self.list_sizes.0[class.index()].load(Ordering::Relaxed)
    }

    /// Takes the weight of the ghosts of a class that were missed since the last time.
    fn take_ghost_hits(&self, class: Class) -> u64 {
        self.ghost_hits.0[class.index()].swap(0, Ordering::Relaxed)
    }

    /// Looks for a block and uses it.
    fn find(&self, shard: &mut Shard<V>, key: &Hashed<BlockKey>, purpose: Purpose) -> Option<V> {
        match shard.find(key, purpose, || self.clock.now()) {
            Found::Hit(value, change) => {
                self.apply(change);
                Some(value)
            }
            Found::Ghost(Some((class, weight))) => {
                self.ghost_hits.0[class.index()].fetch_add(weight, Ordering::Relaxed);
                None
            }
            Found::Ghost(None) | Found::Nothing => None,
        }
    }

    fn apply(&self, change: Change) {
        match change {
            Change::None => {}
            Change::Moved { from, to, weight } => {
                self.shrink_list(from, weight);
                self.grow_list(to, weight);
            }
            // The caller has the value now: it is no longer the cache's.
            Change::Removed { from, weight } => {
                self.shrink_list(from, weight);
                self.release(weight + header_size::<V>());
            }
        }
    }

    /// Reserves room, evicting for it; says whether there is.
    fn reserve(&self, bytes: u64) -> bool {
        loop {
            let max = self.max.load(Ordering::Relaxed);
            let taken = self.size.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| {
                size.checked_add(bytes).filter(|&size| size <= max)
            });
            if taken.is_ok() {
                return true;
            }
            if bytes > max {
                return false;
            }
            let mut evictor = self.evictor.lock();
            let size = self.size.0.load(Ordering::Relaxed);
            let excess = size.saturating_add(bytes).saturating_sub(max);
            if excess > 0 && self.evict(&mut evictor, excess) == 0 {
                return false;
            }
        }
    }

    /// Gives back room.
    fn release(&self, bytes: u64) {
        self.size.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Puts a block into the cache, if there is room to be had.
    fn admit(&self, key: Hashed<BlockKey>, kind: BlockKind, value: V) {
        if self.shard(&key).holds(&key) {
            return;
        }
        let arriving = self.arriving(key, kind, Purpose::Demand, Retention::Cache, value);
        let charge = arriving.charge();
        if !self.reserve(charge) {
            self.not_enough.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut shard = self.shard(&key);
        let (surplus, refused) = self.place(&mut shard, arriving);
        drop(shard);
        drop(refused);
        self.release(surplus);
    }

    /// Puts a block that was read into the cache, if it may stay and there is room to be had, and
    /// ends its flight, both in one step.
    fn land(
        &self,
        key: Hashed<BlockKey>,
        kind: BlockKind,
        purpose: Purpose,
        retention: Retention,
        value: V,
    ) {
        let mut arriving = self.arriving(key, kind, purpose, retention, value);
        let charge = arriving.charge();
        let reserved = self.reserve(charge);
        let mut shard = self.shard(&key);
        // Somebody may have joined who does not merely prefetch.
        arriving.purpose = shard.end_flight(&key).unwrap_or(purpose);
        let stays = retention == Retention::Cache || arriving.purpose != Purpose::Demand;
        let (surplus, refused) = match (reserved, stays) {
            (true, true) => self.place(&mut shard, arriving),
            (true, false) => (charge, Some(arriving.value)),
            (false, _) => (0, Some(arriving.value)),
        };
        drop(shard);
        drop(refused);
        self.release(surplus);
        if stays && !reserved {
            self.not_enough.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn arriving(
        &self,
        key: Hashed<BlockKey>,
        kind: BlockKind,
        purpose: Purpose,
        retention: Retention,
        value: V,
    ) -> Arriving<V> {
        let weight = value.weight().max(1) as u64;
        Arriving { key, kind, purpose, retention, value, weight, now: self.clock.now() }
    }

    /// Puts a block for which room is reserved into a shard; gives what of the room is not needed,
    /// and the block if it is not either.
    fn place(&self, shard: &mut Shard<V>, arriving: Arriving<V>) -> (u64, Option<V>) {
        let (weight, charge) = (arriving.weight, arriving.charge());
        match shard.insert(arriving) {
            Inserted::New(class) => {
                self.grow_list(class, weight);
                (0, None)
            }
            Inserted::Returned { ghost, ghost_weight, to } => {
                self.shrink_list(ghost, ghost_weight);
                self.grow_list(to, weight);
                (header_size::<V>(), None)
            }
            Inserted::Refused(value) => (charge, Some(value)),
        }
    }

    /// Forgets a flight that came to nothing.
    fn end_flight(&self, key: &Hashed<BlockKey>, flight: &Arc<Flight<V>>) {
        self.shard(key).end_this_flight(key, flight);
    }

    fn stats(&self) -> ArcStats {
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

impl<V: Weighted> fmt::Debug for AdaptiveCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.inner.size.0.load(Ordering::Relaxed);
        let max = self.inner.max.load(Ordering::Relaxed);
        write!(f, "AdaptiveCache({size} of {max} bytes, {} shards)", self.inner.shards.len())
    }
}
