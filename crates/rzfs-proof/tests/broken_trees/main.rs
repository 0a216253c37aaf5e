//! Damage stays where it is: what lies below a damaged indirect block is lost, and nothing else;
//! nobody waits for it.

mod administration;
mod beside_files;
mod clones;
mod dedup;
mod forged;
mod full_leaves;
mod gangs;
mod holes;
mod judges;
mod leaks;
mod lists;
mod open;
mod space;
mod unlinked;
mod unreceived;
mod upgraded;
mod values;
mod ways_round;

use judges::only_leaks;
use rzfs_blockdev::BlockDevice;
use rzfs_dmu::Object;
use rzfs_dsl::Pool;
use rzfs_format::bpobj::BpobjHeader;
use rzfs_format::brt::{BrtHeader, vdev_key};
use rzfs_format::{BlockPointer, ObjectId, VdevId};
use rzfs_proof::crash::Workload;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig, Shape, read_dataset, record, walk};
use rzfs_testkit::FileSystemManifest;
use rzfs_zpl::live::{Caller, FilePlace};
use std::sync::Arc;

const EIO: i32 = 5;
/// Where the allocatable space of a device begins, behind two labels and the boot area.
const DATA_START: u64 = 4 << 20;
const FILE: &str = "broken";
/// Bytes of the files: more than one block.
const LENGTH: usize = 2_000_000;

/// Bytes of a block that are damaged.
const DAMAGED: usize = 512;

/// Damages all copies of a block.
fn damage(rig: &Rig, pointer: &BlockPointer) {
    assert!(!pointer.is_embedded(), "there is nothing to damage");
    for dva in pointer.dvas() {
        rig.devices["A"].damage(dva.offset() + DATA_START, vec![0xda; DAMAGED]);
    }
}

/// Damages all data blocks of an object; answers how many there are.
fn damage_object(rig: &Rig, object: &Object) -> usize {
    let pointers = object.pointers(0, 0..object.dnode().max_block_id.0 + 1);
    let pointers = pointers.into_iter().map(Result::unwrap);
    let on_devices = pointers.filter(|pointer| !pointer.is_hole() && !pointer.is_embedded());
    on_devices.map(|pointer| damage(rig, &pointer)).count()
}

/// Damages all indirect blocks right above an object's data; answers how many there are.
fn damage_above(rig: &Rig, object: &Object) -> usize {
    if object.dnode().levels < 2 {
        return 0;
    }
    let groups = (object.dnode().max_block_id.0 >> object.dnode().pointers_shift()) + 1;
    let pointers = object.pointers(1, 0..groups).into_iter().map(Result::unwrap);
    pointers.filter(|pointer| !pointer.is_hole()).map(|pointer| damage(rig, &pointer)).count()
}

/// A pool of one device with these features.
fn create_with(features: FeatureSet) -> (Rig, OpenPool) {
    let rig = Rig::new(Workload::Single);
    let shape = Shape { features, ..Workload::Single.shape() };
    let device = Arc::clone(&rig.devices["A"]) as Arc<dyn BlockDevice>;
    let open = OpenPool::create(&shape, &[("A", device)].into(), &rig.settings).unwrap();
    (rig, open)
}

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

/// The indirect block above the file's first blocks.
fn indirect_block(rig: &Rig, file: &str) -> BlockPointer {
    indirect_block_of(rig, rig.name(), file)
}

fn find(pool: &Pool, dataset: &str, file: &str) -> Object {
    let fs = read_dataset(pool, dataset).unwrap();
    let names = rzfs_proof::names(&fs, fs.root()).unwrap();
    let (_, object) = names.into_iter().find(|(name, _)| name == file.as_bytes()).unwrap();
    fs.objset().object(object).unwrap()
}

fn indirect_block_of(rig: &Rig, dataset: &str, file: &str) -> BlockPointer {
    let file = find(&rig.read().unwrap(), dataset, file);
    assert!(file.dnode().levels > 1);
    file.pointers(1, 0..1).remove(0).unwrap()
}

/// The space of a file's data, in bytes.
fn space_of_data(rig: &Rig, file: &str) -> u64 {
    space_of_data_in(rig, rig.name(), file)
}

