//! A part of the cache under one lock: the table of its blocks, and their lists.

use super::entry::{CLASSES, Class, Entry, Purpose, Retention, State, header_size};
use super::flight::Flight;
use super::stats::ArcStats;
use super::tunables::ArcTunables;
use crate::hashed::{Hashed, Prehashed};
use crate::slab::{List, Slab};
use crate::{BlockKey, BlockKind, Weighted};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// `ARC_MINTIME`: uses closer together than this count as one.
const MIN_TIME: Duration = Duration::from_millis(62);

pub(super) struct Shard<V> {
    table: HashMap<Hashed<BlockKey>, u32, Prehashed>,
    entries: Slab<Entry<V>>,
    lists: [List; CLASSES],
    flights: HashMap<Hashed<BlockKey>, Pending<V>, Prehashed>,
    tunables: ArcTunables,
    /// Only event counters are kept here.
    pub(super) stats: ArcStats,
}

/// A flight that others can join.
struct Pending<V> {
    flight: Arc<Flight<V>>,
    /// The current purpose of the read.
    purpose: Purpose,
}

/// The result of a lookup.
pub(super) enum Lookup<V> {
    /// The block, and the change of list sizes.
    Hit(V, Change),
    /// The block is gone; its ghost's class and weight, on the first miss.
    Ghost(Option<(Class, u64)>),
    /// Nothing is known.
    Nothing,
}

/// The change of list sizes by a use.
#[derive(Clone, Copy)]
pub(super) enum Change {
    None,
    /// A block of this weight went from one class to the other.
    Moved {
        from: Class,
        to: Class,
        weight: u64,
    },
    /// A block of this weight went from this class out of the cache.
    Removed {
        from: Class,
        weight: u64,
    },
}

/// A block to insert.
pub(super) struct Arriving<V> {
    pub(super) key: Hashed<BlockKey>,
    pub(super) kind: BlockKind,
    pub(super) purpose: Purpose,
    pub(super) retention: Retention,
    pub(super) value: V,
    pub(super) weight: u64,
    pub(super) now: Duration,
}

impl<V> Arriving<V> {
    /// The memory that it needs.
    pub(super) const fn charge(&self) -> u64 {
        self.weight.saturating_add(header_size::<V>())
    }
}

/// How a block was put into the cache.
pub(super) enum Inserted<V> {
    /// It is new.
    New(Class),
    /// It comes back; its header was there, with the ghost.
    Returned { ghost: Class, ghost_weight: u64, to: Class },
    /// It is there already.
    Refused(V),
}

impl<V: Weighted> Shard<V> {
    pub(super) fn new(tunables: ArcTunables) -> Self {
        Self {
            table: HashMap::default(),
            entries: Slab::new(),
            lists: [List::EMPTY; CLASSES],
            flights: HashMap::default(),
            tunables,
            stats: ArcStats::default(),
        }
    }

    /// Looks up a block and uses it.
    pub(super) fn find(
        &mut self,
        key: &Hashed<BlockKey>,
        purpose: Purpose,
        now: impl FnOnce() -> Duration,
    ) -> Lookup<V> {
        let Some(&index) = self.table.get(key) else { return Lookup::Nothing };
        let Some(entry) = self.entries.get_mut(index) else { return Lookup::Nothing };
        let Some(value) = entry.value.clone() else {
            if std::mem::replace(&mut entry.missed, true) {
                return Lookup::Ghost(None);
            }
            let (class, weight) = (entry.class, entry.weight);
            match class.state {
                State::MfuGhost => self.stats.mfu_ghost_hits += 1,
                _ => self.stats.mru_ghost_hits += 1,
            }
            return Lookup::Ghost(Some((class, weight)));
        };
        self.stats.count_hit(entry.class, entry.purpose, purpose);
        Lookup::Hit(value, self.touch(index, purpose, now))
    }

