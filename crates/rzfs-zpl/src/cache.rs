//! A bounded cache of values by object, in shards.
//!
//! Each shard keeps its values in a ring; when it needs room a hand goes round, takes the mark of
//! use from what was used since its last visit, and evicts what had none (the clock algorithm). A
//! shard's lock protects its map and ring and is held for a few instructions, never while anything
//! is read.

use crate::sync::Mutex;
use rzfs_format::ObjectId;
use std::collections::{HashMap, VecDeque};

const SHARDS: usize = 16;

/// A cache whose values together weigh at most what it was made with.
#[derive(Debug)]
pub(crate) struct ObjectCache<V> {
    shards: Box<[Mutex<Shard<V>>]>,
}

#[derive(Debug)]
struct Shard<V> {
    budget: usize,
    weight: usize,
    entries: HashMap<ObjectId, Entry<V>>,
    /// Objects with the stamp of the entry that put them there; those whose entry is gone or has
    /// another stamp mean nothing.
    ring: VecDeque<(ObjectId, u64)>,
    stamp: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: usize,
    used: bool,
    stamp: u64,
}

impl<V: Clone> ObjectCache<V> {
    /// A cache for values that together weigh at most `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let shard = || Shard {
            budget: budget / SHARDS,
            weight: 0,
            entries: HashMap::new(),
            ring: VecDeque::new(),
            stamp: 0,
        };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect() }
    }

    fn shard(&self, object: ObjectId) -> Option<&Mutex<Shard<V>>> {
        // Neighbours go to different shards, and so do objects a power of two apart.
        let mixed = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.shards.get(mixed as usize % SHARDS)
    }

    /// The value of an object.
    pub(crate) fn get(&self, object: ObjectId) -> Option<V> {
        let mut shard = self.shard(object)?.lock();
        let entry = shard.entries.get_mut(&object)?;
        entry.used = true;
        Some(entry.value.clone())
    }

    /// Keeps a value of about `weight` bytes, in the place of an older one; one that is heavier
    /// than a shard is not kept.
    pub(crate) fn insert(&self, object: ObjectId, value: V, weight: usize) {
        let Some(shard) = self.shard(object) else { return };
        let mut shard = shard.lock();
        shard.remove(object);
        if weight <= shard.budget {
            shard.make_room(weight);
            shard.insert(object, value, weight);
        }
    }

    /// Forgets an object.
    pub(crate) fn remove(&self, object: ObjectId) {
        if let Some(shard) = self.shard(object) {
            shard.lock().remove(object);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.entries.clear();
            shard.ring.clear();
            shard.weight = 0;
        }
    }

    #[cfg(test)]
    fn weight(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().weight).sum()
    }
}

impl<V> Shard<V> {
    fn insert(&mut self, object: ObjectId, value: V, weight: usize) {
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

    fn remove(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.remove(&object) {
            self.weight -= entry.weight;
        }
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
        let cache = ObjectCache::new(SHARDS * 1000);
        let hot = ObjectId(7);
        for object in 0..10_000 {
            cache.insert(ObjectId(object), object, 100);
            cache.get(hot);
            assert!(cache.weight() <= SHARDS * 1000);
        }
        assert_eq!(cache.get(hot), Some(7));
        assert_eq!(cache.get(ObjectId(8)), None);
        assert_eq!(cache.get(ObjectId(9_999)), Some(9_999));
    }

    #[test]
    fn a_replaced_or_removed_value_weighs_nothing() {
        let cache = ObjectCache::new(SHARDS * 1000);
        for round in 0..1000 {
            cache.insert(ObjectId(1), round, 300);
            cache.remove(ObjectId(2));
            cache.insert(ObjectId(2), round, 300);
        }
        assert_eq!(cache.weight(), 600);
        assert_eq!(cache.get(ObjectId(1)), Some(999));
        cache.clear();
        assert_eq!((cache.weight(), cache.get(ObjectId(1))), (0, None));
    }

    #[test]
    fn what_is_heavier_than_a_shard_is_not_kept() {
        let cache = ObjectCache::new(SHARDS * 1000);
        cache.insert(ObjectId(1), (), 1);
        cache.insert(ObjectId(1), (), 1001);
        assert_eq!((cache.weight(), cache.get(ObjectId(1))), (0, None));
    }
}
