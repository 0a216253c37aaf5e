//! The set of files without names, damaged.

use super::judges::only_leaks;
use super::{EIO, FILE, LENGTH, damage_object, errno};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, OpenPool, Rig, read_dataset};
use rzfs_zpl::live::{Caller, Named, RenameMode};

/// A pool whose machine stops while files without names are open; the number of them is such that
/// the set has one block or several. With the files.
fn with_open_files(count: usize) -> (Rig, Vec<ObjectId>) {
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
    let unnamed = holds.iter().map(|hold| hold.object()).collect();
    drop(holds);
    let pool = crash.read().unwrap();
    let fs = read_dataset(&pool, crash.name()).unwrap();
    let mut objects = (1..4000).filter_map(|number| fs.objset().object(ObjectId(number)).ok());
    let is_set = |object: &rzfs_dmu::Object| object.dnode().object_type == ObjectType::UNLINKED_SET;
    let set = objects.find(is_set).unwrap();
    assert!(damage_object(&crash, &set) > 0);
    (crash, unnamed)
}

#[test]
fn files_are_not_removed_while_the_set_of_those_without_names_is_damaged() {
    for count in [100, 3000] {
        let (rig, _) = with_open_files(count);
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

/// A file has these contents, and this many names.
fn is(open: &OpenPool, name: &str, contents: &[u8], links: u64) {
    let fs = open.root().unwrap().1;
    let object = Files(fs).find(name).unwrap();
    let mut bytes = vec![0; contents.len()];
    assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), contents.len(), "{name}");
    assert!(bytes == contents, "{name}");
    let attributes = fs.attributes(object).unwrap();
    assert_eq!((attributes.size, attributes.links), (contents.len() as u64, links), "{name}");
}

#[test]
fn files_are_not_replaced_while_the_set_of_those_without_names_is_damaged() {
    for count in [100, 3000] {
        let (rig, _) = with_open_files(count);
        let open = rig.open().unwrap();
        let files = Files(open.root().unwrap().1);
        files.put("old", b"the old one").unwrap();
        files.put("new", b"the new one").unwrap();
        files.put("two", b"of two names").unwrap();
        files.link("two", "names").unwrap();
        open.sync().unwrap();
        let fs = open.root().unwrap().1;
        let root = fs.attributes(fs.root()).unwrap();
        let used = |open: &OpenPool| {
            let fs = open.root().unwrap().1;
            let statistics = fs.statistics(fs.root()).unwrap();
            statistics.objects - statistics.available_objects
        };
        let objects = used(&open);
        let named = |name: &'static str| Named { directory: fs.root(), name: name.as_bytes() };
        for mode in [RenameMode::Replace, RenameMode::Whiteout] {
            let renamed = fs.rename(named("new"), named("old"), mode, Caller::SUPERUSER);
            assert_eq!(renamed.unwrap_err().errno(), EIO, "{mode:?}");
        }
        // It has another name still.
        files.rename("new", "names").unwrap();
        files.put("new", b"the new one").unwrap();
        open.sync().unwrap();
        let look = |open: &OpenPool| {
            is(open, "old", b"the old one", 1);
            is(open, "new", b"the new one", 1);
            is(open, "names", b"the new one", 1);
            is(open, "two", b"of two names", 1);
            let fs = open.root().unwrap().1;
            let now = fs.attributes(fs.root()).unwrap();
            assert_eq!((now.size, now.links), (root.size, root.links));
            assert_eq!(used(open), objects + 1, "objects");
        };
        look(&open);
        open.export().unwrap();
        let open = rig.open().unwrap();
        look(&open);
        open.export().unwrap();
        only_leaks(&rig);
    }
}

#[test]
fn files_without_names_get_none_while_their_set_is_damaged() {
    for count in [100, 3000] {
        let (rig, unnamed) = with_open_files(count);
        let open = rig.open().unwrap();
        let fs = open.root().unwrap().1;
        let linked = fs.link(unnamed[0], fs.root(), b"again");
        assert_eq!(linked.unwrap_err().errno(), EIO);
        assert!(Files(fs).find("again").is_err());
        open.sync().unwrap();
        open.export().unwrap();
        let open = rig.open().unwrap();
        assert!(Files(open.root().unwrap().1).find("again").is_err());
        open.export().unwrap();
        only_leaks(&rig);
    }
}