/// The same of a file in a file system or snapshot.
fn space_of_data_in(rig: &Rig, dataset: &str, file: &str) -> u64 {
    let object = find(&rig.read().unwrap(), dataset, file);
    let blocks = object.dnode().max_block_id.0 + 1;
    let pointers = object.pointers(0, 0..blocks).into_iter().map(Result::unwrap);
    pointers.flat_map(|pointer| pointer.dvas().collect::<Vec<_>>()).map(|dva| dva.asize()).sum()
}

fn broken() -> Rig {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put(FILE, &vec![7; LENGTH]).unwrap();
    files.put("whole", &vec![8; LENGTH]).unwrap();
    // An import reads what is new, and would notice.
    for number in 0..8 {
        files.put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    damage(&rig, &indirect_block(&rig, FILE));
    rig
}

fn errno<T: std::fmt::Debug>(result: Result<T, rzfs_proof::ProofError>) -> i32 {
    match result.unwrap_err() {
        rzfs_proof::ProofError::File { source, .. } => source.errno(),
        error => panic!("{error}"),
    }
}

/// The pool works.
fn works(open: &OpenPool) {
    let files = Files(open.root().unwrap().1);
    files.write("whole", 100, b"changed").unwrap();
    files.put("another", &vec![9; LENGTH]).unwrap();
    open.sync().unwrap();
    files.unlink("another").unwrap();
    open.sync().unwrap();
    assert!(open.pool.failure().is_none() && !open.pool.is_suspended());
}

#[test]
fn changes_below_a_damaged_indirect_block_are_refused_one_by_one() {
    let rig = broken();
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    assert_eq!(errno(files.unlink(FILE)), EIO, "removal");
    assert_eq!(errno(files.truncate(FILE, 0)), EIO, "truncation");
    assert_eq!(errno(files.truncate(FILE, 200_000)), EIO, "truncation in the midst");
    assert_eq!(errno(files.punch(FILE, 0, 1 << 20)), EIO, "a hole");
    assert_eq!(errno(files.write(FILE, 0, &vec![1; 256 << 10])), EIO, "whole records");
    assert_eq!(errno(files.write(FILE, 5, b"x")), EIO, "a part of a record");
    let fs = open.root().unwrap().1;
    let place = |name| FilePlace { object: files.find(name).unwrap(), offset: 0 };
    let (to, from) = (place(FILE), place("whole"));
    let shared = fs.copy_range(to, (&**fs, from), LENGTH as u64, Caller::SUPERUSER);
    assert_eq!(shared.unwrap_err().errno(), EIO, "records of another file");
    open.sync().unwrap();
    works(&open);
    files.chmod(FILE, 0o600).unwrap();
    files.rename(FILE, "renamed").unwrap();
    open.sync().unwrap();
    open.export().unwrap();
    let pool = rig.read().unwrap();
    assert_eq!(pool.errors().unwrap().len(), 1, "the damage is in the error log");
    let open = rig.open().unwrap();
    works(&open);
    open.export().unwrap();
}

/// Lets the machine stop with blocks of a destroyed file system that are still to be freed, one of
/// whose files is damaged.
#[test]
fn what_a_destroyed_file_system_has_below_damage_is_counted_as_leaked() {
    let mut rig = Rig::new(Workload::Single);
    rig.settings.pool.tunables.zfs_async_block_max_blocks = 1;
    let mut open = rig.create().unwrap();
    let name = format!("{}/fs", rig.name());
    open.create_file_system(&name).unwrap();
    Files(&open.file_systems[&name]).put(FILE, &vec![7; LENGTH]).unwrap();
    Files(open.root().unwrap().1).put("whole", &vec![8; LENGTH]).unwrap();
    open.sync().unwrap();
    let pointer = indirect_block_of(&rig, &name, FILE);
    open.destroy_file_system(&name).unwrap();
    open.sync().unwrap();
    let crash = rig.copy();
    damage(&crash, &pointer);
    let open = crash.open().unwrap();
    for _ in 0..200 {
        open.sync().unwrap();
        if open.pool.view().unwrap().freeing().unwrap() == 0 {
            break;
        }
    }
    works(&open);
    let pool = open.pool.view().unwrap();
    assert_eq!(pool.freeing().unwrap(), 0);
    assert!(pool.leaked().unwrap() > 0);
    open.export().unwrap();
    assert!(only_leaks(&crash));
}

/// Damages an object of the MOS that a pool needs to free blocks, in its data block `block`.
fn damage_in_mos(rig: &Rig, object: ObjectId, block: u64) {
    let pool = rig.read().unwrap();
    let object = pool.mos().object(object).unwrap();
    let pointer = object.pointers(0, block..block + 1).remove(0).unwrap();
    assert!(!pointer.is_hole(), "object {} has no block {block}", object.id());
    damage(rig, &pointer);
}

#[test]
fn a_block_of_which_nobody_knows_who_has_it_is_leaked() {
    let rig = with_broken_references();
    let lost = space_of_data(&rig, "shared");
    let open = rig.open().unwrap();
    Files(open.root().unwrap().1).unlink("shared").unwrap();
    open.sync().unwrap();
    assert_eq!(open.pool.view().unwrap().leaked().unwrap(), lost);
    works(&open);
    open.export().unwrap();
}

#[test]
fn a_file_without_names_that_is_damaged_is_leaked() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let fs = open.root().unwrap().1;
    let files = Files(fs);
    files.put(FILE, &vec![7; LENGTH]).unwrap();
    files.put("whole", &vec![8; LENGTH]).unwrap();
    open.sync().unwrap();
    let pointer = indirect_block(&rig, FILE);
    let lost = space_of_data(&rig, FILE);
    let hold = fs.hold(files.find(FILE).unwrap()).unwrap();
    files.unlink(FILE).unwrap();
    open.sync().unwrap();
    for _ in 0..8 {
        files.chmod("whole", 0o600).unwrap();
        open.sync().unwrap();
    }
    // The machine stops while somebody has the file open.
    let crash = rig.copy();
    drop(hold);
    damage(&crash, &pointer);
    let open = crash.open().unwrap();
    open.sync().unwrap();
    works(&open);
    assert_eq!(open.pool.view().unwrap().leaked().unwrap(), lost);
    let expected = record(&**open.root().unwrap().1).unwrap();
    open.export().unwrap();
    let pool = crash.read().unwrap();
    assert_eq!(record(&read_dataset(&pool, rig.name()).unwrap()).unwrap(), expected);
    assert!(only_leaks(&crash));
}

