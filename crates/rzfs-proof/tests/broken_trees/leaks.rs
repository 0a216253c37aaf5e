//! What is leaked where lists of blocks are damaged is counted.

use super::judges::only_leaks;
use super::{LENGTH, contents, create_with, damage_object, damage_tail, dead_list, lists, works};
use rzfs_dsl::live::Destruction;
use rzfs_format::bpobj::BpobjHeader;
use rzfs_proof::{FeatureSet, Files, OpenPool};

/// An import reads what is new, and would notice.
fn age(open: &OpenPool) {
    for mode in 0..8 {
        Files(open.root().unwrap().1).chmod("whole", 0o600 + mode).unwrap();
        open.sync().unwrap();
    }
}

fn freed(open: &OpenPool) {
    for _ in 0..200 {
        open.sync().unwrap();
        if open.pool.view().unwrap().freeing().unwrap() == 0 {
            return;
        }
    }
    panic!("something stays");
}

/// Two files that only a snapshot has, of which one has no place on its dead list and the other cannot be
/// found there.
#[test]
fn what_a_damaged_dead_list_lacks_is_counted_when_the_last_snapshot_goes() {
    let (rig, open) = create_with(FeatureSet::Default);
    let files = Files(open.root().unwrap().1);
    files.put("whole", &[8; LENGTH]).unwrap();
    for (name, seed) in [("listed", 1), ("unlisted", 2)] {
        files.put(name, &contents(seed)).unwrap();
    }
    open.sync().unwrap();
    open.take_snapshots("before").unwrap();
    files.unlink("listed").unwrap();
    age(&open);
    open.export().unwrap();
    let lost = super::space_of_data_in(&rig, &format!("{}@before", rig.name()), "unlisted")
        + super::space_of_data_in(&rig, &format!("{}@before", rig.name()), "listed");
    let pool = rig.read().unwrap();
    damage_tail(&rig, &lists(&pool, dead_list(&pool, rig.name())));
    let open = rig.open().unwrap();
    Files(open.root().unwrap().1).unlink("unlisted").unwrap();
    open.sync().unwrap();
    let snapshot = format!("{}@before", rig.name());
    open.pool.destroy_snapshots(&[snapshot], Destruction::AtOnce).unwrap();
    freed(&open);
    let leaked = open.pool.view().unwrap().leaked().unwrap();
    assert!(leaked >= lost && leaked < lost + LENGTH as u64 / 2, "{leaked} of {lost}");
    works(&open);
    open.export().unwrap();
    assert!(only_leaks(&rig));
}

#[test]
fn what_a_damaged_list_of_frees_that_were_put_off_has_is_counted() {
    let (rig, open) = create_with(FeatureSet::NoLogSpaceMap);
    let files = Files(open.root().unwrap().1);
    files.put("whole", &[8; LENGTH]).unwrap();
    for number in 0..20 {
        files.put(&format!("file-{number}"), &contents(number)[..20_000]).unwrap();
        open.sync().unwrap();
    }
    let pool = open.pool.view().unwrap();
    let list = pool.directory().object("sync_bplist").unwrap().unwrap();
    let list = pool.mos().object(list).unwrap();
    let header = BpobjHeader::decode(list.bonus(), list.order()).unwrap();
    assert!(header.entries > 0, "nothing was put off");
    assert!(damage_object(&rig, &list) > 0);
    let cache = open.pool.pipeline().cache();
    cache.set_max(0);
    cache.clear();
    files.chmod("whole", 0o600).unwrap();
    open.sync().unwrap();
    let leaked = open.pool.view().unwrap().leaked().unwrap();
    assert!(leaked >= header.bytes, "{leaked} of {}", header.bytes);
    works(&open);
    open.export().unwrap();
    assert!(only_leaks(&rig));
}
