//! The block cache as seen by its users, and with many threads.

use bytes::Bytes;
use rzfs_cache::{
    AdaptiveCache, ArcOptions, BlockKey, BlockKind, Lookup, Purpose, Retention, Weighted,
};
use rzfs_clock::{Clock, Passing};
use rzfs_kstat::Kstat;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

fn key(number: u64) -> BlockKey {
    BlockKey { vdev: 0, offset: number << 17, birth: 100 }
}

#[test]
fn a_key_is_vdev_offset_and_birth() {
    let cache = AdaptiveCache::new(1 << 20);
    let one = BlockKey { vdev: 1, offset: 2, birth: 3 };
    cache.insert(one, BlockKind::Data, Bytes::from_static(b"one"));
    assert_eq!(cache.get(&one).unwrap(), "one");
    for other in
        [BlockKey { vdev: 2, ..one }, BlockKey { offset: 3, ..one }, BlockKey { birth: 4, ..one }]
    {
        assert_eq!(cache.get(&other), None);
    }
    cache.remove(&one);
    assert_eq!(cache.get(&one), None);
    assert_eq!(cache.stats().size, 0);
}

#[test]
fn the_second_use_after_a_while_makes_a_block_frequent() {
    let (clock, time) = Clock::simulated(Passing::ByHand);
    let cache = AdaptiveCache::with_options(ArcOptions {
        arc_max: 1 << 20,
        clock,
        ..ArcOptions::default()
    });
    cache.insert(key(1), BlockKind::Data, Bytes::from_static(b"data"));
    cache.get(&key(1)).unwrap();
    assert_eq!((cache.stats().mru_data, cache.stats().mfu_data), (4, 0));
    time.advance(Duration::from_millis(63));
    cache.get(&key(1)).unwrap();
    assert_eq!((cache.stats().mru_data, cache.stats().mfu_data), (0, 4));
}

#[test]
fn a_scan_does_not_wash_out_what_is_used_often() {
    let (clock, time) = Clock::simulated(Passing::ByHand);
    let cache = AdaptiveCache::with_options(ArcOptions {
        arc_max: 4 << 20,
        clock,
        ..ArcOptions::default()
    });
    let block = || Bytes::from(vec![0; 64 << 10]);
    for _ in 0..3 {
        time.advance(Duration::from_millis(100));
        for number in 0..16 {
            if cache.get(&key(number)).is_none() {
                cache.insert(key(number), BlockKind::Data, block());
            }
        }
    }
    for number in 1000..2000 {
        assert!(cache.get(&key(number)).is_none());
        cache.insert(key(number), BlockKind::Data, block());
    }
    assert!((0..16).all(|number| cache.contains(&key(number))));
}

#[test]
fn a_block_larger_than_the_cache_stays_out() {
    let cache = AdaptiveCache::new(10_000);
    cache.insert(key(1), BlockKind::Data, Bytes::from(vec![0; 1000]));
    cache.insert(key(2), BlockKind::Data, Bytes::from(vec![0; 10_000]));
    assert!(cache.contains(&key(1)));
    assert!(!cache.contains(&key(2)));
    assert_eq!(cache.stats().evict_not_enough, 1);
}

#[test]
fn a_cache_of_nothing_holds_nothing() {
    let cache = AdaptiveCache::new(0);
    cache.insert(key(1), BlockKind::Data, Bytes::new());
    assert_eq!(cache.get(&key(1)), None);
    assert_eq!(cache.stats().size, 0);
}

