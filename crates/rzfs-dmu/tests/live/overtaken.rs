//! Blocks that are replaced while they are read, and whose space is reused at once: the new
//! contents are not damage. Real damage still is.

use crate::world::{World, WorldOptions};
use crate::{ORDINARY, file};
use rzfs_dmu::live::{Extent, LiveObject, NewObject};
use rzfs_dmu::{BlockError, DmuError, Existence, Objset};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ObjectId};

const BLOCK: u64 = 512;

/// A world with an object of this many blocks on disk, each filled with its number.
fn world_with(blocks: u64) -> (World, LiveObject) {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    drop(tx);
    for block in 0..blocks {
        write(&world, &object, block, block as u8);
    }
    sync(&mut world);
    world.pipeline.cache().clear();
    (world, object)
}

/// Contents that differ from byte to byte, so that they are not embedded in the pointer.
fn contents(seed: u8) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ seed;
    (0..BLOCK).map(|at| byte(at + 1)).collect()
}

fn write(world: &World, object: &LiveObject, block: u64, seed: u8) {
    let tx = world.engine.begin(&[object]).unwrap();
    object.write(&tx, block * BLOCK, &contents(seed)).unwrap();
}

fn sync(world: &mut World) {
    world.sync(1, |_, _| {});
}

/// The pointer to a block on disk.
fn pointer(object: &LiveObject, level: u8, block: u64) -> BlockPointer {
    object.on_disk().unwrap().pointers(level, block..block + 1).remove(0).unwrap()
}

fn copies(pointer: &BlockPointer) -> u64 {
    pointer.dvas().count() as u64
}

#[track_caller]
fn assert_nothing_counted(world: &World) {
    assert_eq!(world.checksum_errors(), 0);
    assert_eq!(world.pipeline.damage().all().len(), 0);
}

#[test]
fn data_that_is_overtaken_is_read_anew() {
    let (mut world, object) = world_with(3);
    let begun = object.begin_read(0..3).unwrap();
    world.replace(|world| {
        write(world, &object, 1, 77);
        let tx = world.engine.begin(&[&object]).unwrap();
        object.free(&tx, 2 * BLOCK, Extent::ToEnd).unwrap();
        drop(tx);
        sync(world);
    });
    let read: Vec<_> = begun.finish().into_iter().map(|block| block.unwrap().data).collect();
    assert!(read == [contents(0), contents(77), vec![0; BLOCK as usize]]);
    assert_nothing_counted(&world);
}

#[test]
fn so_is_a_gang_whichever_of_its_blocks_is_used_again_first() {
    for is_header_first in [true, false] {
        let mut world = World::new(WorldOptions { largest: 1024, ..ORDINARY });
        let tx = world.engine.begin(&[]).unwrap();
        let new = NewObject { data_block_size: 4096, ..file() };
        let object = world.objset.allocate(&tx, new).unwrap();
        let long = |seed: u8| (0..8).flat_map(|part| contents(seed + part)).collect::<Vec<_>>();
        object.write(&tx, 0, &long(1)).unwrap();
        drop(tx);
        sync(&mut world);
        let leader = pointer(&object, 0, 0);
        assert!(leader.is_gang());
        let members = world.pipeline.gang_members(&leader).unwrap();
        world.pipeline.cache().clear();
        let begun = object.begin_read(0..1).unwrap();
        let tx = world.engine.begin(&[&object]).unwrap();
        object.write(&tx, 0, &long(50)).unwrap();
        drop(tx);
        sync(&mut world);
        world.pipeline.cache().clear();
        let reused = if is_header_first { &leader } else { &members[1] };
        world.overwrite(reused);
        assert!(begun.finish().remove(0).unwrap().data == long(50));
        assert_nothing_counted(&world);
    }
}

