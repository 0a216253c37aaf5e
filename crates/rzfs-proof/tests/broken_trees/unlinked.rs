//! The set of files without names, damaged.

use super::{EIO, FILE, LENGTH, damage_object, errno, only_leaks};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, Rig, read_dataset};

/// A pool whose machine stops while files without names are open; the number of them is such that
/// the set has one block or several.
fn with_open_files(count: usize) -> Rig {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let fs = open.root().unwrap().1;
    let files = Files(fs);
    files.put("whole", &vec![8; LENGTH]).unwrap();
    let mut holds = Vec::new();
    for number in 0..count {
        let name = format!("{FILE}-{number}");
        files.put(&name, b"some").unwrap();
        holds.push(fs.hold(files.find(&name).unwrap()).unwrap());
    }
    open.sync().unwrap();
    for number in 0..count {
        files.unlink(&format!("{FILE}-{number}")).unwrap();
    }
    for mode in 0..8 {
        files.chmod("whole", 0o600 + mode).unwrap();
        open.sync().unwrap();
    }
    let crash = rig.copy();
    drop(holds);
    let pool = crash.read().unwrap();
    let fs = read_dataset(&pool, crash.name()).unwrap();
    let objects = (1..4000).filter_map(|number| fs.objset().object(ObjectId(number)).ok());
    let is_set = |object: &rzfs_dmu::Object| object.dnode().object_type == ObjectType::UNLINKED_SET;
    let set = objects.filter(is_set).next().unwrap();
    assert!(damage_object(&crash, &set) > 0);
    crash
}

#[test]
fn files_are_not_removed_while_the_set_of_those_without_names_is_damaged() {
    for count in [100, 3000] {
        let rig = with_open_files(count);
        for round in 0..2 {
            let open = rig.open().unwrap();
            let files = Files(open.root().unwrap().1);
            files.write("whole", 100, b"changed").unwrap();
            files.put("another", &vec![9; LENGTH]).unwrap();
            assert_eq!(errno(files.unlink("another")), EIO);
            files.truncate("another", 0).unwrap();
            files.rename("another", &format!("new-{round}")).unwrap();
            open.sync().unwrap();
            assert!(open.pool.failure().is_none() && !open.pool.is_suspended());
            open.export().unwrap();
        }
        only_leaks(&rig);
    }
}
