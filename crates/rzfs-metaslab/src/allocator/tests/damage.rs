//! Space maps that are damaged.

use super::*;
use crate::allocator::metaslab::{FreeTree, LiveMetaslab};
use crate::log::book::LogLimits;
use rzfs_format::ObjectId;

const BLOCK: u64 = 64 << 10;
const FIRST: MetaslabId = MetaslabId { vdev: VdevId(0), index: 0 };

fn map_of(metaslab: &LiveMetaslab) -> ObjectId {
    metaslab.state.lock().map.as_ref().unwrap().object()
}

#[test]
fn what_a_txg_frees_waits_also_if_its_next_pass_writes_the_map_anew() {
    let features = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    let mut world = World::create(&[vdev(0, 2, 20, 12)], SpaceTunables::default(), features);
    let blocks: Vec<Dva> = std::iter::from_fn(|| world.allocate(BLOCK, 1).ok()).flatten().collect();
    assert_eq!(blocks.len() as u64 * BLOCK, 2 << 20);
    world.sync(&[]);
    // Nothing is loaded.
    let mut world = world.open(world.store.snapshot(), world.txg);
    let mut of_first = blocks.into_iter().filter(|dva| dva.offset() >> 20 == 0);
    let (early, late) = (of_first.next().unwrap(), of_first.next().unwrap());

    let pass = world.allocator.begin_sync(world.txg).unwrap();
    pass.free(early, Txg(1)).unwrap();
    let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
    let topology = world.allocator.topology();
    let metaslab = topology.metaslab(FIRST).unwrap();
    let damaged = map_of(metaslab);
    world.store.lock().damage(damaged);
    pass.free(late, Txg(1)).unwrap();
    let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
    assert_ne!(map_of(metaslab), damaged);
    {
        let mut state = metaslab.state.lock();
        assert!(metaslab.load(&mut state, &world.allocator.context));
        let FreeTree::Loaded(free) = &state.free else { panic!("it is not loaded") };
        assert_eq!(free.segments().space(), 0, "nothing of it can be used yet");
    }
    pass.finish().unwrap().committed().unwrap();
    world.txg = world.txg.next();
    check_metaslabs(&world);

    (0..3).for_each(|_| world.sync(&[]));
    check_metaslabs(&world);
    let mut again: Vec<Dva> =
        std::iter::from_fn(|| world.allocate(BLOCK, 1).ok()).flatten().collect();
    again.sort_unstable_by_key(|dva| dva.offset());
    assert_eq!(again, [early, late]);
    world.sync(&[]);
    check_metaslabs(&world);
    let taken = stored(&world.store.snapshot(), &world.devices);
    assert_eq!(taken.iter().map(|((_, start), end)| end - start).sum::<u64>(), 2 << 20);
}

fn churn(world: &mut World) {
    let block = world.allocate(BLOCK, 1).unwrap();
    world.sync(&[]);
    world.sync(&block);
}

#[test]
fn a_log_that_is_damaged_is_leaked_and_not_counted() {
    let logs = LogLimits { txg_max: 5, block_min: 10, block_percent: 1, ..LogLimits::default() };
    let tunables = SpaceTunables { logs, ..SpaceTunables::default() };
    let mut world = World::create(&[vdev(0, 8, 20, 12)], tunables, SpaceFeatures::NEW_POOL);
    (0..2).for_each(|_| churn(&mut world));
    let damaged = world.store.lock().logs();
    assert!(!damaged.is_empty());
    for log in &damaged {
        world.store.lock().damage(log.object);
    }
    (0..20).for_each(|_| churn(&mut world));
    let logs = world.store.lock().logs();
    assert!(damaged.iter().all(|log| !logs.contains(log)), "they are needed still");
    check_metaslabs(&world);
}