#[test]
fn what_was_a_clone_may_be_overtaken_in_the_source() {
    let (mut world, object) = world_with(5);
    let tx = world.engine.begin(&[&object]).unwrap();
    let source = object.clone_sources(0..1).unwrap();
    object.clone_blocks(&tx, BlockId(4), &source).unwrap();
    drop(tx);
    let begun = object.begin_read(4..5).unwrap();
    world.replace(|world| {
        write(world, &object, 4, 88);
        write(world, &object, 0, 99);
        sync(world);
    });
    assert!(begun.finish().remove(0).unwrap().data == contents(88));
    assert_nothing_counted(&world);
}

#[test]
fn spill_blocks_are_read_anew() {
    let (mut world, object) = world_with(1);
    let spill = |world: &mut World, seed| {
        let tx = world.engine.begin(&[&object]).unwrap();
        object.set_bonus(&tx, ObjectType::SA, &[]).unwrap();
        object.set_spill(&tx, &contents(seed)).unwrap();
        drop(tx);
        sync(world);
    };
    spill(&mut world, 1);
    let held = object.on_disk().unwrap().dnode().spill.unwrap();
    let read = || object.spill().unwrap().unwrap().data;
    let found = world.replace_while(&held, read, |world| spill(world, 2));
    assert!(found == contents(2));
    assert_nothing_counted(&world);
}

/// Two indirect blocks, one of which is replaced while a walk reads the other.
fn walk_overtaken<R: Send>(held: u64, walk: impl FnOnce(&LiveObject) -> R + Send) -> R {
    let (mut world, object) = world_with(64);
    let at = pointer(&object, 1, held);
    let changed = (1 - held) * 32;
    let reader = object.clone();
    let found = world.replace_while(
        &at,
        move || walk(&reader),
        |world| {
            write(world, &object, changed, 99);
            sync(world);
        },
    );
    assert_nothing_counted(&world);
    found
}

#[test]
fn walks_along_indirect_blocks_begin_anew() {
    let piece = |object: &LiveObject| object.last_piece(BlockId(0)..BlockId(50), 40).unwrap();
    let piece = walk_overtaken(1, piece);
    assert_eq!((piece.first, piece.blocks), (BlockId(10), 40));
    assert_eq!(walk_overtaken(0, |object| object.next_hole(0).unwrap()), None);
}

/// A read of an old set fails as superseded only if the set is known to be replaced.
#[track_caller]
fn assert_overtaken<T>(result: Result<T, DmuError>) {
    let error = result.err().expect("it was replaced");
    assert!(matches!(&error, DmuError::Block { source: BlockError::Overtaken, .. }), "{error}");
    assert!(!error.is_damage());
}

#[test]
fn blocks_of_a_set_that_was_replaced_are_no_damage() {
    let (mut world, object) = world_with(40);
    let (then, object_then) = (world.objset.synced(), object.on_disk().unwrap());
    let kept = then.kept();
    world.replace(|world| {
        write(world, &object, 3, 9);
        sync(world);
    });
    assert_overtaken(then.object(object.id()));
    assert!(then.objects_of(&[object.id()]).is_empty());
    assert_overtaken(object_then.read_block(BlockId(3)));
    object_then.prefetch(0, 0..40);
    assert_nothing_counted(&world);
    assert!(world.objset.object(object.id()).is_ok());
    // With blocks protected from reuse, an error is damage.
    assert!(kept.object(object.id()).unwrap_err().is_damage());
    assert!(world.checksum_errors() > 0);
    assert_eq!(world.pipeline.damage().all().len(), 1);
}

#[test]
fn a_read_that_a_rollback_overtakes_says_so() {
    let (world, object) = world_with(1);
    let begun = object.begin_read(0..1).unwrap();
    world.objset.supersede();
    world.overwrite(&only_block(&world));
    let error = begun.finish().remove(0).unwrap_err();
    assert!(matches!(error, DmuError::Superseded { .. }), "{error}");
    assert_nothing_counted(&world);
}

/// The pointer to the only block of a file in the world.
fn only_block(world: &World) -> BlockPointer {
    let is_of_file =
        |pointer: &&BlockPointer| pointer.object_type().unwrap() == ObjectType::PLAIN_FILE_CONTENTS;
    let files: Vec<&BlockPointer> = world.accounts.live.values().filter(is_of_file).collect();
    assert_eq!(files.len(), 1);
    *files[0]
}