#[test]
fn new_records_below_a_damaged_indirect_block_are_refused() {
    let rig = broken();
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    // 16 records are there; the next ones belong to the same indirect block.
    let end = (LENGTH as u64).next_multiple_of(128 << 10);
    assert_eq!(errno(files.write(FILE, end + 5, b"x")), EIO, "a part of a new record");
    open.sync().unwrap();
    assert_eq!(errno(files.write(FILE, end + (256 << 10), b"x")), EIO, "the beginning of one");
    open.sync().unwrap();
    assert_eq!(errno(files.write(FILE, end, &vec![1; 128 << 10])), EIO, "a whole one");
    open.sync().unwrap();
    works(&open);
    // One that belongs to another indirect block is none of its business.
    files.write(FILE, 1 << 30, b"far away").unwrap();
    open.sync().unwrap();
    works(&open);
    open.export().unwrap();
}

/// A pool with a file whose blocks another one has, too, where the table of such blocks is damaged.
fn with_broken_references() -> Rig {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let files = Files(open.root().unwrap().1);
    files.put("whole", &vec![8; LENGTH]).unwrap();
    files.put(FILE, b"x").unwrap();
    open.sync().unwrap();
    files.copy("whole", "shared", LENGTH as u64).unwrap();
    for number in 0..8 {
        files.put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let table = pool.directory().object(&vdev_key(VdevId(0))).unwrap().unwrap();
    let table = pool.mos().object(table).unwrap();
    let entries = BrtHeader::decode(table.bonus(), table.order()).unwrap().entries;
    damage_in_mos(&rig, entries, 1);
    rig
}

#[test]
fn blocks_are_copied_where_nobody_can_tell_who_has_them() {
    let rig = with_broken_references();
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    files.copy("whole", "again", LENGTH as u64).unwrap();
    // None of these has had references before.
    files.put("new", &vec![5; LENGTH]).unwrap();
    open.sync().unwrap();
    files.copy("new", "new again", LENGTH as u64).unwrap();
    open.sync().unwrap();
    works(&open);
    for name in ["whole", "shared", "new"] {
        files.unlink(name).unwrap();
        open.sync().unwrap();
    }
    // What they had is not given to others.
    files.put("whole", &vec![9; 3 * LENGTH]).unwrap();
    open.sync().unwrap();
    open.export().unwrap();
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    for (name, byte) in [("again", 8), ("new again", 5), ("whole", 9)] {
        let mut bytes = vec![0; LENGTH];
        let file = files.find(name).unwrap();
        let got = open.root().unwrap().1.read(file, 0, &mut bytes).unwrap();
        assert!(got == LENGTH && bytes.iter().all(|found| *found == byte), "{name}");
    }
    works(&open);
    open.export().unwrap();
}

/// A pool of OpenZFS with snapshots and a clone.
const SNAPSHOTS: &str = "g01-default";
const SNAPPED: &str = "g01/sa";
const CLONE: &str = "g01/clone";

fn with_snapshots() -> Option<Rig> {
    Rig::golden(SNAPSHOTS, "g01").unwrap()
}

/// The lists of blocks that a dead list or livelist has.
fn lists(pool: &Pool, keys: ObjectId) -> Vec<ObjectId> {
    let zap = pool.mos().object(keys).unwrap().zap().unwrap();
    zap.entries().map(|entry| ObjectId(entry.unwrap().value.first_u64().unwrap())).collect()
}

/// Damages the block that a list of blocks would grow in.
fn damage_tail(rig: &Rig, lists: &[ObjectId]) {
    let pool = rig.read().unwrap();
    for list in lists {
        let object = pool.mos().object(*list).unwrap();
        let header = BpobjHeader::decode(object.bonus(), object.order()).unwrap();
        let size = u64::from(object.dnode().data_block_size);
        let end = header.entries * BlockPointer::SIZE as u64;
        if end > 0 {
            damage_in_mos(rig, *list, (end - 1) / size);
            return;
        }
    }
    panic!("all lists are empty");
}

fn dead_list(pool: &Pool, dataset: &str) -> ObjectId {
    pool.datasets().open(dataset).unwrap().dsl_dataset().deadlist.unwrap()
}

/// Changes files that a snapshot has as well.
fn change_snapped(open: &OpenPool, dataset: &str) {
    let files = Files(&open.file_systems[dataset]);
    files.write("b131073", 1000, b"changed").unwrap();
    files.put("new", &vec![3; LENGTH]).unwrap();
    open.sync().unwrap();
    files.unlink("b131073").unwrap();
    files.unlink("new").unwrap();
    open.sync().unwrap();
}

fn contents_of_snapshot(pool: &Pool) -> FileSystemManifest {
    record(&read_dataset(pool, &format!("{SNAPPED}@s1")).unwrap()).unwrap()
}

#[test]
fn blocks_that_have_no_place_on_a_damaged_dead_list_stay_with_the_snapshot() {
    let Some(rig) = with_snapshots() else { return };
    let pool = rig.read().unwrap();
    let before = contents_of_snapshot(&pool);
    damage_tail(&rig, &lists(&pool, dead_list(&pool, SNAPPED)));
    let open = rig.open().unwrap();
    change_snapped(&open, SNAPPED);
    change_snapped(&open, CLONE);
    open.export().unwrap();
    let pool = rig.read().unwrap();
    assert!(!pool.errors().unwrap().is_empty(), "the damage is in the error log");
    assert_eq!(contents_of_snapshot(&pool), before, "nothing of the snapshot was freed");
    assert!(!only_leaks(&rig), "the snapshot has what died behind it");
}

#[test]
fn a_damaged_livelist_is_given_up() {
    let Some(rig) = with_snapshots() else { return };
    let pool = rig.read().unwrap();
    let clone = pool.datasets().open(CLONE).unwrap();
    let list = clone.directory_field("com.delphix:livelist").unwrap().unwrap();
    damage_tail(&rig, &lists(&pool, ObjectId(list)));
    let open = rig.open().unwrap();
    change_snapped(&open, CLONE);
    change_snapped(&open, SNAPPED);
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let clone = pool.datasets().open(CLONE).unwrap();
    assert_eq!(clone.directory_field("com.delphix:livelist").unwrap(), None);
    let mut open = rig.open().unwrap();
    open.destroy_file_system(CLONE).unwrap();
    for _ in 0..200 {
        open.sync().unwrap();
        if open.pool.view().unwrap().freeing().unwrap() == 0 {
            break;
        }
    }
    open.export().unwrap();
    assert_eq!(walk(&rig.read().unwrap()).unwrap(), None);
}
