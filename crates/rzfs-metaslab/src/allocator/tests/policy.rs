//! Where blocks go, and when their space comes back.

use super::*;
use crate::allocator::DedupRoom;

fn big_pool() -> World {
    let vdevs = [vdev(0, 16, 24, 12), vdev(1, 16, 24, 12), vdev(2, 16, 24, 12)];
    World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL)
}

#[test]
fn copies_are_on_different_vdevs() {
    let world = big_pool();
    for _ in 0..50 {
        let dvas = world.allocate(0x2000, 3).unwrap();
        let mut vdevs: Vec<_> = dvas.iter().map(|dva| dva.vdev()).collect();
        vdevs.sort_unstable();
        assert_eq!(vdevs, [VdevId(0), VdevId(1), VdevId(2)]);
    }
}

#[test]
fn copies_on_one_vdev_are_in_different_metaslabs() {
    let vdevs = [vdev(0, 16, 24, 12)];
    let world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    for _ in 0..50 {
        let dvas = world.allocate(0x2000, 3).unwrap();
        let mut metaslabs: Vec<_> = dvas.iter().map(|dva| dva.offset() >> 24).collect();
        metaslabs.sort_unstable();
        metaslabs.dedup();
        assert_eq!(metaslabs.len(), 3);
    }
}

#[test]
fn freed_space_is_not_reused_before_two_txgs() {
    let (mut world, blocks) = nearly_full();
    let freed_in = world.txg;
    let dead = blocks[3];
    world.sync(&[dead]);
    while world.txg.0 <= freed_in.0 + 2 {
        assert!(!is_free(&world, dead), "in {}", world.txg);
        world.sync(&[]);
    }
    assert!(is_free(&world, dead));
}

/// A pool with 140 MiB left, and its blocks.
fn nearly_full() -> (World, Vec<Dva>) {
    let vdevs = [vdev(0, 12, 24, 12)];
    let mut world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    let blocks = std::iter::from_fn(|| world.allocate(1 << 20, 1).ok()).take(12 * 16 - 140);
    let blocks = blocks.flatten().collect();
    world.sync(&[]);
    (world, blocks)
}

/// Whether the space at an address is free.
fn is_free(world: &World, dva: Dva) -> bool {
    let dvas: Vec<Dva> = std::iter::from_fn(|| world.allocate(1 << 20, 1).ok()).flatten().collect();
    let found = dvas.iter().any(|found| found.offset() == dva.offset());
    world.allocator.unallocate(&dvas, world.txg);
    found
}

#[test]
fn what_a_held_txg_has_is_not_reused() {
    let (mut world, blocks) = nearly_full();
    // Freed before the held txg, which no longer has it.
    world.sync(&[blocks[1]]);
    let held = Txg(world.txg.0 - 1);
    let hold = world.allocator.hold(held);
    let again = world.allocator.hold(held);
    world.sync(&[blocks[3]]);
    for _ in 0..6 {
        world.sync(&[]);
        assert!(!is_free(&world, blocks[3]));
    }
    assert!(is_free(&world, blocks[1]));
    drop(hold);
    world.sync(&[]);
    assert!(!is_free(&world, blocks[3]), "somebody else holds it");
    drop(again);
    world.sync(&[]);
    assert!(is_free(&world, blocks[3]));
}

#[test]
fn a_full_pool_says_so_and_nothing_stays_allocated() {
    let mut world = big_pool();
    while world.allocate(1 << 24, 1).is_ok() {}
    let before = world.allocator.usage();
    assert_eq!(world.allocate(1 << 24, 2), Err(NoSpace { size: 1 << 24 }));
    world.sync(&[]);
    let used = world.allocator.usage().class(ClassKind::Normal);
    assert_eq!((used.allocated, used.space), (48 << 24, 48 << 24));
    assert_eq!(before.class(ClassKind::Normal).space, used.space);
    assert_eq!(world.allocate(4096, 1), Err(NoSpace { size: 4096 }));
}

