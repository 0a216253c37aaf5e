//! The block cache: OpenZFS's adaptive replacement cache (spec 03, section 10).
//!
//! # Lists
//! A block that was used once is in the *recently used* list (MRU), one that was used again after a
//! while in the *frequently used* one (MFU); both lists exist for data and for metadata. An evicted
//! block leaves a *ghost*: its key without its content. A miss that finds a ghost shows that the
//! block's list was too small, and shifts the balance between the lists.
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
//! Blocks are distributed over shards by a hash of their keys. A lookup locks one shard. An
//! insertion that has to evict takes the evictor's lock, then that of one shard after the other. No
//! lock is held while a value is dropped, or while a thread waits.

mod admission;
mod balance;
mod entry;
mod evict;
mod evictor;
mod flight;
mod lists;
#[cfg(test)]
mod model;
mod shard;
#[cfg(test)]
mod simulation;
mod stats;
mod ticket;
mod tunables;

pub use entry::{Purpose, Retention};
pub use flight::Arrival;
pub use stats::ArcStats;
pub use ticket::Ticket;
pub use tunables::ArcTunables;

use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Weighted};
use entry::header_size;
use evictor::Evictor;
use lists::{Lists, Padded};
use parking_lot::Mutex;
use rzfs_clock::Clock;
use shard::Shard;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of cache that justify another shard.
const BYTES_PER_SHARD: u64 = 4 << 20;

/// The most shards.
const MAX_SHARDS: usize = 128;

/// A cache of blocks by identity, with bounded memory; clones share the same cache.
#[derive(Clone)]
pub struct AdaptiveCache<V: Weighted> {
    lists: Arc<Lists<V>>,
}

/// The options of a cache.
#[derive(Clone, Debug)]
pub struct ArcOptions {
    /// The most memory to use, in bytes.
    pub arc_max: u64,
    /// The number of shards, rounded up to a power of two; by default one for every 4 MiB, at most
    /// 128.
    pub shards: Option<usize>,
    /// Other tunables.
    pub tunables: ArcTunables,
    /// The time.
    pub clock: Clock,
}

/// The result of [`AdaptiveCache::get_or_begin`].
#[derive(Debug)]
pub enum Lookup<V: Weighted> {
    /// The block.
    Hit(V),
    /// Nothing: the caller must read the block.
    Miss(Ticket<V>),
    /// Another thread is reading the block.
    Pending(Arrival<V>),
}

/// Of no size yet.
impl Default for ArcOptions {
    fn default() -> Self {
        Self { arc_max: 0, shards: None, tunables: ArcTunables::default(), clock: Clock::system() }
    }
}

impl<V: Weighted> AdaptiveCache<V> {
    /// An empty cache that uses at most `arc_max` bytes.
    #[must_use]
    pub fn new(arc_max: u64) -> Self {
        Self::with_options(ArcOptions { arc_max, ..ArcOptions::default() })
    }

    /// An empty cache.
    #[must_use]
    pub fn with_options(options: ArcOptions) -> Self {
        let by_size = usize::try_from(options.arc_max / BYTES_PER_SHARD).unwrap_or(MAX_SHARDS);
        let shards = options.shards.unwrap_or(by_size).clamp(1, MAX_SHARDS).next_power_of_two();
        let lists = Lists {
            shards: (0..shards).map(|_| Padded(Mutex::new(Shard::new(options.tunables)))).collect(),
            clock: options.clock,
            max: AtomicU64::new(options.arc_max),
            size: Padded(AtomicU64::new(0)),
            list_sizes: Padded(Default::default()),
            ghost_hits: Padded(Default::default()),
            not_enough: AtomicU64::new(0),
            evictor: Mutex::new(Evictor::new(options.tunables.meta_balance)),
        };
        Self { lists: Arc::new(lists) }
    }

