//! Space maps that turn out to be damaged while a pool is open, and damaged dnodes.

use super::administration::{OBJECTS, administer_and_look, change_files, with_large_tables};
use super::{FILE, create_with, damage, damage_above, damage_object};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig};
use std::collections::BTreeMap;

/// What is wrong after `damage` has come over an open pool, which remembers little.
fn problems(rig: &Rig, damage: impl FnOnce(&Rig, &OpenPool)) -> Vec<String> {
    let rig = rig.copy();
    let open = rig.open().unwrap();
    damage(&rig, &open);
    let cache = open.pool.pipeline().cache();
    cache.set_max(0);
    cache.clear();
    change_files(&open);
    let OpenPool { pool, file_systems, .. } = open;
    file_systems.values().for_each(|fs| fs.pause_reclaiming());
    drop(file_systems);
    administer_and_look(pool)
}

#[test]
fn no_space_map_that_is_damaged_suspends_an_open_pool() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let mut found = Vec::new();
    for number in (1..OBJECTS).map(ObjectId) {
        let Ok(object) = pool.mos().object(number) else { continue };
        let kind = object.dnode().object_type;
        if kind != ObjectType::SPACE_MAP {
            continue;
        }
        let problems = problems(&rig, |rig, open| {
            let object = open.pool.mos().object(number).unwrap();
            assert!(damage_object(rig, &object) + damage_above(rig, &object) > 0);
        });
        let at = |problem| format!("object {number} ({kind:?}): {problem}");
        found.extend(problems.into_iter().map(at));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_damaged_block_of_dnodes_of_a_pool_suspends_it() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let meta = pool.mos().meta_object().unwrap();
    let mut found = Vec::new();
    for block in 0..=meta.dnode().max_block_id.0 {
        let pointer = meta.pointers(0, block..block + 1).remove(0).unwrap();
        if pointer.is_hole() {
            continue;
        }
        let rig = rig.copy();
        damage(&rig, &pointer);
        let problems = super::administration::problems(&rig);
        found.extend(problems.into_iter().map(|problem| format!("dnodes {block}: {problem}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_block_of_dnodes_that_is_damaged_suspends_an_open_pool() {
    let Some(rig) = with_large_tables() else { return };
    let found = problems(&rig, |rig, open| {
        let meta = open.pool.mos().meta_object().unwrap();
        assert!(damage_object(rig, &meta) > 1 && damage_above(rig, &meta) > 0);
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_objects_that_are_damaged_suspend_an_open_pool() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let mut kinds = BTreeMap::<_, Vec<ObjectId>>::new();
    for number in (1..OBJECTS).map(ObjectId) {
        let Ok(object) = pool.mos().object(number) else { continue };
        let kind = object.dnode().object_type;
        // Space maps have their own test.
        if kind != ObjectType::SPACE_MAP {
            kinds.entry(kind.number()).or_default().push(number);
        }
    }
    let mut found = Vec::new();
    for (kind, numbers) in kinds {
        let problems = problems(&rig, |rig, open| {
            for number in numbers {
                let Ok(object) = open.pool.mos().object(number) else { continue };
                damage_object(rig, &object);
                damage_above(rig, &object);
            }
        });
        // The name of what is to be destroyed cannot be taken out of a damaged directory.
        let is_unfair = |problem: &String| {
            kind != ObjectType::DSL_DIR_CHILD_MAP.number() || !problem.starts_with("destroy")
        };
        let at = |problem| format!("objects of type {kind}: {problem}");
        found.extend(problems.into_iter().filter(is_unfair).map(at));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Values of the properties `checksum` and `compression`.
const SHA512: u64 = 11;
const SKEIN: u64 = 12;
const ZSTD: u64 = 16;

#[test]
fn where_nobody_can_note_that_a_log_is_used_it_is_used_all_the_same() {
    let (rig, open) = create_with(FeatureSet::Default);
    // So many features that the dataset has a block with their names.
    for (property, value) in [("checksum", SHA512), ("checksum", SKEIN), ("compression", ZSTD)] {
        open.pool.set_property(rig.name(), property, value.into()).unwrap();
        let name = format!("{property}-{value}");
        Files(open.root().unwrap().1).put(&name, &[7; 100_000]).unwrap();
        open.sync().unwrap();
    }
    // An import looks at what is new.
    for number in 0..8 {
        Files(open.root().unwrap().1).put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let dataset = pool.datasets().open(rig.name()).unwrap().object();
    assert!(damage_object(&rig, &pool.mos().object(dataset).unwrap()) > 0);
    let open = rig.open().unwrap();
    let fs = open.root().unwrap().1;
    Files(fs).put(FILE, b"new").unwrap();
    for round in 0..3 {
        Files(fs).write(FILE, round, b"changed").unwrap();
        Files(fs).set_xattr(FILE, "user.round", &[round as u8]).unwrap();
        fs.commit_all().unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
}
