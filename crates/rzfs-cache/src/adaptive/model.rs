//! The cache against a model of the specification that is as plain as possible: vectors instead of
//! lists, searches instead of tables, one lock-free thread instead of shards.

use super::balance::{Balance, PerList, Share};
use super::entry::header_size;
use super::{AdaptiveCache, ArcOptions, ArcStats, Lookup, Purpose, Retention};
use crate::{BlockKey, BlockKind, Weighted};
use proptest::prelude::*;
use rzfs_clock::{Clock, Passing};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Value(u64);

impl Weighted for Value {
    fn weight(&self) -> usize {
        self.0 as usize
    }
}

/// Places in [`Model::lists`]; data and metadata are neighbours.
const MRU: usize = 0;
const MFU: usize = 2;
const MRU_GHOST: usize = 4;
const MFU_GHOST: usize = 6;
const UNCACHED: usize = 8;

#[derive(Clone, Debug)]
struct Known {
    key: u64,
    weight: u64,
    purpose: Purpose,
    used: u64,
    missed: bool,
}

#[derive(Debug)]
struct Model {
    /// Oldest first.
    lists: [Vec<Known>; 10],
    max: u64,
    now: u64,
    balance: Balance,
    limits: PerList,
    hits: [u64; 10],
    stats: ArcStats,
}

const fn kind_offset(kind: BlockKind) -> usize {
    match kind {
        BlockKind::Data => 0,
        BlockKind::Metadata => 1,
    }
}

impl Model {
    fn new(max: u64) -> Self {
        Self {
            lists: Default::default(),
            max,
            now: 0,
            balance: Balance::new(500),
            limits: PerList::default(),
            hits: [0; 10],
            stats: ArcStats::default(),
        }
    }

    fn header() -> u64 {
        header_size::<Value>()
    }

    fn weight(&self, list: usize) -> u64 {
        self.lists[list].iter().map(|known| known.weight).sum()
    }

    fn is_ghost(list: usize) -> bool {
        (MRU_GHOST..UNCACHED).contains(&list)
    }

    fn size(&self) -> u64 {
        let headers = self.lists.iter().map(Vec::len).sum::<usize>() as u64 * Self::header();
        let live = (0..10).filter(|&list| !Self::is_ghost(list));
        headers + live.map(|list| self.weight(list)).sum::<u64>()
    }

    fn place(&self, key: u64) -> Option<(usize, usize)> {
        (0..10).find_map(|list| {
            let at = self.lists[list].iter().position(|known| known.key == key)?;
            Some((list, at))
        })
    }

    /// Whether the block is in memory; uses it.
    fn find(&mut self, key: u64, purpose: Purpose) -> bool {
        let Some((list, at)) = self.place(key) else { return false };
        if Self::is_ghost(list) {
            let known = &mut self.lists[list][at];
            if !std::mem::replace(&mut known.missed, true) {
                self.hits[list] += known.weight;
                if list < MFU_GHOST {
                    self.stats.mru_ghost_hits += 1;
                } else {
                    self.stats.mfu_ghost_hits += 1;
                }
            }
            return false;
        }
        let mut known = self.lists[list].remove(at);
        self.stats.hits += 1;
        let mut to = list;
        match list - list % 2 {
            MRU => {
                self.stats.mru_hits += 1;
                if purpose == Purpose::Demand {
                    if known.purpose != Purpose::Demand {
                        known.used = self.now;
                    } else if self.now - known.used > 62 {
                        known.used = self.now;
                        to = list + MFU;
                    }
                    known.purpose = Purpose::Demand;
                }
            }
            MFU => self.stats.mfu_hits += 1,
            _ => {
                self.stats.uncached_hits += 1;
                if purpose == Purpose::Demand {
                    return true;
                }
            }
        }
        self.lists[to].push(known);
        true
    }

    fn make_room(&mut self, bytes: u64) -> bool {
        if bytes > self.max {
            return false;
        }
        while self.size() + bytes > self.max {
            if self.evict(self.size() + bytes - self.max) == 0 {
                return false;
            }
        }
        true
    }

    fn insert(
        &mut self,
        key: u64,
        kind: BlockKind,
        purpose: Purpose,
        retention: Retention,
        weight: u64,
    ) {
        let weight = weight.max(1);
        if !self.make_room(weight + Self::header()) {
            return;
        }
        if retention == Retention::UseOnce && purpose == Purpose::Demand {
            return;
        }
        let place = self.place(key);
        let mut state = MRU;
        if let Some((list, at)) = place {
            if !Self::is_ghost(list) {
                return;
            }
            let ghost = self.lists[list].remove(at);
            if purpose == Purpose::Demand && ghost.purpose == Purpose::Demand {
                state = MFU;
            }
        }
        if retention == Retention::UseOnce {
            state = UNCACHED;
        }
        let known = Known { key, weight, purpose, used: self.now, missed: false };
        self.lists[state + kind_offset(kind)].push(known);
    }

