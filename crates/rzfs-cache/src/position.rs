//! The cache of blocks by position: what OpenZFS calls the dbuf cache (spec 03, sections 9.4 and
//! 9.5).
//!
//! The block cache knows blocks by identity, which a reader learns only by walking the tree of
//! block pointers to them. This one answers with the block at a position at once. It has two
//! parts, and a block is in at most one:
//!
//! * the *LRU part*, whose least recently used blocks go when it is full;
//! * the *metadata part*, for the many small blocks that every listing of datasets and properties
//!   touches once: an LRU would evict exactly what the next listing needs, so they stay until
//!   their objset or block goes. When it is full, further candidates use the LRU part.
//!
//! # Memory
//! Each part counts the weight of its blocks, at least 512 bytes for each, and never exceeds its
//! limit, at no moment and with any number of threads: room is reserved before a block enters, and
//! made by evicting first. If no room can be made, the block is not kept.
//!
//! # Concurrency
//! Blocks are spread over shards by a hash of their positions. A lookup takes the lock of one
//! shard; an insertion that has to evict, one after the other.

mod stats;

pub use stats::DbufStats;

use crate::Weighted;
use crate::hashed::{Hashed, Hashless};
use crate::slab::{List, Slab};
use parking_lot::{Mutex, MutexGuard};
use rzfs_format::units::{Bookmark, ObjectId, ObjsetId};
use stats::{Events, LEVELS};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The least that a block counts, in bytes: the smallest block of the format.
const MIN_CHARGE: u64 = 512;

/// Bytes of the LRU part for which another shard pays.
const BYTES_PER_SHARD: u64 = 1 << 20;

/// The most shards.
const MAX_SHARDS: usize = 64;

/// The sizes of a [`PositionCache`], with OpenZFS's names.
#[derive(Clone, Debug)]
pub struct PositionOptions {
    /// The target size of the block cache, in bytes, from which both limits follow.
    pub arc_c: u64,
    /// The most bytes of the LRU part.
    pub dbuf_cache_max_bytes: u64,
    /// The LRU part may have this power of two's part of `arc_c`.
    pub dbuf_cache_shift: u32,
    /// The most bytes of the metadata part.
    pub dbuf_metadata_cache_max_bytes: u64,
    /// The metadata part may have this power of two's part of `arc_c`.
    pub dbuf_metadata_cache_shift: u32,
    /// The number of shards, rounded up to a power of two; by default one for every MiB of the LRU
    /// part, at most 64.
    pub shards: Option<usize>,
}

impl PositionOptions {
    /// OpenZFS's defaults for a block cache of this size: 1/32 and 1/64 of it.
    #[must_use]
    pub const fn new(arc_c: u64) -> Self {
        Self {
            arc_c,
            dbuf_cache_max_bytes: u64::MAX,
            dbuf_cache_shift: 5,
            dbuf_metadata_cache_max_bytes: u64::MAX,
            dbuf_metadata_cache_shift: 6,
            shards: None,
        }
    }

    fn lru_limit(&self) -> u64 {
        self.arc_c.checked_shr(self.dbuf_cache_shift).unwrap_or(0).min(self.dbuf_cache_max_bytes)
    }

    fn metadata_limit(&self) -> u64 {
        let part = self.arc_c.checked_shr(self.dbuf_metadata_cache_shift).unwrap_or(0);
        part.min(self.dbuf_metadata_cache_max_bytes)
    }
}

/// How long a block stays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stay {
    /// As long as it is used.
    WhileUsed,
    /// As long as its objset is open: blocks of object types for the dbuf metadata cache.
    WhileOpen,
}

/// A cache of blocks by position; clones are the same cache.
#[derive(Clone)]
pub struct PositionCache<V: Weighted> {
    inner: Arc<Inner<V>>,
}

struct Inner<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    lru: Part,
    metadata: Part,
    metadata_overflow: AtomicU64,
    /// The shard whose turn it is to evict.
    turn: AtomicUsize,
}

/// One part's budget.
struct Part {
    limit: u64,
    size: AtomicU64,
    most: AtomicU64,
}

struct Shard<V> {
    table: HashMap<Hashed<Bookmark>, u32, Hashless>,
    entries: Slab<Entry<V>>,
    lru: List,
    events: Events,
}

struct Entry<V> {
    key: Hashed<Bookmark>,
    value: V,
    charge: u64,
    stay: Stay,
}

impl Part {
    const fn new(limit: u64) -> Self {
        Self { limit, size: AtomicU64::new(0), most: AtomicU64::new(0) }
    }