#[test]
fn what_is_taken_back_can_be_had_again() {
    let world =
        World::create(&[vdev(0, 4, 22, 12)], SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    for _ in 0..20 {
        let dvas: Vec<Dva> =
            std::iter::from_fn(|| world.allocate(0x20000, 1).ok()).flatten().collect();
        assert_eq!(dvas.len(), 4 * 32);
        world.allocator.unallocate(&dvas, world.txg);
    }
}

#[test]
fn a_txg_that_failed_is_the_last() {
    let world = big_pool();
    drop(world.allocator.begin_sync(world.txg).unwrap());
    let next = world.allocator.begin_sync(world.txg.next());
    assert!(matches!(next, Err(MetaslabError::OutOfOrder { .. })));
}

#[test]
fn changes_after_the_last_pass_are_not_committed() {
    let mut world = big_pool();
    let pass = world.allocator.begin_sync(world.txg).unwrap();
    let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
    let request = AllocationRequest {
        size: 512,
        copies: 1,
        content: Content::Metadata,
        placement: Placement::Block,
        locality: 0,
    };
    world.allocator.allocate(&request, world.txg).unwrap();
    assert!(matches!(pass.finish(), Err(MetaslabError::Unrecorded { .. })));
}

fn class_of(world: &World, dva: Dva) -> ClassKind {
    let topology = world.allocator.topology();
    let range = dva.offset()..dva.offset() + dva.asize();
    topology.vdevs[&dva.vdev()].metaslab_of(&range).unwrap().group.class
}

/// A pool with vdevs of all kinds; the first is large enough for an embedded log.
fn classed() -> World {
    let biased = |id, bias| TestVdev {
        role: VdevRole { bias, ..VdevRole::default() },
        ..vdev(id, 4, 24, 12)
    };
    let vdevs = [
        vdev(0, 70, 24, 12),
        biased(1, Bias::Log),
        biased(2, Bias::Special),
        biased(3, Bias::Dedup),
    ];
    World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL)
}

#[test]
fn every_kind_of_block_has_its_class_and_a_fallback() {
    let world = classed();
    let class = |world: &World, size, content| {
        world.allocate_for(size, 1, content).map(|dvas| class_of(world, dvas[0]))
    };
    let small = Content::Data { special_up_to: 0x4000 };
    let table = [
        (0x8000, Content::Data { special_up_to: 0 }, ClassKind::Normal),
        (0x8000, small, ClassKind::Normal),
        (0x4000, small, ClassKind::Special),
        (0x4000, Content::Metadata, ClassKind::Special),
        (0x4000, Content::UserIndirect, ClassKind::Special),
        (0x4000, Content::DedupTable, ClassKind::Dedup),
        (0x4000, Content::IntentLog, ClassKind::Log),
    ];
    for (size, content, expected) in table {
        assert_eq!(class(&world, size, content), Ok(expected), "{content:?} of {size:#x}");
    }
    // Full classes overflow to the next one.
    let fill = |content, class| {
        while world
            .allocate_for(1 << 20, 1, content)
            .is_ok_and(|dvas| class_of(&world, dvas[0]) == class)
        {}
        while world
            .allocate_for(0x1000, 1, content)
            .is_ok_and(|dvas| class_of(&world, dvas[0]) == class)
        {}
    };
    fill(Content::IntentLog, ClassKind::Log);
    assert_eq!(class(&world, 0x1000, Content::IntentLog), Ok(ClassKind::EmbeddedLog));
    fill(Content::DedupTable, ClassKind::Dedup);
    assert_eq!(class(&world, 0x1000, Content::DedupTable), Ok(ClassKind::Special));
    fill(Content::Metadata, ClassKind::Special);
    assert_eq!(class(&world, 0x1000, Content::Metadata), Ok(ClassKind::Normal));
    assert_eq!(class(&world, 0x1000, Content::DedupTable), Ok(ClassKind::Normal));
    fill(Content::Metadata, ClassKind::Normal);
    // Nothing but logs goes to log vdevs and to the embedded log.
    assert_eq!(class(&world, 0x1000, Content::Metadata), Err(NoSpace { size: 0x1000 }));
    assert_eq!(class(&world, 0x1000, Content::IntentLog), Ok(ClassKind::EmbeddedLog));
}

