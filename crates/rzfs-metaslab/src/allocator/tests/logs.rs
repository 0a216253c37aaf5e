//! Log space maps over many txgs, and maps that are condensed.

use super::*;
use crate::log::book::LogLimits;

/// Pseudorandom numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const METASLABS: u64 = 48;

fn pool(tunables: SpaceTunables, features: SpaceFeatures) -> World {
    World::create(&[vdev(0, METASLABS, 20, 12)], tunables, features)
}

/// A pool with blocks in all of its metaslabs, sorted by place.
fn filled(tunables: SpaceTunables, features: SpaceFeatures) -> (World, Vec<Dva>) {
    let mut world = pool(tunables, features);
    let mut blocks: Vec<Dva> =
        (0..METASLABS * 120).flat_map(|_| world.allocate(0x2000, 1).unwrap()).collect();
    blocks.sort_by_key(|dva| dva.offset());
    world.sync(&[]);
    (world, blocks)
}

/// A txg in which `count` random blocks die and as many are born.
fn churn(world: &mut World, blocks: &mut Vec<Dva>, numbers: &mut Numbers, count: u64) {
    let dying: Vec<Dva> = (0..count)
        .map(|_| blocks.swap_remove(numbers.below(blocks.len() as u64) as usize))
        .collect();
    for _ in 0..count {
        blocks.extend(world.allocate(0x2000, 1).unwrap());
    }
    world.sync(&dying);
}

fn limits(txg_max: u64, block_min: u64) -> SpaceTunables {
    let logs = LogLimits { txg_max, block_min, block_percent: 1, ..LogLimits::default() };
    SpaceTunables { logs, ..SpaceTunables::default() }
}

#[test]
fn logs_stay_within_their_limits_and_are_all_needed() {
    for (txg_max, block_min) in [(30, 1000), (1000, 20), (10, 10)] {
        let tunables = limits(txg_max, block_min);
        let (mut world, mut blocks) = filled(tunables, SpaceFeatures::NEW_POOL);
        let mut numbers = Numbers(1);
        let mut most = LogStatus::default();
        for _ in 0..200 {
            churn(&mut world, &mut blocks, &mut numbers, 12);
            let status = world.allocator.log_status();
            most.logs = most.logs.max(status.logs);
            most.blocks = most.blocks.max(status.blocks);
            let pool = world.store.lock().open(&[vdev(0, METASLABS, 20, 12).geometry]).unwrap();
            let logs = world.store.lock().logs();
            let metaslabs = pool.vdev(VdevId(0)).unwrap().metaslabs();
            let oldest = metaslabs.iter().map(|metaslab| metaslab.unflushed_txg());
            let oldest = oldest.filter(|txg| *txg != Txg(0)).min();
            assert_eq!(logs.first().map(|log| log.txg), oldest);
            assert_eq!(status.logs, logs.len() as u64);
        }
        // A log of this pool is one block.
        let limit = txg_max.min(block_min);
        assert!(most.logs <= limit + 1, "{most:?} of {limit}");
        assert!(most.logs > limit / 2, "{most:?} of {limit}: flushed too eagerly");
        check_metaslabs(&world);
    }
}

#[test]
fn logs_save_most_of_what_own_maps_would_take() {
    let without = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    let blocks_written = |features| {
        let (mut world, blocks) = filled(limits(100, 100), features);
        // Full metaslabs would be condensed whenever they change.
        let (dying, mut blocks): (Vec<Dva>, Vec<Dva>) =
            blocks.iter().partition(|dva| dva.offset() / 0x2000 % 2 == 0);
        world.sync(&dying);
        let mut numbers = Numbers(7);
        for _ in 0..120 {
            churn(&mut world, &mut blocks, &mut numbers, 40);
        }
        world.store.lock().take_activity();
        for _ in 0..40 {
            churn(&mut world, &mut blocks, &mut numbers, 40);
        }
        world.store.lock().take_activity().blocks
    };
    let (with, without) = (blocks_written(SpaceFeatures::NEW_POOL), blocks_written(without));
    assert!(with * 5 < without, "{with} against {without}");
}