    /// The block, if it is in memory. Counts as a demand use.
    #[must_use]
    pub fn get(&self, key: &BlockKey) -> Option<V> {
        let key = hashed(*key);
        let mut shard = self.lists.shard(&key);
        let found = self.lists.find(&mut shard, &key, Purpose::Demand);
        if found.is_none() {
            shard.stats.misses += 1;
        }
        found
    }

    /// The block, or the obligation to read it, or a wait for another thread's read.
    ///
    /// Of all threads that ask for a block that is not in memory one gets the [`Ticket`]; the
    /// others wait for it, so the block is read once.
    #[must_use]
    pub fn get_or_begin(&self, key: BlockKey, kind: BlockKind, purpose: Purpose) -> Lookup<V> {
        let key = hashed(key);
        let mut shard = self.lists.shard(&key);
        if let Some(value) = self.lists.find(&mut shard, &key, purpose) {
            return Lookup::Hit(value);
        }
        match shard.join_or_start(key, kind, purpose) {
            Ok(flight) => Lookup::Pending(Arrival::new(flight)),
            Err(flight) => {
                let cache = Arc::clone(&self.lists);
                Lookup::Miss(Ticket::new(cache, key, kind, purpose, flight))
            }
        }
    }

    /// Inserts a block read on demand. An existing one stays: a key stands for one content.
    pub fn insert(&self, key: BlockKey, kind: BlockKind, value: V) {
        let key = hashed(key);
        self.lists.admit(key, kind, value);
    }

    /// Inserts a newly written block, replacing what its key stood for. A read in progress only
    /// completes for its own waiters.
    pub fn replace(&self, key: BlockKey, kind: BlockKind, value: V) {
        let key = hashed(key);
        self.lists.replace(key, kind, value);
    }

    /// Whether the block is in memory; does not count as a use.
    #[must_use]
    pub fn contains(&self, key: &BlockKey) -> bool {
        let key = hashed(*key);
        self.lists.shard(&key).holds(&key)
    }

    /// Removes a freed block and its ghost.
    pub fn remove(&self, key: &BlockKey) {
        let key = hashed(*key);
        let mut shard = self.lists.shard(&key);
        let Some(entry) = shard.remove(&key) else { return };
        self.lists.shrink_list(entry.class, entry.weight);
        drop(shard);
        self.lists.forget(entry);
    }

    /// Removes all blocks and ghosts. Blocks being read still arrive.
    pub fn clear(&self) {
        for shard in &self.lists.shards {
            let mut shard = shard.0.lock();
            let entries = shard.drain();
            for entry in &entries {
                self.lists.shrink_list(entry.class, entry.weight);
            }
            drop(shard);
            let live = entries.iter().filter(|entry| entry.value.is_some());
            let weight: u64 = live.map(|entry| entry.weight).sum();
            let headers = entries.len() as u64 * header_size::<V>();
            drop(entries);
            self.lists.release(weight + headers);
        }
    }

    /// Sets the memory limit, evicting the excess.
    pub fn set_max(&self, arc_max: u64) {
        self.lists.max.store(arc_max, Ordering::Relaxed);
        let mut evictor = self.lists.evictor.lock();
        loop {
            let excess = self.lists.size.0.load(Ordering::Relaxed).saturating_sub(arc_max);
            if excess == 0 || self.lists.evict(&mut evictor, excess) == 0 {
                return;
            }
        }
    }

    /// Counters and sizes. Each number is right, but under concurrent use they may be from slightly
    /// different moments.
    #[must_use]
    pub fn stats(&self) -> ArcStats {
        self.lists.stats()
    }
}

/// A key with its hash.
fn hashed(key: BlockKey) -> Hashed<BlockKey> {
    Hashed::new(key, [u64::from(key.vdev), key.offset, key.birth])
}

impl<V: Weighted> fmt::Debug for AdaptiveCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.lists.size.0.load(Ordering::Relaxed);
        let max = self.lists.max.load(Ordering::Relaxed);
        write!(f, "AdaptiveCache({size} of {max} bytes, {} shards)", self.lists.shards.len())
    }
}