    /// Takes room if there is enough.
    fn try_reserve(&self, bytes: u64) -> bool {
        let reserved = self.size.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| {
            size.checked_add(bytes).filter(|&size| size <= self.limit)
        });
        if let Ok(before) = reserved {
            self.most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    fn release(&self, bytes: u64) {
        self.size.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<V: Weighted> PositionCache<V> {
    /// An empty cache for a block cache of this target size, in bytes.
    #[must_use]
    pub fn new(arc_c: u64) -> Self {
        Self::with_options(&PositionOptions::new(arc_c))
    }

    /// An empty cache.
    #[must_use]
    pub fn with_options(options: &PositionOptions) -> Self {
        let limit = options.lru_limit();
        let by_size = usize::try_from(limit / BYTES_PER_SHARD).unwrap_or(MAX_SHARDS);
        let shards = options.shards.unwrap_or(by_size).clamp(1, MAX_SHARDS).next_power_of_two();
        let inner = Inner {
            shards: (0..shards).map(|_| Mutex::new(Shard::new())).collect(),
            lru: Part::new(limit),
            metadata: Part::new(options.metadata_limit()),
            metadata_overflow: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The block at a position; counts as a use.
    #[must_use]
    pub fn get(&self, position: &Bookmark) -> Option<V> {
        let key = hashed(*position);
        self.inner.shard(&key).find(&key)
    }

    /// Puts a block at a position, in the place of any other.
    pub fn insert(&self, position: Bookmark, stay: Stay, value: V) {
        let key = hashed(position);
        let charge = (value.weight() as u64).max(MIN_CHARGE);
        let Some(stay) = self.inner.reserve(charge, stay) else {
            // What is there is old.
            return self.remove(&position);
        };
        let replaced = self.inner.shard(&key).insert(Entry { key, value, charge, stay });
        self.inner.give_back(replaced);
    }

    /// Forgets the block at a position.
    pub fn remove(&self, position: &Bookmark) {
        let key = hashed(*position);
        let removed = self.inner.shard(&key).remove(&key);
        self.inner.give_back(removed);
    }

    /// Forgets all blocks of an objset.
    pub fn remove_objset(&self, objset: ObjsetId) {
        self.inner.remove_where(|position| position.objset == objset);
    }

    /// Forgets all blocks of an object.
    pub fn remove_object(&self, objset: ObjsetId, object: ObjectId) {
        self.inner.remove_where(|position| position.objset == objset && position.object == object);
    }

    /// Forgets all blocks.
    pub fn clear(&self) {
        self.inner.remove_where(|_| true);
    }

    /// Counters and sizes. Each number is right, but while others use the cache they may be of
    /// slightly different moments.
    #[must_use]
    pub fn stats(&self) -> DbufStats {
        let inner = &*self.inner;
        let mut events = Events::default();
        let mut elements = 0;
        for shard in &inner.shards {
            let shard = shard.lock();
            events.add(&shard.events);
            elements += shard.table.len() as u64;
        }
        DbufStats {
            cache_count: events.level_count.iter().sum(),
            cache_size_bytes: inner.lru.size.load(Ordering::Relaxed),
            cache_size_bytes_max: inner.lru.most.load(Ordering::Relaxed),
            cache_target_bytes: inner.lru.limit,
            cache_lowater_bytes: inner.lru.limit - inner.lru.limit / 10,
            cache_hiwater_bytes: inner.lru.limit.saturating_add(inner.lru.limit / 10),
            cache_total_evicts: events.evicts,
            cache_level: events.level_count,
            cache_level_bytes: events.level_bytes,
            hash_hits: events.hits,
            hash_misses: events.misses,
            hash_elements: elements,
            hash_insert_race: events.replaced,
            hash_mutex_count: inner.shards.len() as u64,
            metadata_cache_count: events.metadata_count,
            metadata_cache_size_bytes: inner.metadata.size.load(Ordering::Relaxed),
            metadata_cache_size_bytes_max: inner.metadata.most.load(Ordering::Relaxed),
            metadata_cache_overflow: inner.metadata_overflow.load(Ordering::Relaxed),
        }
    }
}

/// A position with its hash.
fn hashed(position: Bookmark) -> Hashed<Bookmark> {
    let level = u64::from(position.level.0.cast_unsigned());
    let words = [position.objset.get(), position.object.get(), level, position.block.get()];
    Hashed::new(position, words)
}

impl<V: Weighted> Inner<V> {
    fn shard(&self, key: &Hashed<Bookmark>) -> MutexGuard<'_, Shard<V>> {
        self.shards[key.shard(self.shards.len())].lock()
    }

    /// Reserves room in the part that is asked for, or else in the LRU part; none if there is no
    /// room to be made.
    fn reserve(&self, charge: u64, stay: Stay) -> Option<Stay> {
        if stay == Stay::WhileOpen {
            if self.metadata.try_reserve(charge) {
                return Some(Stay::WhileOpen);
            }
            self.metadata_overflow.fetch_add(1, Ordering::Relaxed);
        }
        if charge > self.lru.limit {
            return None;
        }
        while !self.lru.try_reserve(charge) {
            if !self.evict_one() {
                return None;
            }
        }
        Some(Stay::WhileUsed)
    }

    /// Evicts the least recently used block of the next shard that has one.
    fn evict_one(&self) -> bool {
        for _ in 0..self.shards.len() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let evicted = self.shards[turn].lock().evict();
            if evicted.is_some() {
                self.give_back(evicted);
                return true;
            }
        }
        false
    }

    /// Drops a block that has left the cache, then gives back its room.
    fn give_back(&self, entry: Option<Entry<V>>) {
        let Some(Entry { value, charge, stay, .. }) = entry else { return };
        drop(value);
        match stay {
            Stay::WhileUsed => self.lru.release(charge),
            Stay::WhileOpen => self.metadata.release(charge),
        }
    }

    fn remove_where(&self, condition: impl Fn(&Bookmark) -> bool) {
        for shard in &self.shards {
            let removed = shard.lock().remove_where(&condition);
            for entry in removed {
                self.give_back(Some(entry));
            }
        }
    }
}

impl<V: Weighted> Shard<V> {
    fn new() -> Self {
        Self {
            table: HashMap::default(),
            entries: Slab::new(),
            lru: List::EMPTY,
            events: Events::default(),
        }
    }

    fn find(&mut self, key: &Hashed<Bookmark>) -> Option<V> {
        let Some(&index) = self.table.get(key) else {
            self.events.misses += 1;
            return None;
        };
        let entry = self.entries.get(index)?;
        let value = entry.value.clone();
        if entry.stay == Stay::WhileUsed {
            self.entries.renew(&mut self.lru, index);
        }
        self.events.hits += 1;
        Some(value)
    }

    /// Puts a block in; gives the one that it replaces.
    fn insert(&mut self, entry: Entry<V>) -> Option<Entry<V>> {
        let key = entry.key;
        let stay = entry.stay;
        let replaced = self.remove(&key);
        self.events.replaced += u64::from(replaced.is_some());
        self.events.entered(&entry.key.key, entry.charge, stay);
        let index = self.entries.insert(entry);
        if stay == Stay::WhileUsed {
            self.entries.push_front(&mut self.lru, index);
        }
        self.table.insert(key, index);
        replaced
    }

    fn remove(&mut self, key: &Hashed<Bookmark>) -> Option<Entry<V>> {
        let index = self.table.remove(key)?;
        self.take_out(index)
    }

    fn evict(&mut self) -> Option<Entry<V>> {
        let index = self.lru.back()?;
        let entry = self.take_out(index)?;
        self.table.remove(&entry.key);
        self.events.evicts += 1;
        Some(entry)
    }

    fn remove_where(&mut self, condition: impl Fn(&Bookmark) -> bool) -> Vec<Entry<V>> {
        let doomed: Vec<u32> =
            self.table.extract_if(|key, _| condition(&key.key)).map(|(_, index)| index).collect();
        doomed.into_iter().filter_map(|index| self.take_out(index)).collect()
    }

    /// Takes an entry that is not, or will not be, in the table out of all else.
    fn take_out(&mut self, index: u32) -> Option<Entry<V>> {
        if self.entries.get(index)?.stay == Stay::WhileUsed {
            self.entries.unlink(&mut self.lru, index);
        }
        let entry = self.entries.remove(index)?;
        self.events.left(&entry.key.key, entry.charge, entry.stay);
        Some(entry)
    }
}

impl<V: Weighted> fmt::Debug for PositionCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { lru, metadata, .. } = &*self.inner;
        let [used, stays] = [lru, metadata].map(|part| part.size.load(Ordering::Relaxed));
        write!(f, "PositionCache({used} of {}, {stays} of {} bytes)", lru.limit, metadata.limit)
    }
}

/// The level's place in the statistics; the last stands for all that have none.
fn level_place(position: &Bookmark) -> usize {
    usize::try_from(position.level.0).unwrap_or(0).min(LEVELS - 1)
}