    /// Records the use of a block in memory.
    fn touch(&mut self, index: u32, purpose: Purpose, now: impl FnOnce() -> Duration) -> Change {
        let Some(entry) = self.entries.get_mut(index) else { return Change::None };
        let from = entry.class;
        let mut to = from;
        match (from.state, purpose) {
            (State::Uncached, Purpose::Demand) => {
                let weight = entry.weight;
                self.entries.unlink(&mut self.lists[from.index()], index);
                if let Some(entry) = self.entries.remove(index) {
                    self.table.remove(&entry.key);
                }
                return Change::Removed { from, weight };
            }
            (State::Mru, Purpose::Demand) => {
                let now = now();
                if entry.purpose != Purpose::Demand {
                    // The first use after a prefetch is the first use.
                    entry.used = now;
                } else if now.saturating_sub(entry.used) > MIN_TIME {
                    entry.used = now;
                    to.state = State::Mfu;
                }
                entry.purpose = Purpose::Demand;
            }
            _ => {}
        }
        if from == to {
            self.entries.renew(&mut self.lists[from.index()], index);
            return Change::None;
        }
        entry.class = to;
        let weight = entry.weight;
        self.entries.unlink(&mut self.lists[from.index()], index);
        self.entries.push_front(&mut self.lists[to.index()], index);
        Change::Moved { from, to, weight }
    }

    /// Joins a flight to a block, or starts one.
    pub(super) fn join_or_start(
        &mut self,
        key: Hashed<BlockKey>,
        kind: BlockKind,
        purpose: Purpose,
    ) -> Result<Arc<Flight<V>>, Arc<Flight<V>>> {
        if let Some(pending) = self.flights.get_mut(&key) {
            self.stats.count_iohit(kind, pending.purpose, purpose);
            pending.purpose = pending.purpose.min(purpose);
            return Ok(Arc::clone(&pending.flight));
        }
        self.stats.count_miss(kind, purpose);
        let flight = Flight::new();
        self.flights.insert(key, Pending { flight: Arc::clone(&flight), purpose });
        Err(flight)
    }

    /// Removes a flight if it is this one; returns the current purpose of its block. `None` if the
    /// key no longer stands for the block it brings.
    pub(super) fn end_flight(
        &mut self,
        key: &Hashed<BlockKey>,
        flight: &Arc<Flight<V>>,
    ) -> Option<Purpose> {
        let purpose = self.flights.get(key).filter(|it| Arc::ptr_eq(&it.flight, flight))?.purpose;
        self.flights.remove(key);
        Some(purpose)
    }

    /// Closes a flight to new callers, as the key no longer stands for its block.
    pub(super) fn close_flight(&mut self, key: &Hashed<BlockKey>) {
        self.flights.remove(key);
    }

    /// Whether the block is in memory.
    pub(super) fn holds(&self, key: &Hashed<BlockKey>) -> bool {
        let entry = self.table.get(key).and_then(|&index| self.entries.get(index));
        entry.is_some_and(|entry| entry.value.is_some())
    }

    /// Puts a block into the cache.
    pub(super) fn insert(&mut self, arriving: Arriving<V>) -> Inserted<V> {
        let Arriving { key, kind, purpose, retention, value, weight, now } = arriving;
        let known = self.table.get(&key).copied();
        let ghost = known.and_then(|index| Some((index, self.entries.get(index)?)));
        let state = match (retention, ghost) {
            (_, Some((_, entry))) if entry.value.is_some() => return Inserted::Refused(value),
            (Retention::UseOnce, _) => State::Uncached,
            (Retention::Cache, Some((_, entry)))
                if purpose.max(entry.purpose) == Purpose::Demand =>
            {
                State::Mfu
            }
            (Retention::Cache, _) => State::Mru,
        };
        let to = Class { state, kind };
        let ghost = ghost.map(|(index, entry)| (index, entry.class, entry.weight));
        let entry =
            Entry { key, class: to, value: Some(value), weight, purpose, used: now, missed: false };
        if let Some((index, class, ghost_weight)) = ghost {
            self.entries.unlink(&mut self.lists[class.index()], index);
            self.entries.push_front(&mut self.lists[to.index()], index);
            if let Some(place) = self.entries.get_mut(index) {
                *place = entry;
            }
            return Inserted::Returned { ghost: class, ghost_weight, to };
        }
        let index = self.entries.insert(entry);
        self.entries.push_front(&mut self.lists[to.index()], index);
        self.table.insert(key, index);
        Inserted::New(to)
    }