#[test]
fn data_leave_a_part_of_the_special_class_to_metadata() {
    let mut world = classed();
    let small = Content::Data { special_up_to: 1 << 20 };
    let mut special = 0_u64;
    for _ in 0..60 {
        for dva in world.allocate_for(1 << 20, 1, small).unwrap() {
            special += u64::from(class_of(&world, dva) == ClassKind::Special);
        }
        // The figures of classes change when a txg ends.
        world.sync(&[]);
    }
    assert_eq!(special, 64 * 75 / 100);
    let dvas = world.allocate_for(1 << 20, 1, Content::Metadata).unwrap();
    assert_eq!(class_of(&world, dvas[0]), ClassKind::Special);
}

/// The quota `auto` of dedup tables.
#[test]
fn dedup_tables_fill_a_part_of_their_vdevs() {
    let mut world = classed();
    let fill = |world: &mut World, count: u64| -> Vec<Dva> {
        let table = (0..count).map(|_| world.allocate_for(1 << 20, 1, Content::DedupTable));
        let dvas = table.map(|dvas| dvas.unwrap()[0]).collect();
        world.sync(&[]);
        dvas
    };
    let before = fill(&mut world, 64 * 85 / 100);
    assert_eq!(world.allocator.dedup_room(), DedupRoom::Left);
    let last = fill(&mut world, 1);
    assert_eq!(world.allocator.dedup_room(), DedupRoom::Full);
    world.sync(&last);
    // What is freed is free two txgs later.
    world.sync(&[]);
    world.sync(&[]);
    assert_eq!(world.allocator.dedup_room(), DedupRoom::Left);
    // Allocations that had to go elsewhere stay away for a few txgs.
    let rest = fill(&mut world, 20);
    assert_eq!(class_of(&world, rest[19]), ClassKind::Special);
    world.sync(&[before, rest].concat());
    for _ in 0..4 {
        assert_eq!(world.allocator.dedup_room(), DedupRoom::Full);
        world.sync(&[]);
    }
    assert_eq!(world.allocator.dedup_room(), DedupRoom::Left);
}

#[test]
fn dedup_tables_without_vdevs_of_their_own_may_grow() {
    let mut world = big_pool();
    while world.allocate_for(1 << 20, 1, Content::DedupTable).is_ok() {}
    world.sync(&[]);
    assert_eq!(world.allocator.dedup_room(), DedupRoom::Left);
}

#[test]
fn gang_members_stay_with_their_header_and_its_class() {
    let world = classed();
    let request = |size, content, placement| AllocationRequest {
        size,
        copies: 1,
        content,
        placement,
        locality: 0,
    };
    let header = world
        .allocator
        .allocate(&request(512, Content::Metadata, Placement::GangHeader), world.txg)
        .unwrap()[0];
    assert!(header.is_gang());
    assert_eq!((header.vdev(), header.asize()), (VdevId(2), 0x1000));
    let member = Placement::GangMember(header);
    let data = Content::Data { special_up_to: 0 };
    let dvas = world.allocator.allocate(&request(0x8000, data, member), world.txg).unwrap();
    assert_eq!((dvas[0].vdev(), dvas[0].is_gang()), (VdevId(2), false));
}

#[test]
fn vdevs_that_cannot_be_written_or_must_not_grow_get_nothing() {
    let world = big_pool();
    world.devices.offline.lock().push(VdevId(1));
    world.allocator.set_allocating(VdevId(2), Allocating::No).unwrap();
    for _ in 0..20 {
        assert_eq!(world.allocate(0x1000, 1).unwrap()[0].vdev(), VdevId(0));
    }
    assert_eq!(world.allocator.usage().normal_space, 32 << 24);
    world.allocator.set_allocating(VdevId(2), Allocating::Yes).unwrap();
    world.devices.offline.lock().clear();
    let vdevs: std::collections::BTreeSet<_> =
        (0..2000).map(|_| world.allocate(0x1000, 1).unwrap()[0].vdev()).collect();
    assert_eq!(vdevs.len(), 3);
}