    fn per_list(&self, data: [u64; 4]) -> PerList {
        let [mru_data, mru_metadata, mfu_data, mfu_metadata] = data;
        PerList { mru_data, mru_metadata, mfu_data, mfu_metadata }
    }

    fn live(&self) -> PerList {
        self.per_list([0, 1, 2, 3].map(|list| self.weight(list)))
    }

    fn evict(&mut self, excess: u64) -> u64 {
        let before = self.size();
        let freed = |model: &Self| before - model.size();
        let hits = self.per_list([4, 5, 6, 7].map(|list| self.hits[list]));
        self.hits = [0; 10];
        self.balance.adapt(&hits, &self.limits.clone());
        for list in [UNCACHED, UNCACHED + 1] {
            while freed(self) < excess && !self.lists[list].is_empty() {
                self.lists[list].remove(0);
            }
        }
        let live = self.live();
        let wanted = live.total().saturating_sub(excess.saturating_sub(freed(self)));
        let metadata = self.balance.meta.of(wanted);
        let mru_metadata = self.balance.pm.of(metadata);
        self.evict_over(MRU + 1, mru_metadata, excess.saturating_sub(freed(self)));
        let mfu_metadata = metadata.saturating_sub(self.weight(MRU + 1));
        self.evict_over(MFU + 1, mfu_metadata, excess.saturating_sub(freed(self)));
        let rest = wanted.saturating_sub(self.live().metadata());
        self.evict_over(MRU, self.balance.pd.of(rest), excess.saturating_sub(freed(self)));
        self.evict_over(MFU, 0, excess.saturating_sub(freed(self)));
        for list in [MRU, MFU, MRU + 1, MFU + 1] {
            self.evict_list(list, excess.saturating_sub(freed(self)), false);
        }
        let live = self.live();
        let limit = |own: u64| (live.total() - own) / 2;
        self.limits = self.per_list([0, 1, 2, 3].map(|list| limit(self.weight(list))));
        for list in [0, 1, 2, 3] {
            let limit = limit(self.weight(list));
            while self.weight(list + MRU_GHOST) > limit {
                self.lists[list + MRU_GHOST].remove(0);
            }
        }
        for list in [4, 5, 6, 7] {
            while freed(self) < excess && !self.lists[list].is_empty() {
                self.lists[list].remove(0);
            }
        }
        freed(self)
    }

    /// Evicts from a list what is more than its share, if young blocks allow, but not more than
    /// has to go.
    fn evict_over(&mut self, list: usize, share: u64, left: u64) {
        self.evict_list(list, self.weight(list).saturating_sub(share).min(left), true);
    }

