//! The cache of positions against a plain model, and under many threads.

use bytes::Bytes;
use proptest::prelude::*;
use rzfs_cache::{PositionCache, PositionOptions, Stay};
use rzfs_format::units::{BlockId, Bookmark, Level, ObjectId, ObjsetId};
use std::collections::HashMap;
use std::thread;

fn position(objset: u64, object: u64, level: i8, block: u64) -> Bookmark {
    Bookmark {
        objset: ObjsetId(objset),
        object: ObjectId(object),
        level: Level(level),
        block: BlockId(block),
    }
}

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![len as u8; len])
}

/// A cache with these limits for its parts.
fn cache(lru: u64, metadata: u64, shards: usize) -> PositionCache<Bytes> {
    PositionCache::with_options(&PositionOptions {
        dbuf_cache_max_bytes: lru,
        dbuf_metadata_cache_max_bytes: metadata,
        shards: Some(shards),
        ..PositionOptions::new(1 << 40)
    })
}

#[test]
fn the_limits_follow_from_the_block_cache_as_in_openzfs() {
    // Observed on a machine with arc_c = 61817088.
    let stats = PositionCache::<Bytes>::new(61_817_088).stats();
    assert_eq!(stats.cache_target_bytes, 1_931_784);
    assert_eq!(stats.cache_lowater_bytes, 1_738_606);
    assert_eq!(stats.cache_hiwater_bytes, 2_124_962);
}

#[test]
fn every_part_of_a_position_counts() {
    let cache = cache(1 << 20, 1 << 20, 4);
    let all = [
        position(1, 1, 0, 0),
        position(2, 1, 0, 0),
        position(1, 2, 0, 0),
        position(1, 1, 1, 0),
        position(1, 1, 0, 1),
        position(1, 1, -1, 0),
    ];
    for (number, place) in (1..).zip(all) {
        cache.insert(place, Stay::WhileUsed, bytes(number));
    }
    for (number, place) in (1..).zip(all) {
        assert_eq!(cache.get(&place).unwrap(), bytes(number));
    }
    let stats = cache.stats();
    assert_eq!((stats.cache_count, stats.cache_level[0], stats.cache_level[1]), (6, 5, 1));
    assert_eq!((stats.hash_hits, stats.hash_misses), (6, 0));
}

#[test]
fn the_metadata_part_keeps_what_it_has_and_overflows_into_the_other() {
    let cache = cache(4096, 2048, 1);
    for block in 0..6 {
        cache.insert(position(0, 1, 0, block), Stay::WhileOpen, bytes(1024));
    }
    for block in 0..100 {
        cache.insert(position(5, 1, 0, block), Stay::WhileUsed, bytes(1024));
    }
    let found: Vec<bool> =
        (0..6).map(|block| cache.get(&position(0, 1, 0, block)).is_some()).collect();
    assert_eq!(found, [true, true, false, false, false, false]);
    let stats = cache.stats();
    assert_eq!((stats.metadata_cache_count, stats.metadata_cache_overflow), (2, 4));
    assert_eq!((stats.cache_count, stats.cache_total_evicts), (4, 100));
}

#[test]
fn objects_and_objsets_are_forgotten_as_a_whole() {
    let cache = cache(1 << 20, 1 << 20, 8);
    for objset in 0..3 {
        for object in 0..3 {
            for block in 0..10 {
                let stay = if block % 2 == 0 { Stay::WhileUsed } else { Stay::WhileOpen };
                cache.insert(position(objset, object, 0, block), stay, bytes(600));
            }
        }
    }
    cache.remove_objset(ObjsetId(1));
    cache.remove_object(ObjsetId(2), ObjectId(0));
    for objset in 0..3 {
        for object in 0..3 {
            let kept = objset == 0 || (objset == 2 && object != 0);
            for block in 0..10 {
                let found = cache.get(&position(objset, object, 0, block));
                assert_eq!(found.is_some(), kept);
            }
        }
    }
    assert_eq!(cache.stats().hash_elements, 50);
    assert_eq!(cache.stats().cache_size_bytes, 25 * 600);
    assert_eq!(cache.stats().metadata_cache_size_bytes, 25 * 600);
    cache.clear();
    assert_eq!(cache.stats().hash_elements, 0);
    assert_eq!(cache.stats().cache_size_bytes + cache.stats().metadata_cache_size_bytes, 0);
}

