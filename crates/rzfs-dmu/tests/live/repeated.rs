//! Trees in which blocks appear in many places: few blocks are on disk, and a walk that visits them
//! at each place never ends.

use crate::world::{Lie, World};
use crate::{ORDINARY, file};
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer};

/// This many blocks give 32 * 32 * 32 paths to its indirect block.
const FAR: u64 = 40_000;
/// Enough reads for everything on disk.
const ENOUGH: u64 = 200;

fn forged(lie: Lie) -> (World, LiveObject) {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    object.write(&tx, FAR * 512, &[7; 2 * 512]).unwrap();
    drop(tx);
    world.sync_with_lie(lie);
    (world, object)
}

/// Number of cache lookups of indirect blocks.
fn reads(world: &World) -> u64 {
    let stats = world.pipeline.cache().stats();
    let hits = stats.demand_metadata_hits + stats.demand_metadata_iohits;
    hits + stats.demand_metadata_misses
}

/// Checks that an operation on the tree does not visit a block at all of its places.
fn looks_once<T>(world: &mut World, work: impl FnOnce(&mut World) -> T) -> T {
    let before = reads(world);
    let done = work(world);
    let asked = reads(world) - before;
    assert!(asked < ENOUGH, "{asked} reads");
    done
}

#[test]
fn an_object_whose_blocks_are_in_many_places_is_destroyed() {
    for lie in [Lie::Repeated, Lie::RepeatedHoles] {
        let (mut world, object) = forged(lie);
        let tx = world.engine.begin(&[&object]).unwrap();
        object.destroy(&tx).unwrap();
        drop(tx);
        looks_once(&mut world, |world| world.sync(1, |_, _| {}));
        assert!(world.reopened().object(object.id()).is_err());
        assert!(world.accounts.live.values().all(|one| one.level().0 == 0 || !is_of_file(one)));
    }
}

fn is_of_file(pointer: &BlockPointer) -> bool {
    pointer.object_type() == Ok(ObjectType::PLAIN_FILE_CONTENTS)
}

#[test]
fn nothing_is_looked_for_in_all_places_of_a_block() {
    for lie in [Lie::Repeated, Lie::RepeatedHoles] {
        let (mut world, object) = forged(lie);
        for at in [0, 512, 20_000 * 512] {
            looks_once(&mut world, |_| object.next_data(at).map(drop)).unwrap_or(());
            looks_once(&mut world, |_| object.next_hole(at).map(drop)).unwrap_or(());
            let on_disk = world.reopened().object(object.id()).unwrap();
            looks_once(&mut world, |_| on_disk.next_data(at).map(drop)).unwrap_or(());
            looks_once(&mut world, |_| on_disk.next_hole(at).map(drop)).unwrap_or(());
        }
        for most in [1, 5, 100_000] {
            let all = BlockId(0)..BlockId(u64::MAX);
            looks_once(&mut world, |_| object.last_piece(all, most).map(drop)).unwrap_or(());
        }
        let tx = world.engine.begin(&[&object]).unwrap();
        assert!(object.free(&tx, 512, Extent::ToEnd).unwrap_err().is_damage());
    }
}