    /// Evicts the oldest; in rounds of ten, of which the young ones are passed over if `age`
    /// matters, until a round frees nothing.
    fn evict_list(&mut self, list: usize, bytes: u64, age: bool) {
        let mut freed = 0;
        loop {
            let mut at = 0;
            let before = freed;
            for _ in 0..10 {
                if freed >= bytes || at >= self.lists[list].len() {
                    break;
                }
                let known = &self.lists[list][at];
                let min_age = match known.purpose {
                    Purpose::Demand => 0,
                    Purpose::PredictivePrefetch => 1000,
                    Purpose::PrescientPrefetch => 6000,
                };
                if age && self.now - known.used < min_age {
                    self.stats.evict_skip += 1;
                    at += 1;
                    continue;
                }
                let mut known = self.lists[list].remove(at);
                known.missed = false;
                freed += known.weight;
                self.lists[list + MRU_GHOST].push(known);
            }
            if freed == before || freed >= bytes {
                return;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64),
    Insert(u64, u64),
    /// Ask, and complete a miss (or not).
    Read {
        key: u64,
        weight: u64,
        purpose: Purpose,
        retention: Retention,
        succeeds: bool,
    },
    Remove(u64),
    Wait(u64),
    SetMax(u64),
    Clear,
}

/// Keys below 8 are metadata.
const fn kind(key: u64) -> BlockKind {
    if key < 8 { BlockKind::Metadata } else { BlockKind::Data }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..40_u64;
    let weight = prop_oneof![Just(4096_u64), Just(16_384), 0..40_000_u64];
    let purpose = prop_oneof![
        3 => Just(Purpose::Demand),
        1 => Just(Purpose::PredictivePrefetch),
        1 => Just(Purpose::PrescientPrefetch),
    ];
    let retention = prop_oneof![5 => Just(Retention::Cache), 1 => Just(Retention::UseOnce)];
    prop_oneof![
        6 => key.clone().prop_map(Step::Get),
        6 => (key.clone(), weight.clone()).prop_map(|(key, weight)| Step::Insert(key, weight)),
        12 => (key.clone(), weight, purpose, retention, prop::bool::weighted(0.9)).prop_map(
            |(key, weight, purpose, retention, succeeds)| Step::Read {
                key, weight, purpose, retention, succeeds
            }
        ),
        1 => key.prop_map(Step::Remove),
        6 => (0..400_u64).prop_map(Step::Wait),
        1 => (0..300_000_u64).prop_map(Step::SetMax),
        1 => Just(Step::Clear),
    ]
}

fn block(key: u64) -> BlockKey {
    BlockKey { vdev: 0, offset: key << 12, birth: 7 }
}

fn run(steps: Vec<Step>) {
    let (clock, time) = Clock::simulated(Passing::ByHand);
    let max = 200_000;
    let cache = AdaptiveCache::with_options(ArcOptions {
        arc_max: max,
        shards: Some(1),
        clock,
        ..ArcOptions::default()
    });
    let mut model = Model::new(max);
    for step in steps {
        match step {
            Step::Get(key) => {
                assert_eq!(cache.get(&block(key)).is_some(), model.find(key, Purpose::Demand));
            }
            Step::Insert(key, weight) => {
                cache.insert(block(key), kind(key), Value(weight));
                let there = model.place(key).is_some_and(|(list, _)| !Model::is_ghost(list));
                if !there {
                    model.insert(key, kind(key), Purpose::Demand, Retention::Cache, weight);
                }
            }
            Step::Read { key, weight, purpose, retention, succeeds } => {
                let hit = model.find(key, purpose);
                match cache.get_or_begin(block(key), kind(key), purpose) {
                    Lookup::Hit(_) => assert!(hit),
                    Lookup::Pending(_) => panic!("nobody else reads"),
                    Lookup::Miss(ticket) => {
                        assert!(!hit);
                        if succeeds {
                            ticket.complete_with(Value(weight), retention);
                            model.insert(key, kind(key), purpose, retention, weight);
                        }
                    }
                }
            }
            Step::Remove(key) => {
                cache.remove(&block(key));
                if let Some((list, at)) = model.place(key) {
                    model.lists[list].remove(at);
                }
            }
            Step::Wait(millis) => {
                model.now += millis;
                time.advance(Duration::from_millis(millis));
            }
            Step::SetMax(max) => {
                cache.set_max(max);
                model.max = max;
                while model.size() > max && model.evict(model.size() - max) > 0 {}
            }
            Step::Clear => {
                cache.clear();
                model.lists = Default::default();
            }
        }
        compare(&cache, &model);
    }
}

fn compare(cache: &AdaptiveCache<Value>, model: &Model) {
    let stats = cache.stats();
    for key in 0..40 {
        let expected = model.place(key).is_some_and(|(list, _)| !Model::is_ghost(list));
        assert_eq!(cache.contains(&block(key)), expected, "block {key}");
    }
    let sizes = [
        stats.mru_data,
        stats.mru_metadata,
        stats.mfu_data,
        stats.mfu_metadata,
        stats.mru_ghost_data,
        stats.mru_ghost_metadata,
        stats.mfu_ghost_data,
        stats.mfu_ghost_metadata,
        stats.uncached_data,
        stats.uncached_metadata,
    ];
    for (list, size) in sizes.into_iter().enumerate() {
        assert_eq!(size, model.weight(list), "list {list}");
    }
    assert_eq!(stats.size, model.size());
    assert!(stats.size <= model.max, "{} > {}", stats.size, model.max);
    assert_eq!(stats.size, stats.data_size + stats.metadata_size + stats.hdr_size);
    let Balance { meta, pd, pm, .. } = model.balance;
    assert_eq!([stats.meta, stats.pd, stats.pm], [meta, pd, pm].map(Share::fraction));
    let expected = &model.stats;
    assert_eq!(stats.hits, expected.hits);
    assert_eq!((stats.mru_hits, stats.mfu_hits), (expected.mru_hits, expected.mfu_hits));
    assert_eq!(stats.uncached_hits, expected.uncached_hits);
    assert_eq!(
        (stats.mru_ghost_hits, stats.mfu_ghost_hits),
        (expected.mru_ghost_hits, expected.mfu_ghost_hits)
    );
    assert_eq!(stats.evict_skip, expected.evict_skip);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_acts_as_the_specification_says(
        steps in prop::collection::vec(step(), 0..120)
    ) {
        run(steps);
    }
}

/// A block that was not counted with its header had another one evicted.
#[test]
fn blocks_that_leave_no_ghost_free_their_headers() {
    let read = |key, weight, purpose, retention| Step::Read {
        key,
        weight,
        purpose,
        retention,
        succeeds: true,
    };
    let demanded = |key, weight| read(key, weight, Purpose::Demand, Retention::Cache);
    let prefetched_once =
        |key, weight| read(key, weight, Purpose::PredictivePrefetch, Retention::UseOnce);
    run(vec![
        Step::Insert(13, 16384),
        prefetched_once(8, 4096),
        demanded(6, 15621),
        Step::Insert(0, 13927),
        demanded(4, 4096),
        prefetched_once(9, 16384),
        demanded(14, 16384),
        demanded(5, 16384),
        demanded(11, 16384),
        Step::Insert(10, 16384),
        demanded(1, 4096),
        Step::Insert(15, 4096),
        Step::Insert(2, 37446),
        demanded(12, 16384),
        demanded(16, 4096),
    ]);
}
