//! A bounded cache of values by object, in shards, shared by the file systems of a pool.
//!
//! All file systems draw on one budget, so that a pool with many of them, or with many open
//! snapshots, needs no more memory than one with few. Each accesses the cache through its own
//! [`ObjectCache`], whose values are removed with it.
//!
//! Each shard keeps its values in a ring; when it needs room a hand goes round, clears the mark of
//! values used since its last visit, and evicts unmarked ones (the clock algorithm). A shard's lock
//! protects its map and ring and is held briefly, never across reads.

use crate::sync::{Arc, Mutex};
use rzfs_format::ObjectId;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;

/// The memory shared by the values of all file systems.
#[derive(Debug)]
pub(crate) struct SharedCache<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    owners: AtomicU64,
}

/// A file system's part of a [`SharedCache`].
#[derive(Debug)]
pub(crate) struct ObjectCache<V> {
    shared: Arc<SharedCache<V>>,
    owner: u64,
}

/// A value's owner and object.
type Key = (u64, ObjectId);

#[derive(Debug)]
struct Shard<V> {
    budget: usize,
    weight: usize,
    entries: HashMap<Key, Entry<V>>,
    /// Objects with the stamp of the entry that added them; stale if the entry is gone or has
    /// another stamp.
    ring: VecDeque<(Key, u64)>,
    stamp: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: bool,
    stamp: u64,
}

impl<V> SharedCache<V> {
    /// A cache for values that together weigh at most `budget` bytes.
    pub(crate) fn new(budget: usize) -> Arc<Self> {
        let shard = || Shard {
            budget: budget / SHARDS,
            weight: 0,
            entries: HashMap::new(),
            ring: VecDeque::new(),
            stamp: 0,
        };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        Arc::new(Self { shards, owners: AtomicU64::new(0) })
    }

    /// The part of a new file system.
    pub(crate) fn part(self: &Arc<Self>) -> ObjectCache<V> {
        let owner = self.owners.fetch_add(1, Ordering::Relaxed);
        ObjectCache { shared: Arc::clone(self), owner }
    }

    #[cfg(test)]
    fn weight(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().weight).sum()
    }
}

impl<V> ObjectCache<V> {
    fn shard(&self, object: ObjectId) -> Option<&Mutex<Shard<V>>> {
        // Neighbours go to different shards, as do objects a power of two apart.
        let mixed = object.0.wrapping_add(self.owner).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.shared.shards.get(mixed as usize % SHARDS)
    }

    /// Stores a value of about `weight` bytes, replacing an older one; one that is larger than a
    /// shard is not stored.
    pub(crate) fn insert(&self, object: ObjectId, value: V, weight: usize) {
        let Some(shard) = self.shard(object) else { return };
        let key = (self.owner, object);
        let mut shard = shard.lock();
        shard.remove(key);
        if weight <= shard.budget {
            shard.make_room(weight);
            shard.insert(key, value, weight);
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&self, object: ObjectId) {
        if let Some(shard) = self.shard(object) {
            shard.lock().remove((self.owner, object));
        }
    }

    /// Removes all objects of this part.
    pub(crate) fn clear(&self) {
        for shard in &self.shared.shards {
            shard.lock().remove_all(self.owner);
        }
    }
}

impl<V: Clone> ObjectCache<V> {
    /// The value of an object.
    pub(crate) fn get(&self, object: ObjectId) -> Option<V> {
        let mut shard = self.shard(object)?.lock();
        let entry = shard.entries.get_mut(&(self.owner, object))?;
        entry.used = true;
        Some(entry.value.clone())
    }
}

impl<V> Drop for ObjectCache<V> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<V> Shard<V> {
    fn insert(&mut self, object: Key, value: V, weight: usize) {
        self.stamp += 1;
        let stamp = self.stamp;
        self.weight += weight;
        self.entries.insert(object, Entry { value, weight, used: false, stamp });
        self.ring.push_back((object, stamp));
        if self.ring.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.ring.retain(|(object, stamp)| {
                entries.get(object).is_some_and(|entry| entry.stamp == *stamp)
            });
        }
    }

    fn remove(&mut self, object: Key) {
        if let Some(entry) = self.entries.remove(&object) {
            self.weight -= entry.weight;
        }
    }

    fn remove_all(&mut self, owner: u64) {
        let weight = &mut self.weight;
        self.entries.retain(|key, entry| {
            let stays = key.0 != owner;
            if !stays {
                *weight -= entry.weight;
            }
            stays
        });
        self.ring.retain(|(key, _)| key.0 != owner);
    }

    fn make_room(&mut self, weight: usize) {
        while self.weight + weight > self.budget {
            let Some((object, stamp)) = self.ring.pop_front() else { return };
            match self.entries.get_mut(&object) {
                Some(entry) if entry.stamp == stamp && entry.used => {
                    entry.used = false;
                    self.ring.push_back((object, stamp));
                }
                Some(entry) if entry.stamp == stamp => self.remove(object),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_used_values_stay_longer() {
        let shared = SharedCache::new(SHARDS * 1000);
        let cache = shared.part();
        let hot = ObjectId(7);
        for object in 0..10_000 {
            cache.insert(ObjectId(object), object, 100);
            cache.get(hot);
            assert!(shared.weight() <= SHARDS * 1000);
        }
        assert_eq!(cache.get(hot), Some(7));
        assert_eq!(cache.get(ObjectId(8)), None);
        assert_eq!(cache.get(ObjectId(9_999)), Some(9_999));
    }

    #[test]
    fn a_replaced_or_removed_value_weighs_nothing() {
        let shared = SharedCache::new(SHARDS * 1000);
        let cache = shared.part();
        for round in 0..1000 {
            cache.insert(ObjectId(1), round, 300);
            cache.remove(ObjectId(2));
            cache.insert(ObjectId(2), round, 300);
        }
        assert_eq!(shared.weight(), 600);
        assert_eq!(cache.get(ObjectId(1)), Some(999));
        cache.clear();
        assert_eq!((shared.weight(), cache.get(ObjectId(1))), (0, None));
    }

    #[test]
    fn what_is_heavier_than_a_shard_is_not_kept() {
        let shared = SharedCache::new(SHARDS * 1000);
        let cache = shared.part();
        cache.insert(ObjectId(1), (), 1);
        cache.insert(ObjectId(1), (), 1001);
        assert_eq!((shared.weight(), cache.get(ObjectId(1))), (0, None));
    }

    #[test]
    fn parts_share_the_budget_and_nothing_else() {
        let shared = SharedCache::new(SHARDS * 1000);
        let (one, other) = (shared.part(), shared.part());
        one.insert(ObjectId(1), "one", 300);
        other.insert(ObjectId(1), "other", 300);
        assert_eq!((one.get(ObjectId(1)), other.get(ObjectId(1))), (Some("one"), Some("other")));
        other.remove(ObjectId(1));
        assert_eq!((one.get(ObjectId(1)), other.get(ObjectId(1))), (Some("one"), None));
        for object in 0..10_000 {
            other.insert(ObjectId(object), "other", 100);
            assert!(shared.weight() <= SHARDS * 1000);
        }
        drop(other);
        drop(one);
        assert_eq!(shared.weight(), 0);
    }
}