#[test]
fn memory_of_unflushed_changes_is_limited() {
    let tunables = SpaceTunables { unflushed_max_mem_amt: 2000, ..limits(1000, 1000) };
    let (mut world, mut blocks) = filled(tunables, SpaceFeatures::NEW_POOL);
    let mut numbers = Numbers(3);
    for _ in 0..60 {
        churn(&mut world, &mut blocks, &mut numbers, 30);
        let memory = world.allocator.log_status().unflushed_memory;
        // What is below the limit when a txg begins, and a segment for each change of the txg.
        assert!(memory <= 2000 + 60 * 8, "{memory}");
    }
    let recount: u64 = world.allocator.topology().vdevs[&VdevId(0)]
        .metaslabs
        .iter()
        .map(|metaslab| metaslab.state.lock().unflushed_memory())
        .sum();
    assert_eq!(recount, world.allocator.log_status().unflushed_memory);
}

#[test]
fn an_export_leaves_the_log_of_its_own_txg_only() {
    let (mut world, mut blocks) = filled(limits(1000, 1000), SpaceFeatures::NEW_POOL);
    let mut numbers = Numbers(5);
    (0..20).for_each(|_| churn(&mut world, &mut blocks, &mut numbers, 30));
    assert!(world.store.lock().logs().len() > 15);
    world.allocator.flush_for_export();
    let txg = world.txg;
    world.sync(&[]);
    let logs = world.store.lock().logs();
    assert_eq!(logs.iter().map(|log| log.txg).collect::<Vec<_>>(), [txg]);
    assert_eq!(world.allocator.log_status().unflushed_memory, 0);
    world.store.lock().take_activity();
    for _ in 0..4 {
        let pass = world.allocator.begin_sync(world.txg).unwrap();
        let pass = pass.sync(&mut world.store, Activity::Idle).unwrap();
        pass.finish().unwrap().committed().unwrap();
        world.txg = world.txg.next();
    }
    assert_eq!(world.store.lock().take_activity(), Default::default(), "idle txgs write nothing");
    let tunables = SpaceTunables { keep_log_spacemaps_at_export: true, ..limits(1000, 1000) };
    let (mut world, mut blocks) = filled(tunables, SpaceFeatures::NEW_POOL);
    (0..9).for_each(|_| churn(&mut world, &mut blocks, &mut numbers, 30));
    world.allocator.flush_for_export();
    world.sync(&[]);
    assert!(world.store.lock().logs().len() > 8);
}

#[test]
fn metaslabs_join_when_the_feature_is_enabled() {
    let (mut world, mut blocks) = filled(limits(20, 20), SpaceFeatures::NONE);
    let mut numbers = Numbers(11);
    churn(&mut world, &mut blocks, &mut numbers, 20);
    assert_eq!(world.store.lock().feature_count(CountedFeature::SpaceMapHistogram), 0);
    world.allocator.set_features(SpaceFeatures::NEW_POOL);
    world.sync(&[]);
    assert_eq!(world.allocator.features().logs, LogFeature::Enabled, "nothing was logged");
    for _ in 0..60 {
        churn(&mut world, &mut blocks, &mut numbers, 10);
        let on_disk = stored(&world.store.snapshot(), &world.devices);
        let held: u64 = on_disk.iter().map(|((_, start), end)| end - start).sum();
        assert_eq!(held, blocks.len() as u64 * 0x2000);
    }
    assert_eq!(world.allocator.features().logs, LogFeature::Active);
    assert_eq!(world.store.lock().feature_count(CountedFeature::LogSpaceMap), 1);
    // Loaded metaslabs with old maps got new ones.
    assert!(world.store.lock().feature_count(CountedFeature::SpaceMapHistogram) > 20);
    let reopened = world.open(world.store.snapshot(), world.txg);
    assert_eq!(reopened.allocator.usage(), {
        // Deferred frees are free after an import.
        let mut usage = world.allocator.usage();
        for class in &mut usage.classes {
            class.allocated -= std::mem::take(&mut class.deferred);
        }
        usage
    });
}

