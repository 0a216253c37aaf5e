//! What a pool says about its datasets and lists is not so, though every checksum is right: nothing
//! that administrators ask for suspends it.

use super::administration::{OBJECTS, administer_and_look, with_large_tables, with_many_snapshots};
use super::forged::Forger;
use super::{CLONE, SNAPPED, dead_list, lists};
use rzfs_dmu::Object;
use rzfs_dsl::Pool;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::Rig;

/// Where a dataset's record names others.
const DATASET_FIELDS: [(&str, usize); 9] = [
    ("directory", 0x00),
    ("previous snapshot", 0x08),
    ("previous snapshot's txg", 0x10),
    ("next snapshot", 0x18),
    ("names of snapshots", 0x20),
    ("children", 0x28),
    ("dead list", 0x40),
    ("clones", 0x100),
    ("holds", 0x110),
];
/// Where a directory's record names others.
const DIRECTORY_FIELDS: [(&str, usize); 6] = [
    ("head", 0x08),
    ("parent", 0x10),
    ("origin", 0x18),
    ("children", 0x20),
    ("properties", 0x50),
    ("clones", 0x90),
];
/// Whose records say so.
const TRIED: [&str; 3] = [SNAPPED, CLONE, "g01/sa@s1"];
/// An object that no pool has, and one that is something else than a list or a dataset.
const NOTHING: u64 = 1 << 20;
const OTHER: u64 = 1;

/// Problems with each of these pools, that are read as they should not be.
fn problems(rig: &Rig, forgeries: Vec<(String, Forger)>) -> Vec<String> {
    let mut found = Vec::new();
    for (what, forger) in forgeries {
        println!("{what}");
        // Whoever cannot open it is told so.
        let Some(pool) = forger.try_open(&rig.copy()) else { continue };
        let problems = administer_and_look(pool);
        let fatal = |problem: &String| problem.starts_with("suspended");
        found
            .extend(problems.into_iter().filter(fatal).map(|problem| format!("{what}: {problem}")));
    }
    found
}

fn opened(pool: &Pool) -> Vec<(&'static str, ObjectId, ObjectId)> {
    let names = ["g01", SNAPPED, CLONE, "g01/sa@s1", "g01/sa@s2"];
    let open = |name: &&'static str| {
        let dataset = pool.datasets().open(name).unwrap();
        (*name, dataset.object(), dataset.directory_object())
    };
    names.iter().map(open).collect()
}

#[test]
fn whatever_the_records_of_datasets_say_the_pool_goes_on() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let datasets = opened(&pool);
    let others: Vec<u64> = datasets.iter().map(|(_, dataset, _)| dataset.get()).collect();
    let mut forgeries = Vec::new();
    for (name, dataset, _) in datasets.iter().filter(|(name, ..)| TRIED.contains(name)) {
        for (field, at) in DATASET_FIELDS {
            let mut values = vec![0, NOTHING, dataset.get()];
            values.extend(others.iter().find(|other| **other != dataset.get()));
            for value in values {
                let forger = Forger::default().bonus(*dataset, at, &[value]);
                forgeries.push((format!("{field} of {name}: {value}"), forger));
            }
        }
    }
    assert_eq!(problems(&rig, forgeries), [""; 0]);
}

#[test]
fn whatever_the_records_of_directories_say_the_pool_goes_on() {
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let mut forgeries = Vec::new();
    for (name, dataset, dir) in opened(&pool).into_iter().filter(|(name, ..)| !name.contains('@')) {
        for (field, at) in DIRECTORY_FIELDS {
            // A pool without its root is none.
            if name == "g01" && field != "clones" && field != "origin" {
                continue;
            }
            for value in [0, NOTHING, dir.get(), dataset.get()] {
                let forger = Forger::default().bonus(dir, at, &[value]);
                forgeries.push((format!("{field} of the directory of {name}: {value}"), forger));
            }
        }
    }
    assert_eq!(problems(&rig, forgeries), [""; 0]);
}