#[test]
fn emptier_vdevs_get_more() {
    let vdevs = [vdev(0, 16, 24, 12), vdev(1, 16, 24, 12)];
    let mut world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    world.allocator.set_allocating(VdevId(1), Allocating::No).unwrap();
    for _ in 0..160 {
        world.allocate(1 << 20, 1).unwrap();
    }
    world.allocator.set_allocating(VdevId(1), Allocating::Yes).unwrap();
    world.sync(&[]);
    let mut counts = [0_u32; 2];
    for _ in 0..8 * 128 {
        let vdev = world.allocate(0x10000, 1).unwrap()[0].vdev();
        counts[vdev.0 as usize] += 1;
    }
    assert!(counts[1] > counts[0] * 3 / 2, "{counts:?}");
}

#[test]
fn space_of_a_new_vdev_can_be_used_after_the_txg() {
    let mut world = big_pool();
    let new = vdev(3, 16, 24, 12);
    let before = world.allocator.usage().normal_space;
    world.devices.vdevs.write().insert(VdevId(3), new);
    world.sync(&[]);
    world.allocator.add_vdev(new.geometry, new.role, Availability::AfterCommit).unwrap();
    assert!(world.allocator.add_vdev(new.geometry, new.role, Availability::Now).is_err());
    assert_eq!(world.allocator.usage().normal_space, before);
    for _ in 0..200 {
        assert_ne!(world.allocate(1 << 20, 1).unwrap()[0].vdev(), VdevId(3));
    }
    world.sync(&[]);
    assert_eq!(world.allocator.usage().normal_space, before + (16 << 24));
    assert!(world.store.lock().vdev(VdevId(3)).metaslab_array.is_some());
    let vdevs: std::collections::BTreeSet<_> =
        (0..100).map(|_| world.allocate(1 << 20, 1).unwrap()[0].vdev()).collect();
    assert!(vdevs.contains(&VdevId(3)));
    world.allocator.grow_vdev(VdevId(3), 20 << 24).unwrap();
    world.sync(&[]);
    assert_eq!(world.allocator.usage().normal_space, before + (20 << 24));
    check_metaslabs(&world);
}

#[test]
fn checkpointed_blocks_stay_until_the_checkpoint_is_discarded() {
    let mut world = big_pool();
    let blocks: Vec<Dva> = (0..80).flat_map(|_| world.allocate(0x3000, 1).unwrap()).collect();
    // Every second one, so that each is a segment of its own.
    let (old, _): (Vec<Dva>, Vec<Dva>) =
        blocks.iter().partition(|dva| dva.offset() / 0x3000 % 2 == 0);
    let checkpoint = world.txg;
    world.sync(&[]);
    world.allocator.set_checkpoint(Some(checkpoint));
    let allocated = |world: &World| world.allocator.usage().class(ClassKind::Normal).allocated;
    let before = allocated(&world);
    let pass = world.allocator.begin_sync(world.txg).unwrap();
    for dva in &old {
        pass.free(*dva, checkpoint).unwrap();
    }
    let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
    pass.finish().unwrap().committed().unwrap();
    world.txg = world.txg.next();
    assert_eq!(allocated(&world), before);
    check_metaslabs(&world);
    let on_disk = stored(&world.store.snapshot(), &world.devices);
    let held: u64 = on_disk.iter().map(|((_, start), end)| end - start).sum();
    assert_eq!(held, 80 * 0x3000);
    let maps = |world: &World| {
        let store = world.store.lock();
        [0, 1, 2].map(|id| store.vdev(VdevId(id)).checkpoint_map.is_some())
    };
    assert!(maps(&world).contains(&true));
    world = world.open(world.store.snapshot(), world.txg);
    let mut rounds = 0;
    loop {
        rounds += 1;
        let mut pass = world.allocator.begin_sync(world.txg).unwrap();
        let discard = pass.discard_checkpoint(&mut world.store, 3).unwrap();
        let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
        pass.finish().unwrap().committed().unwrap();
        world.txg = world.txg.next();
        check_metaslabs(&world);
        if discard == Discard::Complete {
            break;
        }
    }
    assert!(rounds > old.len() / 3, "{rounds}");
    assert_eq!(maps(&world), [false; 3]);
    let on_disk = stored(&world.store.snapshot(), &world.devices);
    let held: u64 = on_disk.iter().map(|((_, start), end)| end - start).sum();
    assert_eq!(held, (80 - old.len() as u64) * 0x3000);
}