#[test]
fn statistics_have_the_names_of_dbufstats() {
    let stats: Vec<_> = cache(1, 1, 1).stats().iter().map(|(name, _)| name).collect();
    assert_eq!(stats.len(), 7 + 24 + 9);
    for name in ["cache_count", "cache_level_0", "cache_level_11_bytes", "metadata_cache_overflow"]
    {
        assert!(stats.contains(&name), "{name}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64),
    Insert(u64, usize, bool),
    Remove(u64),
    RemoveObjset(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..30_u64).prop_map(Step::Get),
        8 => (0..30_u64, 0..3000_usize, any::<bool>())
            .prop_map(|(number, len, stays)| Step::Insert(number, len, stays)),
        2 => (0..30_u64).prop_map(Step::Remove),
        1 => (0..3_u64).prop_map(Step::RemoveObjset),
    ]
}

/// Number, bytes charged and whether it stays, the least recently used first.
type Model = Vec<(u64, u64, bool)>;

fn used(model: &Model, stays: bool) -> u64 {
    model.iter().filter(|entry| entry.2 == stays).map(|entry| entry.1).sum()
}

fn model_insert(model: &mut Model, number: u64, charge: u64, mut stays: bool) {
    stays &= used(model, true) + charge <= 5000;
    if !stays {
        while used(model, false) + charge > 10_000 {
            let oldest = model.iter().position(|entry| !entry.2).unwrap();
            model.remove(oldest);
        }
    }
    model.retain(|entry| entry.0 != number);
    model.push((number, charge, stays));
}

proptest! {
    #[test]
    fn it_acts_as_a_plain_model(steps in prop::collection::vec(step(), 0..150)) {
        let cache = cache(10_000, 5000, 1);
        let place = |number: u64| position(number % 3, 7, 0, number);
        let mut model = Model::new();
        let mut contents = HashMap::new();
        for step in steps {
            match step {
                Step::Get(number) => {
                    let found = cache.get(&place(number));
                    let at = model.iter().position(|entry| entry.0 == number);
                    prop_assert_eq!(found, at.map(|_| bytes(contents[&number])));
                    if let Some(at) = at {
                        let entry = model.remove(at);
                        model.push(entry);
                    }
                }
                Step::Insert(number, len, stays) => {
                    let stay = if stays { Stay::WhileOpen } else { Stay::WhileUsed };
                    cache.insert(place(number), stay, bytes(len));
                    contents.insert(number, len);
                    model_insert(&mut model, number, (len as u64).max(512), stays);
                }
                Step::Remove(number) => {
                    cache.remove(&place(number));
                    model.retain(|entry| entry.0 != number);
                }
                Step::RemoveObjset(objset) => {
                    cache.remove_objset(ObjsetId(objset));
                    model.retain(|entry| entry.0 % 3 != objset);
                }
            }
            let stats = cache.stats();
            prop_assert_eq!(stats.cache_size_bytes, used(&model, false));
            prop_assert_eq!(stats.metadata_cache_size_bytes, used(&model, true));
            prop_assert_eq!(stats.hash_elements, model.len() as u64);
            prop_assert!(stats.cache_size_bytes <= 10_000);
            prop_assert!(stats.metadata_cache_size_bytes <= 5000);
        }
    }
}

#[test]
fn the_limits_hold_at_every_moment_with_many_threads() {
    let cache = cache(50_000, 20_000, 8);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..10_000_u64 {
                    let number = (round * 7 + thread * 31) % 300;
                    let place = position(number % 5, 1, 0, number);
                    if round % 500 == 0 {
                        cache.remove_objset(ObjsetId(thread % 5));
                    } else if cache.get(&place).is_none() {
                        let stay = if number.is_multiple_of(4) {
                            Stay::WhileOpen
                        } else {
                            Stay::WhileUsed
                        };
                        cache.insert(place, stay, bytes((number as usize * 13) % 4000));
                    }
                    let stats = cache.stats();
                    assert!(stats.cache_size_bytes <= 50_000);
                    assert!(stats.metadata_cache_size_bytes <= 20_000);
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.cache_level_bytes[0], stats.cache_size_bytes);
    assert!(stats.cache_size_bytes_max <= 50_000 && stats.cache_total_evicts > 0);
    cache.clear();
    assert_eq!(cache.stats().cache_size_bytes, 0);
}