#[test]
fn reads_that_must_not_stay_do_not_stay() {
    let cache = AdaptiveCache::new(1 << 20);
    let begin = |purpose| match cache.get_or_begin(key(1), BlockKind::Data, purpose) {
        Lookup::Miss(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    begin(Purpose::Demand).complete_with(Bytes::from_static(b"x"), Retention::UseOnce);
    assert!(!cache.contains(&key(1)));
    begin(Purpose::PredictivePrefetch).complete_with(Bytes::from_static(b"x"), Retention::UseOnce);
    assert!(cache.contains(&key(1)));
    assert_eq!(cache.get(&key(1)).unwrap(), "x");
    assert!(!cache.contains(&key(1)));
    assert_eq!(cache.stats().size, 0);
    assert_eq!(cache.stats().uncached_hits, 1);
}

#[test]
fn counters_have_the_names_of_arcstats() {
    let cache = AdaptiveCache::new(1 << 20);
    for purpose in [Purpose::PrescientPrefetch, Purpose::Demand, Purpose::Demand] {
        if let Lookup::Miss(ticket) = cache.get_or_begin(key(1), BlockKind::Metadata, purpose) {
            ticket.complete(Bytes::from_static(b"meta"));
        }
    }
    let stats: std::collections::HashMap<_, _> = cache.stats().named().collect();
    for (name, expected) in [
        ("hits", 2),
        ("misses", 1),
        ("prefetch_metadata_misses", 1),
        ("demand_metadata_hits", 2),
        ("mru_hits", 2),
        ("prescient_prefetch", 1),
        ("demand_hit_prescient_prefetch", 1),
        ("metadata_size", 4),
        ("data_size", 0),
        ("c_max", 1 << 20),
        ("hash_elements", 1),
        ("meta", 1 << 30),
    ] {
        assert_eq!(stats[name], expected, "{name}");
    }
}

#[test]
fn who_waits_for_a_read_that_fails_may_try_again() {
    let cache = AdaptiveCache::<Bytes>::new(1 << 20);
    let Lookup::Miss(ticket) = cache.get_or_begin(key(1), BlockKind::Data, Purpose::Demand) else {
        panic!("the cache is empty");
    };
    let Lookup::Pending(arrival) = cache.get_or_begin(key(1), BlockKind::Data, Purpose::Demand)
    else {
        panic!("the block is on its way");
    };
    let waiter = thread::spawn(move || arrival.wait());
    drop(ticket);
    assert_eq!(waiter.join().unwrap(), None);
    let again = cache.get_or_begin(key(1), BlockKind::Data, Purpose::Demand);
    assert!(matches!(again, Lookup::Miss(_)));
}

#[test]
fn a_prefetch_that_somebody_joins_is_a_demand() {
    let (clock, time) = Clock::simulated(Passing::ByHand);
    let cache = AdaptiveCache::with_options(ArcOptions {
        arc_max: 1 << 20,
        clock,
        ..ArcOptions::default()
    });
    let Lookup::Miss(ticket) =
        cache.get_or_begin(key(1), BlockKind::Data, Purpose::PredictivePrefetch)
    else {
        panic!("the cache is empty");
    };
    let joined = cache.get_or_begin(key(1), BlockKind::Data, Purpose::Demand);
    ticket.complete(Bytes::from_static(b"x"));
    let Lookup::Pending(arrival) = joined else { panic!("the block was on its way") };
    assert_eq!(arrival.wait().unwrap(), "x");
    assert_eq!(cache.stats().demand_iohit_predictive_prefetch, 1);
    // So the next use is the second.
    time.advance(Duration::from_millis(100));
    cache.get(&key(1)).unwrap();
    assert_eq!(cache.stats().mfu_data, 1);
}

#[test]
fn what_a_key_stood_for_before_it_was_written_anew_is_not_found_any_more() {
    let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"new"));
    let cache = AdaptiveCache::new(1 << 20);
    let begin = || cache.get_or_begin(key(1), BlockKind::Metadata, Purpose::Demand);
    let Lookup::Miss(ticket) = begin() else { panic!("the cache is empty") };
    let Lookup::Pending(joined) = begin() else { panic!("the block is on its way") };
    cache.replace(key(1), BlockKind::Metadata, new.clone());
    assert!(matches!(begin(), Lookup::Hit(found) if found == new));
    // Not even when there was no room for the new one for long.
    cache.remove(&key(1));
    let Lookup::Miss(later) = begin() else { panic!("nobody reads the new one") };
    ticket.complete(old.clone());
    assert_eq!(joined.wait(), Some(old), "that was what they wanted");
    assert_eq!(cache.get(&key(1)), None);
    let Lookup::Pending(joined) = begin() else { panic!("somebody reads the new one") };
    later.complete(new.clone());
    assert_eq!((joined.wait(), cache.get(&key(1))), (Some(new.clone()), Some(new.clone())));
    // One that is there makes way.
    let newest = Bytes::from_static(b"newest");
    cache.replace(key(1), BlockKind::Metadata, newest.clone());
    assert_eq!(cache.get(&key(1)), Some(newest));
    cache.remove(&key(1));
    assert_eq!(cache.stats().size, 0);
}

/// A value that is counted while it lives.
#[derive(Clone)]
struct Counted(Arc<Weight>);

struct Weight {
    bytes: usize,
    alive: Arc<AtomicI64>,
}

impl Counted {
    fn new(bytes: usize, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(bytes as i64, Ordering::SeqCst);
        Self(Arc::new(Weight { bytes, alive: Arc::clone(alive) }))
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes as i64, Ordering::SeqCst);
    }
}

