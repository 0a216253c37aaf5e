//! Damage to dedup tables while entries are removed.

use super::judges::leaks_at_most;
use super::{LENGTH, contents, create_with, damage, damage_above, damage_object, works};
use rzfs_dsl::Pool;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig};

/// The property value `dedup=sha256`.
const SHA256: u64 = 8;
/// Txgs after which what was logged is in the tables.
const FLUSHED: u32 = 30;

fn pass_txgs(open: &OpenPool) {
    for mode in 0..FLUSHED {
        Files(open.root().unwrap().1).chmod("whole", mode).unwrap();
        open.sync().unwrap();
    }
}

/// A pool with blocks in its dedup tables, and recent ones that may still be logged.
fn with_tables(features: FeatureSet) -> Rig {
    let (rig, open) = create_with(features);
    open.pool.set_property(rig.name(), "dedup", SHA256.into()).unwrap();
    open.sync().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &contents(1)).unwrap();
    for name in ["twice", "twice again"] {
        files.put(name, &contents(2)).unwrap();
    }
    pass_txgs(&open);
    files.put("late", &contents(3)).unwrap();
    for name in ["late twice", "late twice again"] {
        files.put(name, &contents(4)).unwrap();
    }
    open.export().unwrap();
    rig
}

/// Changes the sharing of blocks, and checks the remaining files.
fn changes_and_works(rig: &Rig) {
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    for name in ["twice", "late twice"] {
        files.unlink(name).unwrap();
    }
    files.put("late again", &contents(3)).unwrap();
    files.put("new", &contents(5)).unwrap();
    pass_txgs(&open);
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    files.unlink("late").unwrap();
    files.put("newer", &contents(6)).unwrap();
    pass_txgs(&open);
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    let fs = open.root().unwrap().1;
    for (name, seed) in [("twice again", 2), ("late twice again", 4), ("late again", 3), ("new", 5)]
    {
        let mut bytes = vec![0; LENGTH];
        fs.read(Files(fs).find(name).unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes == contents(seed), "{name}");
    }
    open.export().unwrap();
    leaks_at_most(rig);
}

#[test]
fn entries_that_have_no_place_in_a_damaged_dedup_table_stay_in_its_log() {
    let rig = with_tables(FeatureSet::Default);
    let pool = rig.read().unwrap();
    let tables = (1..400).filter_map(|number| pool.mos().object(ObjectId(number)).ok());
    let tables = tables.filter(|object| object.dnode().object_type == ObjectType::DDT_ZAP);
    assert_eq!(
        tables.map(|table| damage_object(&rig, &table)).filter(|count| *count > 0).count(),
        2
    );
    changes_and_works(&rig);
}

#[test]
fn entries_that_have_no_place_in_a_damaged_dedup_table_stay_where_they_were() {
    let rig = with_tables(FeatureSet::NoFastDedup);
    // An import reads recent blocks, and would notice.
    let open = rig.open().unwrap();
    pass_txgs(&open);
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let table = pool.directory().object("DDT-sha256-zap-unique").unwrap().unwrap();
    assert!(damage_object(&rig, &pool.mos().object(table).unwrap()) > 0);
    changes_and_works(&rig);
}

/// The ZAPs of all tables.
fn tables(pool: &Pool) -> Vec<rzfs_dmu::Object> {
    let objects = (1..400).filter_map(|number| pool.mos().object(ObjectId(number)).ok());
    let tables = objects.filter(|object| object.dnode().object_type == ObjectType::DDT_ZAP);
    let tables: Vec<_> = tables.collect();
    assert_eq!(tables.len(), 2, "blocks with one reference, and with several");
    tables
}

/// An import reads recent blocks, and would notice.
fn age(rig: &Rig) {
    let open = rig.open().unwrap();
    for number in 0..8 {
        Files(open.root().unwrap().1).put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
}

#[test]
fn every_block_of_a_dedup_table_may_be_damaged() {
    for features in [FeatureSet::Default, FeatureSet::NoFastDedup] {
        let rig = with_tables(features);
        age(&rig);
        let pool = rig.read().unwrap();
        let mut damaged = 0;
        for table in tables(&pool) {
            for block in 0..=table.dnode().max_block_id.0 {
                let pointer = table.pointers(0, block..block + 1).remove(0).unwrap();
                if pointer.is_hole() || pointer.is_embedded() {
                    continue;
                }
                println!("{features:?}: object {}, block {block}", table.id());
                let rig = rig.copy();
                damage(&rig, &pointer);
                changes_and_works(&rig);
                damaged += 1;
            }
        }
        assert!(damaged > 2, "{features:?}: {damaged} blocks");
    }
}

#[test]
fn all_dedup_tables_may_be_damaged() {
    for features in [FeatureSet::Default, FeatureSet::NoFastDedup] {
        let rig = with_tables(features);
        age(&rig);
        let pool = rig.read().unwrap();
        assert!(tables(&pool).iter().all(|table| damage_object(&rig, table) > 0));
        changes_and_works(&rig);
    }
}

/// A pool whose machine stops with a long dedup log, and the log.
fn with_long_log() -> (Rig, rzfs_dmu::Object) {
    let (rig, open) = create_with(FeatureSet::Default);
    open.pool.set_property(rig.name(), "dedup", SHA256.into()).unwrap();
    open.sync().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &contents(1)).unwrap();
    for name in ["twice", "twice again"] {
        files.put(name, &contents(2)).unwrap();
        open.sync().unwrap();
    }
    files.put("late", &contents(3)).unwrap();
    open.sync().unwrap();
    for name in ["late twice", "late twice again"] {
        files.put(name, &contents(4)).unwrap();
        open.sync().unwrap();
    }
    for mode in 0..4 {
        files.chmod("whole", mode).unwrap();
        open.sync().unwrap();
    }
    let crash = rig.copy();
    open.export().unwrap();
    let pool = crash.read().unwrap();
    let objects = (1..400).filter_map(|number| pool.mos().object(ObjectId(number)).ok());
    let log = objects
        .filter(|object| object.dnode().data_block_size == 128 << 10)
        .filter(|object| object.dnode().object_type == ObjectType::UINT64_METADATA)
        .max_by_key(|object| object.dnode().levels)
        .unwrap();
    assert!(log.dnode().levels > 1);
    (crash, log)
}

#[test]
fn a_dedup_log_may_be_damaged() {
    let (rig, log) = with_long_log();
    let above = rig.copy();
    assert!(damage_object(&rig, &log) > 0);
    changes_and_works(&rig);
    assert!(damage_above(&above, &log) > 0);
    changes_and_works(&above);
}
