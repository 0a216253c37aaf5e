//! Live object sets against a naive model: written data is read back at once, after it is synced,
//! and from disk; and the trees, fills, space and accounts on disk are consistent.

mod gate;
mod model;
mod overtaken;
mod repeated;
mod sparse;
mod world;
mod zap;

use model::{Model, Step, steps};
use proptest::prelude::*;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{CloneSource, Extent, LiveObjset, NewObject};
use rzfs_dmu::write::HoleBirth;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockId, Level, ObjectId, ObjsetId};
use rzfs_testkit::SetWhenDropped;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use world::{Lie, World, WorldOptions};

const ORDINARY: WorldOptions = WorldOptions {
    id: ObjsetId(5),
    compression: CompressionFunction::Lz4,
    largest: 1 << 20,
    hole_birth: HoleBirth::Recorded,
};

fn file<'a>() -> NewObject<'a> {
    NewObject {
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        data_block_size: 512,
        indirect_shift: 12,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    }
}

fn run(options: WorldOptions, steps: &[Step]) {
    let mut world = World::new(options);
    let mut model = Model::default();
    for step in steps {
        model.perform(&mut world, step);
    }
    model.perform(&mut world, &Step::Sync);
    model.check_everything(&mut world);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 400, ..Default::default() })]

    #[test]
    fn a_set_behaves_like_its_model(steps in steps()) {
        run(ORDINARY, &steps);
    }

    #[test]
    fn so_it_does_in_pieces_and_without_compression(steps in steps()) {
        let compression = CompressionFunction::Off;
        let (largest, hole_birth) = (1024, HoleBirth::Forgotten);
        run(WorldOptions { compression, largest, hole_birth, ..ORDINARY }, &steps);
    }

    #[test]
    fn a_mos_that_grows_from_nothing_does_too(steps in steps()) {
        run(WorldOptions { id: ObjsetId::MOS, ..ORDINARY }, &steps);
    }
}

#[test]
fn trees_grow_by_levels_and_keep_their_blocks() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    assert_eq!(object.id(), ObjectId(1));
    object.write(&tx, 0, b"first").unwrap();
    drop(tx);
    world.sync(1, |_, _| {});
    // 32 pointers in an indirect block of 4 KiB: 3 * 32^3 blocks need four levels.
    let mut expected = vec![(0, b"first".to_vec())];
    for (index, block) in [3, 40, 96, 3071, 3072, 98303].into_iter().enumerate() {
        let tx = world.engine.begin(&[&object]).unwrap();
        let text = format!("block {block}").into_bytes();
        object.write(&tx, block * 512, &text).unwrap();
        drop(tx);
        expected.push((block, text));
        if index % 2 == 0 {
            world.sync(1, |_, _| {});
        }
        for (block, text) in &expected {
            assert!(object.read_block(BlockId(*block)).unwrap().data.starts_with(text));
        }
    }
    world.sync(1, |_, _| {});
    let on_disk = world.reopened().object(object.id()).unwrap();
    assert_eq!((on_disk.dnode().levels, on_disk.dnode().max_block_id), (4, BlockId(98303)));
    for (block, text) in &expected {
        assert!(on_disk.read_block(BlockId(*block)).unwrap().data.starts_with(text), "{block}");
    }
    assert_eq!(on_disk.next_data(512).unwrap(), Some(3 * 512));
}

#[test]
fn next_to_pointers_that_are_damaged_blocks_can_be_written_and_freed() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    for block in 0..70 {
        object.write(&tx, block * 512, format!("block {block}").as_bytes()).unwrap();
    }
    drop(tx);
    // 32 pointers in an indirect block.
    world.sync_with_lie(Lie::Level { level: Level(1), block: BlockId(1), index: 7 });
    let damaged = BlockId(32 + 7);
    assert!(object.check_blocks(damaged..BlockId(damaged.0 + 1)).unwrap_err().is_damage());
    assert!(object.check_blocks(BlockId(0)..BlockId(70)).unwrap_err().is_damage());
    let tx = world.engine.begin(&[&object]).unwrap();
    assert!(object.write(&tx, damaged.0 * 512, &[1; 512]).unwrap_err().is_damage());
    assert!(object.free(&tx, 0, Extent::ToEnd).unwrap_err().is_damage());
    object.write(&tx, (damaged.0 + 1) * 512, &[1; 512]).unwrap();
    object.free(&tx, 33 * 512, Extent::Bytes(512)).unwrap();
    drop(tx);
    world.sync(1, |_, _| {});
    let on_disk = world.reopened().object(object.id()).unwrap();
    assert!(on_disk.read_block(damaged).unwrap_err().is_damage());
    assert_eq!(on_disk.read_block(BlockId(damaged.0 + 1)).unwrap().data, [1; 512][..]);
    assert_eq!(on_disk.read_block(BlockId(33)).unwrap().data, [0; 512][..]);
    assert!(on_disk.read_block(BlockId(38)).unwrap().data.starts_with(b"block 38"));
}

