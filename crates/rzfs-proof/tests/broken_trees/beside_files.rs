//! What a file system has besides the contents of its files: accounts, blocks of dnodes, spill blocks.

use super::judges::only_leaks;
use super::{EIO, FILE, LENGTH, create_with, damage, damage_above, damage_object, errno, works};
use rzfs_dmu::Object;
use rzfs_format::{BlockPointer, ObjectId};
use rzfs_proof::crash::Workload;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig, read_dataset};

/// The property value `dnodesize=16k`: a dnode for each block of them.
const DNODE_SIZE: u64 = 16 << 10;
/// Dnodes of that size below one indirect block.
const DNODES: u64 = 1024;

/// Has a pool forget all that it need not remember.
fn forget(open: &OpenPool) {
    let cache = open.pool.pipeline().cache();
    cache.set_max(0);
    cache.clear();
}

fn name(number: u64) -> String {
    format!("file-{number}")
}

/// An import reads what is new, and would notice.
fn age(open: &OpenPool) {
    for mode in 0..8 {
        Files(open.root().unwrap().1).chmod("whole", 0o600 + mode).unwrap();
        open.sync().unwrap();
    }
}

fn goes_on(open: &OpenPool) {
    open.sync().unwrap();
    assert!(
        open.pool.failure().is_none() && !open.pool.is_suspended(),
        "{:?}",
        open.pool.failure()
    );
}

/// A pool with files of so many owners.
fn with_owners(owners: u64) -> (Rig, OpenPool) {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &vec![8; LENGTH]).unwrap();
    for number in 0..owners {
        files.put(&name(number), b"some").unwrap();
        let owner = 1000 + number as u32;
        files.chown(&name(number), owner, owner).unwrap();
    }
    age(&open);
    (rig, open)
}

fn accounts(rig: &Rig) -> Vec<Object> {
    let pool = rig.read().unwrap();
    let fs = read_dataset(&pool, rig.name()).unwrap();
    ObjectId::ACCOUNTING.map(|id| fs.objset().object(id).unwrap()).into()
}

/// Owners come and go.
fn owners_change(open: &OpenPool, owners: u64) {
    let files = Files(open.root().unwrap().1);
    for number in 0..owners.min(40) {
        files.chown(&name(number), 70_000 + number as u32, 5).unwrap();
        open.sync().unwrap();
    }
    files.put("of somebody", &[1; 9000]).unwrap();
    files.chown("of somebody", 4321, 4321).unwrap();
    files.unlink(&name(0)).unwrap();
    goes_on(open);
    works(open);
}

#[test]
fn no_block_of_an_account_that_is_damaged_stops_the_pool() {
    for owners in [3, 400] {
        let (rig, open) = with_owners(owners);
        open.export().unwrap();
        for account in accounts(&rig) {
            for block in 0..=account.dnode().max_block_id.0 {
                let pointer = account.pointers(0, block..block + 1).remove(0).unwrap();
                if pointer.is_hole() || pointer.is_embedded() {
                    continue;
                }
                let rig = rig.copy();
                damage(&rig, &pointer);
                let open = rig.open().unwrap();
                owners_change(&open, owners);
                open.export().unwrap();
                assert!(!only_leaks(&rig), "owners {owners}, {}, block {block}", account.id());
            }
        }
    }
}