#[test]
fn so_does_one_of_a_snapshot_that_is_destroyed() {
    let (world, object) = world_with(1);
    let existence = Existence::default();
    let root = *world.objset.synced().root();
    let id = world.objset.id();
    let snapshot = Objset::open_while(&world.pipeline, id, &root, None, existence.clone()).unwrap();
    let read = snapshot.object(object.id()).unwrap();
    world.pipeline.cache().clear();
    let begun = read.begin_read(0..1);
    existence.end();
    world.overwrite(&only_block(&world));
    let error = begun.finish().remove(0).unwrap_err();
    assert!(matches!(error, DmuError::Superseded { .. }), "{error}");
    assert_nothing_counted(&world);
}

#[test]
fn damage_is_counted_once_for_each_read_whatever_is_synced_meanwhile() {
    let (mut world, object) = world_with(3);
    let damaged = pointer(&object, 0, 1);
    let begun = object.begin_read(0..3).unwrap();
    world.overwrite(&damaged);
    world.replace(|world| {
        write(world, &object, 2, 9);
        sync(world);
    });
    let read = begun.finish();
    assert!(read[0].is_ok() && read[2].is_ok());
    assert!(read[1].as_ref().unwrap_err().is_damage());
    let counted = |world: &World| (world.checksum_errors(), world.pipeline.damage().take().len());
    assert_eq!(counted(&world), (1, 1));
    assert!(object.read_block(BlockId(1)).unwrap_err().is_damage());
    assert_eq!(counted(&world), (2, 1));
}

#[test]
fn damage_is_counted_when_somebody_wants_it_and_not_by_reading_ahead() {
    let (world, object) = world_with(64);
    let counted = |world: &World| (world.checksum_errors(), world.pipeline.damage().all().len());
    let above = pointer(&object, 1, 1);
    world.overwrite(&above);
    world.pipeline.cache().clear();
    object.on_disk().unwrap().prefetch(0, 32..64);
    assert_eq!(counted(&world), (0, 0));
    assert!(object.check_tree().unwrap_err().is_damage());
    assert_eq!(counted(&world), (copies(&above), 1));
    // A clone not yet written by a txg behaves like any other block.
    world.overwrite(&pointer(&object, 0, 5));
    let tx = world.engine.begin(&[&object]).unwrap();
    let source = object.clone_sources(5..6).unwrap();
    object.clone_blocks(&tx, BlockId(6), &source).unwrap();
    drop(tx);
    assert!(object.read_block(BlockId(6)).unwrap_err().is_damage());
    assert_eq!(counted(&world), (copies(&above) + 1, 2));
}

#[test]
fn numbers_are_looked_for_anew_when_what_is_on_disk_was_replaced() {
    let (mut world, object) = world_with(1);
    let others = {
        let tx = world.engine.begin(&[]).unwrap();
        [(); 40].map(|()| world.objset.allocate(&tx, file()).unwrap())
    };
    sync(&mut world);
    drop(others);
    // The second dnode block is damaged, and the set is replaced while it is being read.
    let second = world.objset.synced().meta_object().unwrap().pointers(0, 1..2).remove(0).unwrap();
    world.overwrite(&second);
    write(&world, &object, 0, 9);
    let group = world.engine.quiesce().unwrap();
    let (engine, objset) = (world.engine.clone(), world.objset.clone());
    let before = *objset.synced().root();
    world.pipeline.cache().clear();
    let gate = world.close_gate(&second);
    let claimed = std::thread::scope(|scope| {
        let claim = scope.spawn(|| {
            let tx = engine.begin(&[]).unwrap();
            objset.claim(&tx, ObjectId(50), file())
        });
        gate.wait_for_reader();
        let world = &mut world;
        scope.spawn(move || world.sync_group(group));
        while *objset.synced().root() == before {
            std::thread::yield_now();
        }
        gate.open();
        claim.join().unwrap()
    });
    assert!(claimed.unwrap_err().is_damage());
    assert_eq!(world.checksum_errors(), copies(&second));
}
