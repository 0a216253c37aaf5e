//! Pools that were upgraded between snapshots.

use super::forged::{Forger, destroy_snapshot, goes_on, snapshot_called};
use super::judges::only_leaks;
use super::{contents, dead_list, lists, with_snapshots};
use rzfs_format::ObjectId;
use rzfs_format::bpobj::BpobjHeader;
use rzfs_proof::{Files, Rig};

/// A file system that is made.
const NEW: &str = "g01/new";

/// A pool with three snapshots, where what died between the first and the second is on one list.
fn with_dead(rig: &Rig) {
    let mut open = rig.open().unwrap();
    open.create_file_system(NEW).unwrap();
    let files = Files(&open.file_systems[NEW]);
    files.put("first", &contents(1)).unwrap();
    files.put("second", &contents(2)).unwrap();
    open.sync().unwrap();
    for (snapshot, file) in [("a", "first"), ("b", "second"), ("c", "third")] {
        open.pool.take_snapshots(&snapshot_called(&format!("{NEW}@{snapshot}"))).unwrap();
        let _ = files.unlink(file);
        open.sync().unwrap();
    }
    open.export().unwrap();
}

/// What a file system is charged for when its snapshots have been destroyed one by one.
fn used_without(rig: &Rig, forger: Forger, snapshots: [&str; 3]) -> [u64; 3] {
    let rig = rig.copy();
    let live = forger.open(&rig);
    for snapshot in snapshots {
        destroy_snapshot(&live, &format!("{NEW}@{snapshot}")).unwrap();
        live.sync().unwrap();
        assert!(live.failure().is_none(), "{snapshot}: {:?}", live.failure());
    }
    for _ in 0..4 {
        live.sync().unwrap();
    }
    goes_on(live);
    assert!(!only_leaks(&rig), "everything was freed");
    let pool = rig.read().unwrap();
    assert_eq!(pool.freeing().unwrap(), 0);
    let head = pool.datasets().open(NEW).unwrap();
    let dir = head.dsl_dir();
    [dir.used, dir.breakdown.snapshots, head.dsl_dataset().unique]
}

/// In a pool that was upgraded the dead lists of snapshots from before are single lists; those of
/// what comes after them have keys.
#[test]
fn single_dead_lists_and_those_with_keys_become_one() {
    let Some(rig) = with_snapshots() else { return };
    with_dead(&rig);
    let pool = rig.read().unwrap();
    let filled = |list: &ObjectId| {
        let object = pool.mos().object(*list).unwrap();
        BpobjHeader::decode(object.bonus(), object.order()).unwrap().entries > 0
    };
    let single = |name: &str| {
        let full: Vec<_> =
            lists(&pool, dead_list(&pool, name)).into_iter().filter(filled).collect();
        let [single] = full[..] else { panic!("{name}: {full:?}") };
        (pool.datasets().open(name).unwrap().object(), single)
    };
    let (b, list) = single(&format!("{NEW}@b"));
    for order in [["b", "a", "c"], ["a", "b", "c"], ["c", "b", "a"], ["a", "c", "b"]] {
        let expected = used_without(&rig, Forger::default(), order);
        let forger = Forger::default().bonus(b, 0x40, &[list.get()]);
        assert_eq!(used_without(&rig, forger, order), expected, "{order:?}");
    }
}
