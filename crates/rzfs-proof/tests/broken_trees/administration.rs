//! Administration of a pool with damaged objects: requests succeed or are refused.

use super::{CLONE, SNAPPED, damage_object, with_snapshots};
use rzfs_dsl::live::{
    ChangeError, Destruction, Inherit, LivePool, NewBookmark, NewClone, NewDataset, NewSnapshots,
};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::znode::Timestamp;
use rzfs_proof::{Files, OpenPool, Rig};
use rzfs_zpl::live::NewFileSystem;
use std::sync::Arc;

/// A snapshot that is destroyed with its clone, where there is one.
const WAITING: &str = "g01/sa@waiting";
const AFTER: &str = "g01/sa@waiting-no-more";
const ITS_CLONE: &str = "g01/its-clone";
/// Properties of a dataset: more than its dnode has room for.
const PROPERTIES: usize = 40;
/// Datasets that are made: more than tables of them can have without a block of their own.
const MADE: usize = 12;
/// Snapshots that are taken: more than fit into the pointer to a block of a table.
const SNAPSHOTS: usize = 30;
/// What administrators change, and is not needed for an import.
const CHANGED: [ObjectType; 9] = [
    ObjectType::DEADLIST,
    ObjectType::DSL_DIR_CHILD_MAP,
    ObjectType::DSL_DS_SNAP_MAP,
    ObjectType::USERREFS,
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
    let_time_pass(&rig);
    Some(rig)
}

/// Syncs more txgs: an import reads recent blocks, and would notice damage.
fn let_time_pass(rig: &Rig) {
    let open = rig.open().unwrap();
    for _ in 0..8 {
        let name = format!("later-{}", open.pool.synced_txg());
        Files(open.root().unwrap().1).put(&name, b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
}

/// Performs administrative operations, and returns their results.
fn administer(pool: &LivePool) -> Vec<(&'static str, Result<(), ChangeError>)> {
    let set = |name: &str, property: &str| pool.set_property(name, property, "new".into());
    let limit = |name: &str, property: &str| pool.set_property(name, property, 77_u64.into());
    let size = |property: &str| pool.set_property(CLONE, property, (9_u64 << 20).into());
    let inherit = |name: &str| pool.inherit_property(name, "org.example:5", Inherit::Parent);
    let create = |name: &str| pool.create_dataset(name, new_file_system()).map(drop);
    let snapshot = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() })
    };
    let snapshots = |name: &str| vec![name.to_owned()];
    let clone = |name: &str, origin: &str| {
        pool.clone_snapshot(name, &NewClone { origin: origin.to_owned(), properties: Vec::new() })
    };
    let bookmark = |source: &str, name: &str| {
        pool.create_bookmarks(&[NewBookmark { source: source.to_owned(), name: name.to_owned() }])
    };
    let destroy = |name: &str, how| pool.destroy_snapshots(&snapshots(name), how);
    vec![
        ("snapshot", snapshot(&["g01/sa@new"])),
        ("snapshots", snapshot(&["g01@new", "g01/clone@new"])),
        ("hold", pool.hold_snapshots(&snapshots("g01/sa@new"), "tag")),
        ("deferred destruction", destroy("g01/sa@new", Destruction::Deferred)),
        ("release", pool.release_snapshots(&snapshots("g01/sa@new"), "tag")),
        ("rename of a snapshot", pool.rename_snapshots(&snapshots("g01@new"), "newer")),
        ("bookmark", bookmark("g01/sa@s1", "g01/sa#new")),
        ("bookmark destruction", pool.destroy_bookmarks(&snapshots("g01/sa#new"))),
        ("clone", clone("g01/cloned", "g01/clone@new")),
        ("promotion", pool.promote("g01/cloned")),
        ("rollback", pool.roll_back("g01/sa")),
        ("snapshot destruction", destroy("g01@newer", Destruction::AtOnce)),
        ("deferred destruction of an origin", destroy("g01/sa@s1", Destruction::Deferred)),
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
        ("destroy what a snapshot waits for", pool.destroy_dataset(ITS_CLONE)),
    ]
}

/// Changes the files of all file systems.
pub(crate) fn change_files(open: &OpenPool) {
    for fs in open.file_systems.values() {
        // Impossible changes are refused.
        let _ = Files(fs).put("changed", &[5; 300_000]);
        let _ = open.sync();
        let _ = Files(fs).unlink("changed");
    }
}