#[test]
fn pieces_to_free_are_as_long_as_they_may_be() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    // Dense, sparse, and far away: 32 pointers in an indirect block.
    let blocks: Vec<u64> = (0..70).chain((80..400).step_by(7)).chain([5000, 40_000]).collect();
    for block in &blocks {
        object.write(&tx, block * 512, &(block + 1).to_le_bytes()).unwrap();
    }
    drop(tx);
    assert_eq!(object.last_piece(BlockId(0)..BlockId(u64::MAX), 5).unwrap().blocks, 0);
    world.sync(1, |_, _| {});
    assert_eq!(object.blocks_on_disk(), blocks.len() as u64);
    for (start, end) in [(0, u64::MAX), (0, 64), (3, 90), (31, 33), (33, 5001), (71, 80), (9, 9)] {
        for most in [1, 2, 31, 32, 33, 100, 1000] {
            let inside: Vec<u64> =
                blocks.iter().copied().filter(|block| (start..end).contains(block)).collect();
            let count = inside.len().min(most);
            let first = inside.len().checked_sub(most + 1).map_or(start, |last| inside[last] + 1);
            let piece = object.last_piece(BlockId(start)..BlockId(end), most as u64).unwrap();
            let found = (piece.first.0, piece.blocks);
            assert_eq!(found, (first, count as u64), "{start}..{end}, {most}");
        }
    }
}

#[test]
fn a_log_header_is_written_by_its_txg_alone() {
    let mut world = World::new(ORDINARY);
    let header = |seq| ZilHeader { replayed_seq: seq, ..ZilHeader::default() };
    let seen = |world: &World| world.reopened().log_header().unwrap().replayed_seq;
    let tx = world.engine.begin(&[]).unwrap();
    assert!(world.objset.is_clean());
    world.objset.set_log_header(&tx, header(1));
    assert!(world.objset.is_dirty(tx.txg()) && !world.objset.is_clean());
    drop(tx);
    let older = world.engine.quiesce().unwrap();
    let tx = world.engine.begin(&[]).unwrap();
    world.objset.set_log_header(&tx, header(2));
    drop(tx);
    assert_eq!(world.objset.log_header().unwrap(), header(2));
    world.sync_group(older);
    assert_eq!(seen(&world), 1);
    assert_eq!(world.objset.log_header().unwrap(), header(2));
    assert!(!world.objset.is_clean());
    world.sync(1, |_, _| {});
    assert_eq!(seen(&world), 2);
    assert!(world.objset.is_clean());
    // A later pass may change what the first one has written.
    let tx = world.engine.begin(&[]).unwrap();
    world.objset.set_log_header(&tx, header(3));
    drop(tx);
    world.sync(2, |objset, tx| objset.set_log_header(tx, header(4)));
    assert_eq!(seen(&world), 4);
    // Without a change it stays.
    let tx = world.engine.begin(&[]).unwrap();
    world.objset.allocate(&tx, file()).unwrap();
    drop(tx);
    world.sync(1, |_, _| {});
    assert_eq!(seen(&world), 4);
}

#[test]
fn later_passes_rewrite_in_place() {
    let mut world = World::new(WorldOptions { id: ObjsetId::MOS, ..ORDINARY });
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    object.write(&tx, 0, &[7; 400]).unwrap();
    drop(tx);
    let mut addresses = Vec::new();
    world.sync(6, |objset, tx| {
        let object = objset.object(ObjectId(1)).unwrap();
        object.write(tx, u64::from(tx.pass()), &[tx.pass() as u8]).unwrap();
        let root = *objset.synced().root();
        addresses.push(root.dvas().collect::<Vec<_>>());
    });
    // The first rewrite of a compressed block may change its size, not the later ones.
    assert!(addresses.windows(2).skip(1).all(|pair| pair[0] == pair[1]), "{addresses:?}");
    let mut expected = [7; 400];
    (2..=6).for_each(|pass| expected[pass] = pass as u8);
    let contents = world.reopened().object(ObjectId(1)).unwrap().read_bytes(0, 400).unwrap();
    assert_eq!(contents, expected[..]);
}

