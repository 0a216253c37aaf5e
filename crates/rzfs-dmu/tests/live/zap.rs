//! ZAPs in live objects, compared with a map, across transaction groups and on disk.

use std::collections::BTreeMap;

use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObject, NewObject};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_zap::{NewZap, Normalization, Zap, ZapError, ZapFlags, ZapForm, verify};

use crate::ORDINARY;
use crate::world::World;

type Map = BTreeMap<String, u64>;

fn directory<'a>() -> NewObject<'a> {
    NewObject {
        object_type: ObjectType::DIRECTORY_CONTENTS,
        data_block_size: 512,
        indirect_shift: 17,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    }
}

fn name(number: u64) -> String {
    format!("entry-number-{number}")
}

fn contents<B: rzfs_zap::ZapBlocks>(zap: &Zap<B>) -> Map {
    let entries = zap.entries().map(|entry| entry.unwrap());
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    entries.map(|entry| (text(entry.name()), entry.value.as_u64().unwrap())).collect()
}

/// Checks that the ZAP on disk is valid and has these entries.
fn judge(world: &World, id: ObjectId, expected: &Map) -> ZapForm {
    let object = world.reopened().object(id).unwrap();
    assert_eq!(verify(&object).unwrap(), []);
    let zap = object.zap().unwrap();
    assert_eq!(&contents(&zap), expected);
    zap.form()
}

fn create(world: &mut World, new: &NewZap) -> (LiveObject, Zap<LiveObject>) {
    let tx = world.engine.begin(&[]).unwrap();
    let object = world.objset.allocate(&tx, directory()).unwrap();
    let zap = object.create_zap(&tx, new).unwrap();
    (object, zap)
}

#[test]
fn a_directory_grows_and_shrinks_through_groups() {
    let mut world = World::new(ORDINARY);
    let new = NewZap::new(0xce02_cf35).normalization(Normalization::FOLD_CASE);
    let (object, mut zap) = create(&mut world, &new);
    let mut map = Map::new();
    for group in 0..12 {
        for number in group * 500..(group + 1) * 500 {
            let tx = world.engine.begin(&[&object]).unwrap();
            zap.writer(object.zap_blocks(&tx)).insert(&name(number), number).unwrap();
            map.insert(name(number), number);
            if number % 3 == 0 {
                zap.writer(object.zap_blocks(&tx)).remove(&name(number / 2)).unwrap();
                map.remove(&name(number / 2));
            }
        }
        world.sync(1, |_, _| {});
        let form = judge(&world, object.id(), &map);
        assert_eq!(form == ZapForm::Fat, map.len() > 2047 || group > 6, "group {group}");
        assert_eq!(contents(&zap), map);
    }
    for number in 0..6000 {
        let tx = world.engine.begin(&[&object]).unwrap();
        let removed = zap.writer(object.zap_blocks(&tx)).remove(&name(number)).unwrap();
        assert_eq!(removed, map.remove(&name(number)).is_some());
        drop(tx);
        if number % 1500 == 0 {
            world.sync(1, |_, _| {});
        }
    }
    world.sync(1, |_, _| {});
    judge(&world, object.id(), &Map::new());
    let dnode = world.reopened().object(object.id()).unwrap().dnode().clone();
    assert_eq!((dnode.max_block_id.0, dnode.data_block_size), (1, 16384));
}

#[test]
fn what_syncs_is_the_zap_of_its_group() {
    let mut world = World::new(ORDINARY);
    let (object, mut zap) = create(&mut world, &NewZap::new(7).fat(ZapFlags::NONE, 4096));
    let mut map = Map::new();
    let add =
        |world: &World, zap: &mut Zap<LiveObject>, map: &mut Map, range: std::ops::Range<u64>| {
            for number in range {
                let tx = world.engine.begin(&[&object]).unwrap();
                zap.writer(object.zap_blocks(&tx)).insert(&name(number), number).unwrap();
                map.insert(name(number), number);
            }
        };
    add(&world, &mut zap, &mut map, 0..300);
    for round in 1..6 {
        let older = world.engine.quiesce().unwrap();
        let frozen = map.clone();
        add(&world, &mut zap, &mut map, round * 300..(round + 1) * 300);
        world.sync_group(older);
        judge(&world, object.id(), &frozen);
        assert_eq!(contents(&zap), map);
    }
    assert_eq!(contents(&object.zap().unwrap()), map);
}

#[test]
fn a_zap_of_a_superseded_set_is_not_taken_for_damaged() {
    let mut world = World::new(ORDINARY);
    for new in [NewZap::new(1), NewZap::new(2).fat(ZapFlags::NONE, 4096)] {
        let (object, mut zap) = create(&mut world, &new);
        let tx = world.engine.begin(&[&object]).unwrap();
        zap.writer(object.zap_blocks(&tx)).insert("name", 7).unwrap();
        world.objset.supersede();
        let inserted = zap.writer(object.zap_blocks(&tx)).insert("another", 8);
        let removed = zap.writer(object.zap_blocks(&tx)).remove("name").map(drop);
        let looked_up = match zap.form() {
            // It is entirely in memory.
            ZapForm::Micro => None,
            ZapForm::Fat => Some(zap.lookup("name").map(drop)),
        };
        let opened = object.zap().map(drop);
        for outcome in [inserted, removed, opened].into_iter().chain(looked_up) {
            let error = outcome.unwrap_err();
            let is_told = matches!(error, ZapError::Blocks(DmuError::Superseded { .. }));
            assert!(is_told, "{new:?}: {error}");
        }
        drop(tx);
        world = World::new(ORDINARY);
    }
}