    /// Takes a block, or its ghost, out.
    pub(super) fn remove(&mut self, key: &Hashed<BlockKey>) -> Option<Entry<V>> {
        let index = *self.table.get(key)?;
        let class = self.entries.get(index)?.class;
        self.stats.deleted += 1;
        self.take_out(index, class)
    }

    fn take_out(&mut self, index: u32, class: Class) -> Option<Entry<V>> {
        self.entries.unlink(&mut self.lists[class.index()], index);
        let entry = self.entries.remove(index)?;
        self.table.remove(&entry.key);
        Some(entry)
    }

    /// Takes the values of the oldest blocks of a class that are old enough (with `now`; without,
    /// all are) until `bytes` are free or the batch is done, and turns the blocks into ghosts.
    /// Gives the values to `taken` with their weights.
    pub(super) fn evict(
        &mut self,
        class: Class,
        bytes: u64,
        now: Option<Duration>,
        taken: &mut Vec<(V, u64)>,
    ) {
        let Some(next) = class.after_eviction() else {
            return self.evict_to_nothing(class, bytes, taken);
        };
        let mut freed = 0;
        let mut oldest = self.lists[class.index()].back();
        for _ in 0..self.tunables.evict_batch_limit {
            let Some(index) = oldest.filter(|_| freed < bytes) else { return };
            oldest = self.entries.newer(index);
            let Some(entry) = self.entries.get_mut(index) else { return };
            let min_age = self.tunables.min_age(entry.purpose);
            if now.is_some_and(|now| now.saturating_sub(entry.used) < min_age) {
                self.stats.evict_skip += 1;
                continue;
            }
            freed += entry.weight;
            entry.class = next;
            entry.missed = false;
            taken.extend(entry.value.take().map(|value| (value, entry.weight)));
            self.stats.deleted += 1;
            self.entries.unlink(&mut self.lists[class.index()], index);
            self.entries.push_front(&mut self.lists[next.index()], index);
        }
    }

    /// Takes the oldest blocks of a class, which leave no ghosts, so that their headers are free
    /// too.
    fn evict_to_nothing(&mut self, class: Class, bytes: u64, taken: &mut Vec<(V, u64)>) {
        let mut freed = 0;
        for _ in 0..self.tunables.evict_batch_limit {
            let oldest = self.lists[class.index()].back().filter(|_| freed < bytes);
            let Some(entry) = oldest.and_then(|index| self.take_out(index, class)) else { return };
            freed += entry.weight + header_size::<V>();
            self.stats.deleted += 1;
            taken.extend(entry.value.map(|value| (value, entry.weight)));
        }
    }

    /// Forgets the oldest ghosts of a class until `weight` bytes or `count` of them are gone or the
    /// batch is done; gives the number of ghosts and their weight.
    pub(super) fn forget(&mut self, class: Class, weight: u64, count: u64) -> (u64, u64) {
        let (mut gone, mut gone_weight) = (0, 0);
        for _ in 0..self.tunables.evict_batch_limit {
            let enough = gone_weight >= weight || gone >= count;
            let oldest = self.lists[class.index()].back().filter(|_| !enough);
            let Some(entry) = oldest.and_then(|index| self.take_out(index, class)) else { break };
            gone += 1;
            gone_weight += entry.weight;
        }
        (gone, gone_weight)
    }

    /// Empties the shard; gives every entry.
    pub(super) fn drain(&mut self) -> Vec<Entry<V>> {
        self.table.clear();
        self.lists = [List::EMPTY; CLASSES];
        std::mem::replace(&mut self.entries, Slab::new()).into_values().collect()
    }

    /// Entries, ghosts included.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