#[test]
fn frees_on_removed_vdevs_reach_what_was_copied() {
    let mut world = big_pool();
    let old = world.allocate(0x4000, 1).unwrap()[0];
    let filler = world.allocate_until(|dva| dva.vdev() != old.vdev());
    world.sync(&[]);
    // The block moves to where the filler is, in two pieces.
    let from = |range| SpacePiece { vdev: old.vdev(), range };
    let to = |start: u64| SpacePiece { vdev: filler.vdev(), range: start..start + 0x2000 };
    let middle = old.offset() + 0x2000;
    *world.devices.moved.lock() = vec![
        (from(old.offset()..middle), to(filler.offset())),
        (from(middle..middle + 0x2000), to(filler.offset() + 0x2000)),
    ];
    let mut pass = world.allocator.begin_sync(world.txg).unwrap();
    pass.remove_vdev(&mut world.store, old.vdev()).unwrap();
    let pass = pass.sync(&mut world.store, Activity::Busy).unwrap();
    pass.finish().unwrap().committed().unwrap();
    world.txg = world.txg.next();
    let objects = world.store.lock().vdev(old.vdev());
    assert_eq!((objects.metaslab_array, objects.unflushed_array), (None, None));
    world.sync(&[old]);
    let store = world.store.snapshot();
    let obsolete = store.vdev(old.vdev()).obsolete_map.expect("an obsolete map");
    let area = rzfs_format::space_map::Geometry::obsolete(16 << 24);
    let map = crate::SpaceMap::open(&store, obsolete, area).unwrap();
    let tree = map.load_allocated(&store).unwrap();
    assert!(tree.iter().eq(std::iter::once(old.offset()..old.offset() + 0x4000)));
    assert_eq!(store.feature_count(CountedFeature::ObsoleteCounts), 1);
    let space = world.allocator.vdev_usage();
    let target = space.iter().find(|usage| usage.vdev == filler.vdev()).unwrap();
    assert_eq!(target.totals.deferred, 0x4000);
    // A range that the mapping does not know is an error.
    let pass = world.allocator.begin_sync(world.txg).unwrap();
    let unknown = Dva::new(old.vdev(), old.offset() + 0x4000, 0x1000, false);
    assert!(matches!(pass.free(unknown, Txg(1)), Err(MetaslabError::NoMetaslab { .. })));
}

#[test]
fn trims_are_what_can_be_allocated_and_keep_allocations_away() {
    let vdevs = [vdev(0, 2, 24, 12)];
    let mut world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    world.allocator.set_autotrim(Autotrim::On);
    let dvas: Vec<Dva> = (0..4).flat_map(|_| world.allocate(0x10000, 1).unwrap()).collect();
    world.sync(&[]);
    world.sync(&dvas[1..3]);
    world.sync(&[]);
    assert!(world.allocator.trim_candidates().is_empty());
    world.sync(&[]);
    let candidates = world.allocator.trim_candidates();
    let [metaslab] = candidates[..] else { panic!("{candidates:?}") };
    assert!(world.allocator.take_trims(metaslab, 1 << 20).is_none());
    world.allocator.set_autotrim(Autotrim::On);
    world.sync(&dvas[3..4]);
    world.sync(&[]);
    world.sync(&[]);
    let batch = world.allocator.take_trims(metaslab, 0x8000).unwrap();
    let freed = dvas[3].offset()..dvas[3].offset() + 0x10000;
    assert!(batch.ranges().iter().eq(std::iter::once(&freed)));
    let index = |dva: Dva| dva.offset() >> 24;
    assert_ne!(index(world.allocate(0x10000, 1).unwrap()[0]), batch.metaslab().index);
    drop(batch);
    let part = FreePart { smallest: 0x1000, from: 0, most: u64::MAX, unit: 0x1000 };
    let whole = world.allocator.take_free(metaslab, part).unwrap();
    let free: u64 = whole.batch.ranges().iter().map(|range| range.end - range.start).sum();
    assert_eq!((free, whole.next), ((16 << 20) - 0x10000, None));
}