#[test]
fn maps_that_could_not_be_loaded_are_tried_again_when_somebody_says_so() {
    let features = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    let mut world = World::create(&[vdev(0, 1, 22, 12)], SpaceTunables::default(), features);
    world.allocate(0x2000, 1).unwrap();
    world.sync(&[]);
    let reopened = world.open(world.store.snapshot(), world.txg);
    let maps = std::mem::take(&mut *reopened.store.lock());
    assert!(reopened.allocate(0x2000, 1).is_err());
    *reopened.store.lock() = maps;
    assert!(reopened.allocate(0x2000, 1).is_err());
    reopened.allocator.retry_maps();
    assert!(reopened.allocate(0x2000, 1).is_ok());
}

#[test]
fn maps_do_not_grow_without_bound() {
    let features = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    let mut world = World::create(
        &[vdev(0, 2, 22, 12)],
        SpaceTunables { condense_block_threshold: 1, ..SpaceTunables::default() },
        features,
    );
    let mut blocks: Vec<Dva> = (0..700).flat_map(|_| world.allocate(0x1000, 1).unwrap()).collect();
    let mut numbers = Numbers(2);
    let (mut longest, mut condensed) = (0, 0);
    let mut before = 0;
    for _ in 0..400 {
        let dying: Vec<Dva> = (0..60)
            .map(|_| blocks.swap_remove(numbers.below(blocks.len() as u64) as usize))
            .collect();
        for _ in 0..60 {
            blocks.extend(world.allocate(0x1000, 1).unwrap());
        }
        world.sync(&dying);
        let length: u64 = world.allocator.topology().vdevs[&VdevId(0)]
            .metaslabs
            .iter()
            .filter_map(|metaslab| Some(metaslab.state.lock().map.as_ref()?.header().length))
            .sum();
        longest = longest.max(length);
        condensed += u64::from(length < before);
        before = length;
    }
    assert!(condensed > 5, "{condensed}");
    // A block is 16 KiB, below which nothing is condensed; a txg adds about 1 KiB.
    assert!(longest < 2 * (16 << 10) + (8 << 10), "{longest}");
    check_metaslabs(&world);
}

#[test]
fn histograms_are_what_a_count_gives() {
    let (mut world, mut blocks) = filled(limits(20, 20), SpaceFeatures::NEW_POOL);
    let mut numbers = Numbers(13);
    (0..10).for_each(|_| churn(&mut world, &mut blocks, &mut numbers, 30));
    // What is freed stays apart from what can be allocated until it can be too.
    (0..3).for_each(|_| world.sync(&[]));
    let mut store = world.store.clone();
    let dying: Vec<Dva> = blocks.drain(..20).collect();
    let pass = world.allocator.begin_sync(world.txg).unwrap();
    dying.iter().for_each(|dva| pass.free(*dva, Txg(1)).unwrap());
    let pass = pass.sync(&mut store, Activity::Busy).unwrap();
    let mut counted = 0;
    for metaslab in &world.allocator.topology().vdevs[&VdevId(0)].metaslabs {
        let state = metaslab.state.lock();
        let (Some(map), metaslab::FreeTree::Loaded(free)) = (&state.map, &state.free) else {
            continue;
        };
        let Some(transient) = state.transient.as_ref().filter(|of| !of.freed.is_empty()) else {
            continue;
        };
        let mut recount = [0_u64; 32];
        for range in free.segments().iter().chain(transient.freed.iter()) {
            recount[((range.end - range.start).ilog2() - 12) as usize] += 1;
        }
        assert_eq!(map.header().histogram, Some(recount));
        let stored = crate::SpaceMap::open(&store, map.object(), metaslab.geometry()).unwrap();
        assert_eq!(stored.header(), map.header());
        counted += 1;
    }
    assert!(counted > 0);
    pass.finish().unwrap().committed().unwrap();
}