#[test]
fn a_younger_group_sees_and_keeps_what_the_older_one_wrote() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    object.write(&tx, 0, &[1; 1024]).unwrap();
    drop(tx);
    let older = world.engine.quiesce().unwrap();
    let tx = world.engine.begin(&[&object]).unwrap();
    assert!(tx.txg() > older.txg());
    object.write(&tx, 256, &[2; 512]).unwrap();
    object.free(&tx, 1000, Extent::ToEnd).unwrap();
    drop(tx);
    let expected = [[1; 256].as_slice(), &[2; 512], &[1; 232], &[0; 24]].concat();
    let mut bytes = vec![9; 1024];
    object.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
    world.sync_group(older);
    assert_eq!(
        world.reopened().object(object.id()).unwrap().read_bytes(0, 1024).unwrap(),
        [1; 1024][..]
    );
    object.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
    world.sync(1, |_, _| {});
    assert_eq!(
        world.reopened().object(object.id()).unwrap().read_bytes(0, 1024).unwrap(),
        expected
    );
}

#[test]
fn nothing_comes_of_what_a_superseded_set_was_to_become() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    object.write(&tx, 0, &[1; 512]).unwrap();
    drop(tx);
    let older = world.engine.quiesce().unwrap();
    // A transaction is half done when the sets are exchanged.
    let tx = world.engine.begin(&[&object]).unwrap();
    object.write(&tx, 0, &[2; 512]).unwrap();
    let new = world.objset.allocate(&tx, file()).unwrap();
    let begun = object.begin_read(0..1).unwrap();
    world.sync_group(older);
    let successor = LiveObjset::open(world.reopened());
    let old = world.objset.clone();
    assert!(!old.is_clean());
    old.supersede();
    assert!(old.is_clean() && old.is_superseded() && !successor.is_superseded());
    let errors = [
        object.write(&tx, 512, &[3; 512]).unwrap_err(),
        new.write(&tx, 0, &[3; 512]).unwrap_err(),
        object.read_block(BlockId(0)).unwrap_err(),
        old.object(object.id()).unwrap_err(),
        old.allocate(&tx, file()).unwrap_err(),
        old.claim(&tx, ObjectId(77), file()).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, DmuError::Superseded { .. }), "{error}");
    }
    // The contents in memory when the read began.
    assert_eq!(begun.finish()[0].as_ref().unwrap().data, [2; 512][..]);
    drop(tx);
    assert!(old.is_clean());
    let after = successor.object(object.id()).unwrap();
    assert_eq!(after.read_block(BlockId(0)).unwrap().data, [1; 512][..]);
    assert!(matches!(successor.object(new.id()), Err(DmuError::NotAllocated { .. })));
}

#[test]
fn a_batch_is_read_as_it_is_now_wherever_its_blocks_are() {
    let mut world = World::new(ORDINARY);
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, file()).unwrap();
    for block in 0..6 {
        object.write(&tx, u64::from(block) * 512, &[block + 1; 512]).unwrap();
    }
    drop(tx);
    world.sync(1, |_, _| {});
    let tx = world.engine.begin(&[&object]).unwrap();
    let first = object.clone_sources(0..1).unwrap();
    object.clone_blocks(&tx, BlockId(4), &first).unwrap();
    object.write(&tx, 512, &[9]).unwrap();
    object.free(&tx, 1024, Extent::Bytes(512)).unwrap();
    drop(tx);
    let read = object.begin_read(0..8).unwrap().finish().into_iter();
    let starts: Vec<u8> = read.map(|block| block.unwrap().data[0]).collect();
    assert_eq!(starts, [1, 9, 0, 4, 1, 6, 0, 0]);
    let mut bytes = [7; 4096];
    object.read_at(0, &mut bytes).unwrap();
    let firsts: Vec<u8> = bytes.chunks(512).map(|block| block[0]).collect();
    assert_eq!(firsts, starts);
    assert_eq!(object.clone_sources(4..5).unwrap(), first);
    assert_eq!(object.clone_sources(2..3).unwrap(), [CloneSource::Hole]);
    assert_eq!(object.clone_sources(0..4).unwrap(), [first[0], CloneSource::Dirty]);
}

#[test]
fn blocks_can_be_read_before_they_are_on_the_device() {
    for largest in [ORDINARY.largest, 1024] {
        let compression = CompressionFunction::Off;
        let mut world = World::new(WorldOptions { largest, compression, ..ORDINARY });
        let tx = world.engine.begin(&[]).unwrap();
        let new = NewObject { data_block_size: 4096, ..file() };
        let object = world.objset.allocate(&tx, new).unwrap();
        // Fewer writes than fit in the queue, with devices that accept none of them.
        let contents: Vec<u8> = (0..40 * 4096_u32).map(|at| (at / 7) as u8).collect();
        object.write(&tx, 0, &contents).unwrap();
        drop(tx);
        let id = object.id();
        drop(object);
        world.sync_slowly(|objset| {
            let mut read = vec![0; contents.len()];
            objset.object(id).unwrap().read_at(0, &mut read).unwrap();
            assert!(read == contents, "pieces of at most {largest}");
        });
    }
}

