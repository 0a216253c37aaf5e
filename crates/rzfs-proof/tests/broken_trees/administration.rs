//! Administrators of a pool whose own objects are damaged: what they ask for is done or refused.

use super::{CLONE, SNAPPED, damage_object, with_snapshots};
use rzfs_dsl::live::{ChangeError, Inherit, LivePool, NewDataset};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::znode::Timestamp;
use rzfs_proof::{Files, OpenPool, Rig};
use rzfs_zpl::live::NewFileSystem;
use std::sync::Arc;

/// Properties of a dataset: more than its dnode has room for.
const PROPERTIES: usize = 40;
/// Datasets that are made: more than tables of them can have without a block of their own.
const MADE: usize = 12;
/// What administrators change, and is not needed for an import.
const CHANGED: [ObjectType; 5] = [
    ObjectType::DSL_PROPS,
    ObjectType::NEXT_CLONES,
    ObjectType::DSL_CLONES,
    ObjectType::SPA_HISTORY,
    ObjectType::BPOBJ,
];
/// Objects of the pool have numbers below this one.
pub(crate) const OBJECTS: u64 = 400;

fn new_file_system() -> NewDataset {
    let created = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    NewDataset::new(Arc::new(NewFileSystem::new(created, 7)), Vec::new())
}

/// A pool of OpenZFS whose tables have blocks of their own.
pub(crate) fn with_large_tables() -> Option<Rig> {
    let rig = with_snapshots()?;
    let pool = rig.open_pool().unwrap();
    pool.set_property("g01", "filesystem_limit", 100_u64.into()).unwrap();
    for name in ["g01", SNAPPED, CLONE, "g01/sa@s1"] {
        let property = |number| (format!("org.example:{number}"), "value".into());
        pool.set_properties(name, &(0..PROPERTIES).map(property).collect::<Vec<_>>()).unwrap();
    }
    for number in 0..MADE {
        pool.create_dataset(&format!("g01/made-{number}"), new_file_system()).unwrap();
        pool.create_dataset(&format!("{SNAPPED}/made-{number}"), new_file_system()).unwrap();
    }
    pool.export().unwrap();
    // An import reads what is new, and would notice.
    let open = rig.open().unwrap();
    for number in 0..8 {
        Files(open.root().unwrap().1).put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    Some(rig)
}

/// What administrators do, and what they are told.
fn administer(pool: &LivePool) -> Vec<(&'static str, Result<(), ChangeError>)> {
    let set = |name: &str, property: &str| pool.set_property(name, property, "new".into());
    let limit = |name: &str, property: &str| pool.set_property(name, property, 77_u64.into());
    let size = |property: &str| pool.set_property(CLONE, property, (9_u64 << 20).into());
    let inherit = |name: &str| pool.inherit_property(name, "org.example:5", Inherit::Parent);
    let create = |name: &str| pool.create_dataset(name, new_file_system()).map(drop);
    vec![
        ("set", set(SNAPPED, "org.example:new")),
        ("set of the root", set("g01", "org.example:3")),
        ("quota", size("quota")),
        ("refreservation", size("refreservation")),
        ("limit", limit("g01/ldn", "filesystem_limit")),
        ("limit of the root", limit("g01", "snapshot_limit")),
        ("inherit", inherit(SNAPPED)),
        ("set of a snapshot", set("g01/sa@s1", "org.example:new")),
        ("inherit of a snapshot", inherit("g01/sa@s1")),
        ("set of the pool", pool.set_pool_property("org.example:pool", "new".into())),
        ("create", create("g01/new")),
        ("create below", create("g01/sa/new")),
        ("rename", pool.rename_dataset("g01/new", "g01/newer")),
        ("rename elsewhere", pool.rename_dataset("g01/sa/made-3", "g01/moved")),
        ("rename a clone", pool.rename_dataset(CLONE, "g01/sa/clone")),
        ("destroy", pool.destroy_dataset("g01/newer")),
        ("destroy below", pool.destroy_dataset("g01/sa/made-1")),
        ("destroy a clone", pool.destroy_dataset("g01/sa/clone")),
        ("destroy it where it was", pool.destroy_dataset(CLONE)),
    ]
}

/// Changes the files of all file systems.
pub(crate) fn change_files(open: &OpenPool) {
    for fs in open.file_systems.values() {
        // What cannot be changed is refused.
        let _ = Files(fs).put("changed", &[5; 300_000]);
        let _ = open.sync();
        let _ = Files(fs).unlink("changed");
    }
}

/// What is wrong after users and administrators have been at work in a damaged pool.
pub(crate) fn problems(rig: &Rig) -> Vec<String> {
    let pool = match rig.open() {
        Ok(open) => {
            change_files(&open);
            let OpenPool { pool, file_systems, .. } = open;
            file_systems.values().for_each(|fs| fs.pause_reclaiming());
            pool
        }
        Err(_) => match rig.open_pool() {
            Ok(pool) => pool,
            Err(_) => return Vec::new(),
        },
    };
    administer_and_look(pool)
}

/// Administers a pool, and exports it; says what is wrong.
pub(crate) fn administer_and_look(pool: LivePool) -> Vec<String> {
    let mut problems = Vec::new();
    for (task, result) in administer(&pool) {
        // Space may be lost, but whatever is damaged can be destroyed.
        let is_fair = match &result {
            Ok(()) | Err(ChangeError::NotFound { .. }) => true,
            Err(ChangeError::Unreadable(_)) => !task.starts_with("destroy"),
            Err(_) => false,
        };
        if !is_fair {
            problems.push(format!("{task}: {}", result.unwrap_err()));
        }
    }
    let _ = (0..4).try_for_each(|_| pool.sync());
    problems.extend(pool.failure().map(|failure| format!("suspended: {failure}")));
    pool.give_up_waiting();
    problems.extend(pool.export().err().map(|error| error.to_string()));
    problems
}

#[test]
fn no_damaged_object_of_a_pool_suspends_it_when_it_is_administered() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let clone = pool.datasets().open(CLONE).unwrap();
    let extended = [clone.object(), clone.directory_object()];
    let mut found = Vec::new();
    for number in (1..OBJECTS).map(ObjectId) {
        let Ok(object) = pool.mos().object(number) else { continue };
        let kind = object.dnode().object_type;
        if !CHANGED.contains(&kind) && !extended.contains(&number) {
            continue;
        }
        let rig = rig.copy();
        if damage_object(&rig, &object) > 0 {
            let at = |problem| format!("object {number} ({kind:?}): {problem}");
            found.extend(problems(&rig).into_iter().map(at));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