/// Forgeries of the lists of a dead list or livelist.
fn forged_lists(pool: &Pool, name: &str, list: ObjectId) -> Vec<(String, Forger)> {
    let entries = |change: fn(&mut [(String, u64)])| Forger::default().entries(list, change);
    let mut forgeries = vec![
        (format!("no number as key of {name}"), entries(|all| all[0].0 = "xyz".to_owned())),
        (
            format!("no first key of {name}"),
            entries(|all| {
                let first = all.iter_mut().find(|(key, _)| key == "0").unwrap();
                first.0 = "ffff".to_owned();
            }),
        ),
        (format!("a key of the future in {name}"), entries(|all| all[0].0 = "fffffff".to_owned())),
        (format!("no list in {name}"), entries(|all| all.iter_mut().for_each(|one| one.1 = 0))),
        (
            format!("something else in {name}"),
            entries(|all| all.iter_mut().for_each(|one| one.1 = OTHER)),
        ),
        (
            format!("nothing in {name}"),
            entries(|all| all.iter_mut().for_each(|one| one.1 = NOTHING)),
        ),
    ];
    let mut lists = lists(pool, list);
    lists.dedup();
    for list in lists {
        let what = |what: &str| format!("{what} list {list} of {name}");
        let forger = Forger::default().bonus(list, 0, &[u64::MAX]);
        forgeries.push((what("too many entries in"), forger));
        let forger = Forger::default().bonus(list, 0x20, &[list.get(), 1]);
        forgeries.push((what("itself in"), forger));
        let forger = Forger::default().bonus(list, 0x20, &[OTHER, u64::MAX]);
        forgeries.push((what("too many lists in"), forger));
    }
    forgeries
}

#[test]
fn whatever_dead_lists_say_the_pool_goes_on() {
    let Some(rig) = with_many_snapshots() else { return };
    let pool = rig.read().unwrap();
    let mut forgeries = Vec::new();
    for name in [SNAPPED, CLONE, "g01/sa@28", "g01/sa@29", "g01/clone@29"] {
        forgeries.extend(forged_lists(&pool, name, dead_list(&pool, name)));
    }
    let clone = pool.datasets().open(CLONE).unwrap();
    let list = clone.directory_field("com.delphix:livelist").unwrap().unwrap();
    for value in [OTHER, NOTHING] {
        let forger = Forger::default().bonus(ObjectId(list), 0, &[value]);
        forgeries.push((format!("sums of a livelist: {value}"), forger));
    }
    let empty = pool.directory().object("empty_bpobj").unwrap().unwrap();
    let forger = Forger::default().bonus(empty, 0, &[u64::MAX]);
    forgeries.push(("too many entries in the empty list".to_owned(), forger));
    assert_eq!(problems(&rig, forgeries), [""; 0]);
}

/// Whether an object's contents are not within the pointer to them.
fn has_block(object: &Object) -> bool {
    let first = object.pointers(0, 0..1).remove(0).unwrap();
    !first.is_embedded() && !first.is_hole()
}

#[test]
fn whatever_tables_lead_to_the_pool_goes_on() {
    const TABLES: [ObjectType; 4] = [
        ObjectType::DSL_DIR_CHILD_MAP,
        ObjectType::DSL_DS_SNAP_MAP,
        ObjectType::NEXT_CLONES,
        ObjectType::DSL_CLONES,
    ];
    let Some(rig) = with_large_tables() else { return };
    let pool = rig.read().unwrap();
    let root = pool.datasets().root().unwrap().dsl_dir().children;
    let mut forgeries = Vec::new();
    for number in 2..OBJECTS {
        let Ok(object) = pool.mos().object(ObjectId(number)) else { continue };
        let kind = object.dnode().object_type;
        if !TABLES.contains(&kind) || Some(object.id()) == root || !has_block(&object) {
            continue;
        }
        for value in [0, OTHER, NOTHING] {
            let forger = Forger::default().entries(object.id(), move |all| {
                all.iter_mut().for_each(|one| one.1 = value);
            });
            forgeries.push((format!("{kind:?} {number}: {value}"), forger));
        }
    }
    assert_eq!(problems(&rig, forgeries), [""; 0]);
}
