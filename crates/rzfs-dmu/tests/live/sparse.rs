//! How often indirect blocks are read when blocks far apart are changed: there are then about as
//! many indirect blocks per block as the depth of the tree, and caching does not help.

use crate::ORDINARY;
use crate::world::World;
use rzfs_dmu::live::{Extent, LiveObject, NewObject};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ObjectId};
use std::ops::RangeInclusive;

/// Blocks far apart.
const BLOCKS: u64 = 150;
/// Distance between them; one indirect block of level 2 covers half of it.
const APART: u64 = 1 << 21;
const BLOCK_SIZE: u64 = 512;

/// Cache lookups and misses of indirect blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reads {
    asked: u64,
    missed: u64,
}

/// An object of distant blocks, each with two indirect blocks of its own.
fn far_apart(world: &mut World) -> LiveObject {
    let new = NewObject {
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        data_block_size: BLOCK_SIZE as u32,
        indirect_shift: 17,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    };
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, new).unwrap();
    drop(tx);
    write_all(world, &object, 0);
    world.sync(1, |_, _| {});
    assert!((2 * BLOCKS..2 * BLOCKS + 3).contains(&blocks_of(world, 1..=9)));
    object
}

fn write_all(world: &World, object: &LiveObject, round: u64) {
    let tx = world.engine.begin(&[object]).unwrap();
    for block in 0..BLOCKS {
        // They are not embedded in their pointers.
        let data: Vec<u8> =
            (0..BLOCK_SIZE).map(|at| (at * (7 * at + block + round) + round) as u8).collect();
        object.write(&tx, block * APART * BLOCK_SIZE, &data).unwrap();
    }
}

/// File blocks of these levels.
fn blocks_of(world: &World, levels: RangeInclusive<i8>) -> u64 {
    let is_wanted = |pointer: &&BlockPointer| {
        let is_of_file = pointer.object_type() == Ok(ObjectType::PLAIN_FILE_CONTENTS);
        is_of_file && levels.contains(&pointer.level().0)
    };
    world.accounts.live.values().filter(is_wanted).count() as u64
}

fn reads(world: &World) -> Reads {
    let stats = world.pipeline.cache().stats();
    let demand = stats.demand_metadata_hits + stats.demand_metadata_iohits;
    let prefetch = stats.prefetch_metadata_hits + stats.prefetch_metadata_iohits;
    let missed = stats.demand_metadata_misses + stats.prefetch_metadata_misses;
    Reads { asked: demand + prefetch + missed, missed }
}

/// The reads of an operation.
fn reads_of(world: &mut World, work: impl FnOnce(&mut World)) -> Reads {
    world.pipeline.cache().clear();
    let before = reads(world);
    work(world);
    let after = reads(world);
    Reads { asked: after.asked - before.asked, missed: after.missed - before.missed }
}

#[track_caller]
fn check_reads(what: &str, found: Reads, times: u64) {
    // In addition there are some dnode blocks, and the top of the tree.
    let most = times * 2 * BLOCKS + 60;
    assert!(found.asked <= most && found.missed <= most, "{what}: {found:?}, {most} at most");
}

/// Frees a range the way files do.
fn free(world: &World, object: &LiveObject, first: u64, len: Extent) {
    let end = match len {
        Extent::Bytes(len) => BlockId(first + len / BLOCK_SIZE),
        Extent::ToEnd => BlockId(u64::MAX),
    };
    let checked = object.check_blocks(BlockId(first)..end).unwrap();
    let tx = world.engine.begin(&[object]).unwrap();
    object.free_checked(&tx, first * BLOCK_SIZE, len, &checked).unwrap();
}

fn contents_on_disk(world: &World, id: ObjectId) -> Vec<u64> {
    let object = world.reopened().object(id).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(data) = object.next_data(at).unwrap() {
        found.push(data / BLOCK_SIZE);
        at = data + BLOCK_SIZE;
    }
    found
}

#[test]
fn shortening_reads_what_is_above_each_block_once_before_and_once_when_it_is_synced() {
    for first in [0, 1, 5 * APART, 5 * APART + 1] {
        let mut world = World::new(ORDINARY);
        let object = far_apart(&mut world);
        let open = reads_of(&mut world, |world| free(world, &object, first, Extent::ToEnd));
        check_reads("before", open, 1);
        let synced = reads_of(&mut world, |world| world.sync(1, |_, _| {}));
        check_reads("synced", synced, 1);
        let expected: Vec<u64> =
            (0..BLOCKS).map(|block| block * APART).filter(|block| *block < first).collect();
        assert_eq!(contents_on_disk(&world, object.id()), expected);
        crate::model::check_structure(&world);
    }
}

#[test]
fn a_hole_over_much_reads_what_is_above_each_block_once_before_and_once_when_it_is_synced() {
    let mut world = World::new(ORDINARY);
    let object = far_apart(&mut world);
    let len = Extent::Bytes((BLOCKS - 2) * APART * BLOCK_SIZE);
    let open = reads_of(&mut world, |world| free(world, &object, 1, len));
    check_reads("before", open, 1);
    let synced = reads_of(&mut world, |world| world.sync(1, |_, _| {}));
    check_reads("synced", synced, 1);
    assert_eq!(contents_on_disk(&world, object.id()), [0, (BLOCKS - 1) * APART]);
    crate::model::check_structure(&world);
}

#[test]
fn writing_reads_what_is_above_each_block_a_few_times() {
    let mut world = World::new(ORDINARY);
    let object = far_apart(&mut world);
    let open = reads_of(&mut world, |world| write_all(world, &object, 1));
    check_reads("before", open, 3);
    let synced = reads_of(&mut world, |world| world.sync(1, |_, _| {}));
    check_reads("synced", synced, 2);
    crate::model::check_structure(&world);
}

#[test]
fn what_became_damaged_after_the_check_stays_where_it_is_and_nothing_else_does() {
    let mut world = World::new(ORDINARY);
    let object = far_apart(&mut world);
    let group = (5 * APART) >> 20;
    let above = world.reopened().object(object.id()).unwrap().pointers(2, group..group + 1);
    free(&world, &object, 0, Extent::ToEnd);
    world.overwrite(above[0].as_ref().unwrap());
    world.pipeline.cache().clear();
    world.sync(1, |_, _| {});
    // Its parents, and what cannot be found below it.
    assert_eq!([0, 1, 2, 3].map(|level| blocks_of(&world, level..=level)), [1, 1, 1, 1]);
}

#[test]
fn blocks_that_are_written_where_others_are_freed_stay() {
    let mut world = World::new(ORDINARY);
    let object = far_apart(&mut world);
    free(&world, &object, 0, Extent::ToEnd);
    let tx = world.engine.begin(&[&object]).unwrap();
    // Replacing one, next to one, and below indirect blocks that do not exist yet.
    let written = [3 * APART, 7 * APART + 1, 20 * APART + 5000, 2 * BLOCKS * APART];
    for block in written {
        object.write(&tx, block * BLOCK_SIZE, &[7; BLOCK_SIZE as usize]).unwrap();
    }
    drop(tx);
    world.sync(1, |_, _| {});
    assert_eq!(contents_on_disk(&world, object.id()), written);
    crate::model::check_structure(&world);
}
