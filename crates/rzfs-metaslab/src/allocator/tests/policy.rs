//! Where blocks go, and when their space comes back.

use super::*;

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
    let vdevs = [vdev(0, 12, 24, 12)];
    let mut world = World::create(&vdevs, SpaceTunables::default(), SpaceFeatures::NEW_POOL);
    let filled: Vec<Dva> = std::iter::from_fn(|| world.allocate(1 << 20, 1).ok())
        .take(12 * 16 - 140)
        .flatten()
        .collect();
    world.sync(&[]);
    let freed_in = world.txg;
    let dead = filled[3];
    world.sync(&[dead]);
    let reuse = |world: &World| {
        let dvas: Vec<Dva> =
            std::iter::from_fn(|| world.allocate(1 << 20, 1).ok()).flatten().collect();
        let found = dvas.iter().any(|dva| dva.offset() == dead.offset());
        world.allocator.unallocate(&dvas, world.txg);
        found
    };
    while world.txg.0 <= freed_in.0 + 2 {
        assert!(!reuse(&world), "in {}", world.txg);
        world.sync(&[]);
    }
    assert!(reuse(&world));
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