/// The errors after users and administrators have worked in a damaged pool.
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

/// Whether damage excuses a refusal: space may be lost, but anything damaged can be destroyed.
fn is_fair(task: &str, refusal: &ChangeError) -> bool {
    match refusal {
        ChangeError::NotFound { .. } => true,
        ChangeError::Unreadable(_) | ChangeError::Dataset(_) => !task.starts_with("destroy"),
        ChangeError::Each(refusals) => refusals.iter().all(|(_, refusal)| is_fair(task, refusal)),
        _ => false,
    }
}

/// Administers a pool, and exports it; returns the errors.
pub(crate) fn administer_and_look(pool: LivePool) -> Vec<String> {
    let mut problems = Vec::new();
    for (task, result) in administer(&pool) {
        if let Err(error) = result
            && !is_fair(task, &error)
        {
            problems.push(format!("{task}: {error}"));
        }
    }
    let _ = (0..4).try_for_each(|_| pool.sync());
    problems.extend(pool.failure().map(|failure| format!("suspended: {failure}")));
    pool.give_up_waiting();
    problems.extend(pool.export().err().map(|error| error.to_string()));
    problems
}

/// The errors when each of some objects of a pool is damaged in turn.
fn problems_of_each(rig: &Rig, objects: impl IntoIterator<Item = ObjectId>) -> Vec<String> {
    let pool = rig.read().unwrap();
    let mut found = Vec::new();
    for object in objects.into_iter().filter_map(|number| pool.mos().object(number).ok()) {
        let rig = rig.copy();
        if damage_object(&rig, &object) > 0 {
            let (number, kind) = (object.id(), object.dnode().object_type);
            let at = |problem| format!("object {number} ({kind:?}): {problem}");
            found.extend(problems(&rig).into_iter().map(at));
        }
    }
    found
}

#[test]
fn no_damaged_object_of_a_pool_suspends_it_when_it_is_administered() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let clone = pool.datasets().open(CLONE).unwrap();
    let mut objects = vec![clone.object(), clone.directory_object()];
    let objects_of_pool =
        (1..OBJECTS).filter_map(|number| pool.mos().object(ObjectId(number)).ok());
    let changed = objects_of_pool.filter(|object| CHANGED.contains(&object.dnode().object_type));
    objects.extend(changed.map(|object| object.id()));
    assert_eq!(problems_of_each(&rig, objects), [""; 0]);
}

/// The same with many snapshots, so that dead lists have blocks of their own, too.
pub(crate) fn with_many_snapshots() -> Option<Rig> {
    let rig = with_large_tables()?;
    let pool = rig.open_pool().unwrap();
    let new = |name: String| NewSnapshots { names: vec![name], ..NewSnapshots::default() };
    for number in 0..SNAPSHOTS {
        pool.take_snapshots(&new(format!("{SNAPPED}@{number}"))).unwrap();
        pool.take_snapshots(&new(format!("{CLONE}@{number}"))).unwrap();
    }
    pool.export().unwrap();
    let_time_pass(&rig);
    Some(rig)
}

/// There is no caller to refuse when a deferred snapshot is destroyed with its clone.
#[test]
fn nor_does_it_when_a_snapshot_goes_by_itself() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.open_pool().unwrap();
    let new = |name: &str| NewSnapshots { names: vec![name.to_owned()], ..NewSnapshots::default() };
    // A dead list has a key for each.
    let names = (0..SNAPSHOTS).map(|number| format!("g01/sa@{number}"));
    for name in names.chain([WAITING.to_owned(), AFTER.to_owned()]) {
        pool.take_snapshots(&new(&name)).unwrap();
    }
    let clone = NewClone { origin: WAITING.to_owned(), properties: Vec::new() };
    pool.clone_snapshot(ITS_CLONE, &clone).unwrap();
    pool.destroy_snapshots(&[WAITING.to_owned()], Destruction::Deferred).unwrap();
    pool.export().unwrap();
    let_time_pass(&rig);
    let pool = rig.read().unwrap();
    let dataset = |name: &str| pool.datasets().open(name).unwrap().dsl_dataset().clone();
    let (head, waiting, after) = (dataset(SNAPPED), dataset(WAITING), dataset(AFTER));
    let objects = [head.snapshot_names, waiting.deadlist, after.deadlist, waiting.next_clones];
    assert_eq!(problems_of_each(&rig, objects.into_iter().flatten()), [""; 0]);
}