#[test]
fn nobody_is_told_that_a_pool_is_full_because_its_metaslabs_rest() {
    let vdevs = [vdev(0, 1, 24, 12)];
    let world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    let allocator = &world.allocator;
    let (metaslab, _) = allocator.metaslabs()[0].clone();
    let part = FreePart { smallest: 0x1000, from: 0, most: 1 << 20, unit: 0x1000 };
    let step = allocator.take_free(metaslab, part).unwrap();
    let whole: u64 = step.batch.ranges().iter().map(|range| range.end - range.start).sum();
    assert_eq!((whole, step.next), (1 << 20, Some(1 << 20)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| world.allocate(0x10000, 1).unwrap());
        // A sweeper lets the waiting allocation pass.
        let next = scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(step);
            drop(allocator.take_free(metaslab, FreePart { from: 1 << 20, ..part }));
        });
        assert_eq!(waits.join().unwrap()[0].asize(), 0x10000);
        next.join().unwrap();
    });
    // A full pool is reported at once, even while it is swept.
    while world.allocate(0x1000, 1).is_ok() {}
    assert!(allocator.take_free(metaslab, part).is_none());
}

#[test]
fn claimed_blocks_are_allocated_once() {
    let mut world = big_pool();
    let dva = Dva::new(VdevId(1), 0x5000, 0x2000, false);
    world.allocator.claim(dva, world.txg).unwrap();
    assert!(world.allocator.claim(dva, world.txg).is_err());
    let outside = Dva::new(VdevId(1), 16 << 24, 0x2000, false);
    assert!(world.allocator.claim(outside, world.txg).is_err());
    world.sync(&[]);
    let on_disk = stored(&world.store.snapshot(), &world.devices);
    assert_eq!(on_disk.into_iter().collect::<Vec<_>>(), [((VdevId(1), 0x5000), 0x7000)]);
}

#[test]
fn large_blocks_fail_now_and_then_when_that_is_asked_for() {
    let vdevs = [vdev(0, 16, 24, 12)];
    let tunables =
        SpaceTunables { force_ganging: 0x2000, force_ganging_pct: 20, ..SpaceTunables::default() };
    let world = World::create(&vdevs, tunables, SpaceFeatures::NEW_POOL);
    let failed = |size| (0..100).filter(|_| world.allocate(size, 1).is_err()).count();
    assert_eq!((failed(0x1000), failed(0x2000)), (0, 20));
}

#[test]
fn threads_never_get_the_same_space() {
    let vdevs = [vdev(0, 16, 22, 12), vdev(1, 16, 22, 12)];
    let mut world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    let mut live: Vec<Dva> = Vec::new();
    for round in 0..6 {
        let dying = live.split_off(live.len() / 2);
        let (allocator, txg) = (&world.allocator, world.txg);
        let mut store = world.store.clone();
        let given: Vec<Vec<Dva>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let give = |number: u64| {
                            let request = AllocationRequest {
                                size: 0x1000 << (number % 4),
                                copies: 1 + (number % 3) as u8,
                                content: Content::Metadata,
                                placement: Placement::Block,
                                locality: thread,
                            };
                            // What is for the next txg can be allocated while this one is synced.
                            allocator.allocate(&request, txg.next()).unwrap_or_default()
                        };
                        let dvas = (0..60).flat_map(give);
                        dvas.filter(|dva| dva.is_valid()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let pass = allocator.begin_sync(txg).unwrap();
            dying.iter().for_each(|dva| pass.free(*dva, Txg(1)).unwrap());
            let pass = pass.sync(&mut store, Activity::Busy).unwrap();
            pass.finish().unwrap().committed().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        world.txg = txg.next();
        live.extend(given.into_iter().flatten());
        let mut tree = BTreeMap::new();
        for dva in &live {
            assert!(tree.insert((dva.vdev(), dva.offset()), dva.asize()).is_none());
        }
        let pairs = tree.iter().zip(tree.iter().skip(1));
        for (((vdev, start), size), ((next_vdev, next), _)) in pairs {
            assert!(vdev != next_vdev || start + size <= *next, "round {round}");
        }
    }
    world.sync(&[]);
    check_metaslabs(&world);
    let on_disk = stored(&world.store.snapshot(), &world.devices);
    let held: u64 = on_disk.iter().map(|((_, start), end)| end - start).sum();
    assert_eq!(held, live.iter().map(|dva| dva.asize()).sum::<u64>());
}