#[test]
fn accounts_that_are_damaged_while_a_pool_is_open_do_not_stop_it() {
    let (rig, open) = with_owners(2000);
    owners_change(&open, 10);
    let damaged: Vec<_> = accounts(&rig.copy())
        .iter()
        .map(|one| damage_object(&rig, one) + damage_above(&rig, one))
        .collect();
    assert!(damaged[0] > 10 && damaged[1] > 10, "{damaged:?}");
    forget(&open);
    owners_change_again(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    works(&open);
    open.export().unwrap();
    only_leaks(&rig);
}

fn owners_change_again(open: &OpenPool) {
    let files = Files(open.root().unwrap().1);
    for number in 100..120 {
        files.chown(&name(number), 80_000 + number as u32, 6).unwrap();
        files.unlink(&name(number + 100)).unwrap();
        open.sync().unwrap();
    }
    goes_on(open);
}

/// What one account lost the others have.
#[test]
fn accounts_of_groups_are_kept_where_those_of_users_are_damaged() {
    let (rig, open) = with_owners(3);
    open.export().unwrap();
    let users = accounts(&rig).remove(0);
    assert!(damage_object(&rig, &users) > 0);
    let open = rig.open().unwrap();
    Files(open.root().unwrap().1).chown(&name(1), 70_000, 70_000).unwrap();
    goes_on(&open);
    open.export().unwrap();
    let groups = accounts(&rig).remove(1);
    let found = groups.zap().unwrap().lookup("obj-11170").unwrap();
    assert_eq!(found.and_then(|value| value.first_u64()), Some(1));
}

/// The tree of a file system's dnodes.
fn dnodes(rig: &Rig, dataset: &str) -> Object {
    let pool = rig.read().unwrap();
    read_dataset(&pool, dataset).unwrap().objset().meta_object().unwrap().clone()
}

/// The blocks of a tree's level.
fn level_of(object: &Object, level: u8) -> Vec<BlockPointer> {
    let last =
        object.dnode().max_block_id.0 >> (u32::from(level) * object.dnode().pointers_shift());
    let pointers = object.pointers(level, 0..last + 1).into_iter().map(Result::unwrap);
    pointers.filter(|pointer| !pointer.is_hole()).collect()
}

#[test]
fn files_whose_dnodes_are_damaged_are_lost_and_nothing_else() {
    let (rig, open) = with_owners(100);
    open.export().unwrap();
    let tree = dnodes(&rig, rig.name());
    let last = level_of(&tree, 0).pop().unwrap();
    damage(&rig, &last);
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    assert_eq!(errno(files.chmod(&name(99), 0o600)), EIO);
    assert_eq!(errno(files.unlink(&name(99))), EIO);
    for number in 200..300 {
        files.put(&name(number), b"new").unwrap();
    }
    goes_on(&open);
    works(&open);
    open.export().unwrap();
    only_leaks(&rig);
}

/// New numbers would lie below a damaged block.
#[test]
fn files_are_made_where_dnodes_beside_are_damaged() {
    let (rig, open) = create_with(FeatureSet::Default);
    open.pool.set_property(rig.name(), "dnodesize", DNODE_SIZE.into()).unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &vec![8; LENGTH]).unwrap();
    for number in 0..DNODES + 50 {
        files.put(&name(number), b"some").unwrap();
    }
    age(&open);
    open.export().unwrap();
    let tree = dnodes(&rig, rig.name());
    let above = level_of(&tree, 1);
    assert_eq!(above.len(), 2);
    damage(&rig, &above[1]);
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    for number in 0..100 {
        files.put(&format!("new-{number}"), b"new").unwrap();
    }
    goes_on(&open);
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    for number in 0..100 {
        let fs = open.root().unwrap().1;
        let mut bytes = [0; 10];
        let file = Files(fs).find(&format!("new-{number}")).unwrap();
        assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), 3);
    }
    open.export().unwrap();
    only_leaks(&rig);
}

/// A pool with a file whose extended attributes have a block of their own.
fn with_spill() -> (Rig, OpenPool, BlockPointer) {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &vec![8; LENGTH]).unwrap();
    files.put(FILE, &[7; 5000]).unwrap();
    for number in 0..3 {
        files.set_xattr(FILE, &format!("user.{number}"), &super::contents(number)[..3000]).unwrap();
    }
    age(&open);
    let spill = super::find(&rig.copy().read().unwrap(), rig.name(), FILE).dnode().spill.unwrap();
    (rig, open, spill)
}

fn attributes_change(open: &OpenPool) {
    let files = Files(open.root().unwrap().1);
    assert_eq!(errno(files.set_xattr(FILE, "user.0", b"short")), EIO);
    assert_eq!(errno(files.set_xattr(FILE, "user.9", &[9; 4000])), EIO);
    // Attributes of all kinds are read together.
    assert_eq!(errno(files.chmod(FILE, 0o604)), EIO);
    drop(files.chown(FILE, 7, 8));
    drop(files.write(FILE, 3, b"changed"));
    drop(files.link(FILE, "linked"));
    goes_on(open);
    assert_eq!(errno(files.rename(FILE, "renamed")), EIO);
    assert_eq!(errno(files.unlink(FILE)), EIO);
    goes_on(open);
    works(open);
}

#[test]
fn a_file_whose_spill_block_is_damaged_goes_on_without_its_attributes() {
    let (rig, open, spill) = with_spill();
    open.export().unwrap();
    damage(&rig, &spill);
    let open = rig.open().unwrap();
    attributes_change(&open);
    open.export().unwrap();
    assert!(!only_leaks(&rig));
}

#[test]
fn so_does_one_whose_spill_block_is_damaged_while_it_is_in_use() {
    let (rig, open, spill) = with_spill();
    let fs = open.root().unwrap().1;
    let hold = fs.hold(Files(fs).find(FILE).unwrap()).unwrap();
    damage(&rig, &spill);
    forget(&open);
    let files = Files(fs);
    drop(files.set_xattr(FILE, "user.0", b"short"));
    drop(files.set_xattr(FILE, "user.9", &[9; 4000]));
    drop(files.chmod(FILE, 0o604));
    goes_on(&open);
    drop(files.unlink(FILE));
    goes_on(&open);
    drop(hold);
    goes_on(&open);
    works(&open);
    open.export().unwrap();
    assert!(!only_leaks(&rig));
}