impl Weighted for Counted {
    fn weight(&self) -> usize {
        self.0.bytes
    }
}

/// A cheap sequence of numbers, different for each thread.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn the_budget_holds_at_every_moment_with_many_threads() {
    const THREADS: u64 = 8;
    const MAX: u64 = 1 << 20;
    const LARGEST: u64 = 20_000;
    let alive = Arc::new(AtomicI64::new(0));
    let cache = AdaptiveCache::with_options(ArcOptions {
        arc_max: MAX,
        shards: Some(8),
        ..ArcOptions::default()
    });
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (cache, alive) = (&cache, &alive);
                scope.spawn(move || {
                    let mut random = numbers(thread + 1);
                    for _ in 0..20_000 {
                        let number = random(400);
                        let kind = if number.is_multiple_of(3) {
                            BlockKind::Metadata
                        } else {
                            BlockKind::Data
                        };
                        if random(50) == 0 {
                            cache.remove(&key(number));
                        } else if cache.get(&key(number)).is_none() {
                            // What is empty counts as a byte.
                            let value = Counted::new(1 + random(LARGEST) as usize, alive);
                            cache.insert(key(number), kind, value);
                        }
                        assert!(cache.stats().size <= MAX);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(cache.stats().size <= MAX);
                // Each thread may hold one value that is not, or no longer, in the cache.
                let most = (MAX + THREADS * LARGEST) as i64;
                assert!(alive.load(Ordering::SeqCst) <= most);
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let stats = cache.stats();
    assert_eq!(stats.size, stats.data_size + stats.metadata_size + stats.hdr_size);
    assert_eq!(alive.load(Ordering::SeqCst) as u64, stats.data_size + stats.metadata_size);
    assert!(stats.hits > 0 && stats.deleted > 0 && stats.mru_ghost_hits > 0);
    cache.set_max(100_000);
    assert!(cache.stats().size <= 100_000);
    cache.clear();
    assert_eq!(cache.stats().size, 0);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn one_thread_reads_and_the_others_wait() {
    const THREADS: usize = 8;
    const KEYS: u64 = 200;
    let cache = AdaptiveCache::new(64 << 20);
    let reads: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for number in 0..KEYS {
                    let value =
                        match cache.get_or_begin(key(number), BlockKind::Data, Purpose::Demand) {
                            Lookup::Hit(value) => value,
                            Lookup::Pending(arrival) => arrival.wait().unwrap(),
                            Lookup::Miss(ticket) => {
                                reads[number as usize].fetch_add(1, Ordering::Relaxed);
                                thread::yield_now();
                                let value = Bytes::from(vec![number as u8; 100]);
                                ticket.complete(value.clone());
                                value
                            }
                        };
                    assert_eq!(value, vec![number as u8; 100]);
                }
            });
        }
    });
    assert!(reads.iter().all(|reads| reads.load(Ordering::Relaxed) == 1));
    let stats = cache.stats();
    assert_eq!(stats.misses, KEYS);
    assert_eq!(stats.hits + stats.iohits, KEYS * (THREADS as u64 - 1));
}

#[test]
fn reads_of_one_block_never_overlap_whatever_fails_or_is_evicted() {
    const THREADS: u64 = 8;
    let cache = AdaptiveCache::new(20_000);
    let reading: Vec<AtomicBool> = (0..20).map(|_| AtomicBool::new(false)).collect();
    let delivered = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, reading, delivered) = (&cache, &reading, &delivered);
            scope.spawn(move || {
                let mut random = numbers(thread + 77);
                let mut wanted = 0;
                while wanted < 3000 {
                    let number = random(20);
                    match cache.get_or_begin(key(number), BlockKind::Data, Purpose::Demand) {
                        Lookup::Hit(_) => wanted += 1,
                        Lookup::Pending(arrival) => wanted += u64::from(arrival.wait().is_some()),
                        Lookup::Miss(ticket) => {
                            let busy = &reading[number as usize];
                            assert!(!busy.swap(true, Ordering::SeqCst), "two read at once");
                            let fails = random(4) == 0;
                            thread::yield_now();
                            busy.store(false, Ordering::SeqCst);
                            if fails {
                                drop(ticket);
                            } else {
                                ticket.complete(Bytes::from(vec![0; 3000]));
                                wanted += 1;
                            }
                        }
                    }
                }
                delivered.fetch_add(wanted, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(delivered.load(Ordering::Relaxed), THREADS * 3000);
    assert!(cache.stats().size <= 20_000);
}
