//! Dedup tables that are damaged where their entries go.

use super::{LENGTH, damage_object, works};
use rzfs_blockdev::BlockDevice;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::crash::Workload;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig, Shape};
use std::sync::Arc;

/// The property value `dedup=sha256`.
const SHA256: u64 = 8;
/// Txgs after which what was logged is in the tables.
const FLUSHED: u32 = 30;

/// Bytes without equal blocks.
fn contents(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(LENGTH).collect()
}

fn pass_txgs(open: &OpenPool) {
    for mode in 0..FLUSHED {
        Files(open.root().unwrap().1).chmod("whole", mode).unwrap();
        open.sync().unwrap();
    }
}

/// A pool with blocks in its dedup tables, and others that have come last: they may be logged.
fn with_tables(features: FeatureSet) -> Rig {
    let rig = Rig::new(Workload::Single);
    let shape = Shape { features, ..Workload::Single.shape() };
    let device = Arc::clone(&rig.devices["A"]) as Arc<dyn BlockDevice>;
    let devices = [("A", device)].into();
    let open = OpenPool::create(&shape, &devices, &rig.settings).unwrap();
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

/// Changes who has blocks, and looks at the files that are left.
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
    // An import reads what is new, and would notice.
    let open = rig.open().unwrap();
    pass_txgs(&open);
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let table = pool.directory().object("DDT-sha256-zap-unique").unwrap().unwrap();
    assert!(damage_object(&rig, &pool.mos().object(table).unwrap()) > 0);
    changes_and_works(&rig);
}