#[test]
fn numbers_are_found_past_full_blocks_and_used_again() {
    let mut world = World::new(ORDINARY);
    let allocate = |world: &World, count: usize, slots| {
        let tx = world.engine.begin(&[]).unwrap();
        let new = NewObject { slots, ..file() };
        (0..count).map(|_| world.objset.allocate(&tx, new).unwrap()).collect::<Vec<_>>()
    };
    let first = allocate(&world, 100, 1);
    assert!(first.iter().map(|object| object.id().0).eq(1..=100));
    let large = allocate(&world, 40, 3);
    let ids: Vec<u64> = large.iter().map(|object| object.id().0).collect();
    assert!(ids.iter().all(|id| id % 32 + 3 <= 32), "{ids:?} cross blocks");
    assert!(ids.windows(2).all(|pair| pair[0] + 3 <= pair[1]));
    let tx = world.engine.begin(&[]).unwrap();
    assert!(world.objset.claim(&tx, ObjectId(50), file()).unwrap().is_none());
    assert!(world.objset.claim(&tx, ObjectId(ids[0] + 1), file()).unwrap().is_none());
    let far = world.objset.claim(&tx, ObjectId(100_000), file()).unwrap().unwrap();
    drop(tx);
    world.sync(1, |_, _| {});
    let tx = world.engine.begin(&[&first[49], &far]).unwrap();
    first[49].destroy(&tx).unwrap();
    far.destroy(&tx).unwrap();
    assert!(world.objset.object(ObjectId(50)).is_err());
    drop(tx);
    world.sync(1, |_, _| {});
    let tx = world.engine.begin(&[]).unwrap();
    assert!(world.objset.claim(&tx, ObjectId(50), file()).unwrap().is_some());
    drop(tx);
    world.sync(1, |_, _| {});
    let on_disk = world.reopened();
    assert_eq!(on_disk.objects().count() as u64, on_disk.root().fill());
    assert_eq!(on_disk.root().fill(), 140);
}

#[test]
fn no_number_is_given_twice_while_others_are_synced() {
    const ROUNDS: u64 = 24;
    const CLAIMERS: usize = 4;
    const ALLOCATORS: usize = 2;
    const TOGETHER: u64 = 64;
    let mut world = World::new(ORDINARY);
    let (engine, objset) = (world.engine.clone(), world.objset.clone());
    let next = AtomicU64::new(1);
    let is_done = AtomicBool::new(false);
    // All claim the same numbers, or take any that is free: each has one owner, whatever is synced
    // meanwhile.
    let claim = |claimed: &mut Vec<ObjectId>| {
        let tx = engine.begin(&[]).unwrap();
        let first = next.load(Ordering::Relaxed);
        for number in first.saturating_sub(TOGETHER).max(1)..first {
            let object = objset.claim(&tx, ObjectId(number), file()).unwrap();
            claimed.extend(object.map(|object| object.id()));
        }
    };
    let allocate = |allocated: &mut Vec<ObjectId>| {
        let tx = engine.begin(&[]).unwrap();
        // Not so fast that nothing is left to be claimed.
        if ((allocated.len() * ALLOCATORS * 2) as u64) < next.load(Ordering::Relaxed) {
            allocated.push(objset.allocate(&tx, file()).unwrap().id());
        }
    };
    let repeat = |give: &(dyn Fn(&mut Vec<ObjectId>) + Sync)| {
        let mut given = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            give(&mut given);
        }
        given
    };
    let mut owners = std::thread::scope(|scope| {
        let claimers = (0..CLAIMERS).map(|_| scope.spawn(|| repeat(&claim)));
        let claimers: Vec<_> = claimers.collect();
        let allocators = (0..ALLOCATORS).map(|_| scope.spawn(|| repeat(&allocate)));
        let allocators: Vec<_> = allocators.collect();
        let end = SetWhenDropped(&is_done);
        for _ in 0..ROUNDS {
            next.fetch_add(TOGETHER / 4, Ordering::Relaxed);
            world.sync(1, |_, _| {});
        }
        drop(end);
        let of = |threads: Vec<std::thread::ScopedJoinHandle<'_, Vec<ObjectId>>>| {
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        };
        let (claimed, allocated) = (of(claimers), of(allocators));
        assert!(!claimed.is_empty() && !allocated.is_empty());
        [claimed, allocated].concat()
    });
    owners.sort_unstable();
    let twice: Vec<_> = owners.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "given twice: {twice:?}");
}
