//! Lists that promise more than there is: nobody looks through a hole.

use super::forged::{Forger, goes_on};
use super::judges::only_leaks;
use super::{FILE, LENGTH, contents, works};
use rzfs_dsl::live::LivePool;
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, Rig};

/// Blocks of a hole that is longer than anybody would look through.
const BLOCKS: u64 = 1 << 40;
/// Entries of lists that promise more than there is.
const ENTRIES: u64 = 1 << 43;

/// Has files of the pool's root changed.
fn changes(rig: &Rig, pool: LivePool) {
    goes_on(pool);
    let open = rig.open().unwrap();
    works(&open);
    open.export().unwrap();
}

#[test]
fn a_list_of_frees_that_is_a_hole_costs_nothing() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    Files(open.root().unwrap().1).put("whole", &vec![8; LENGTH]).unwrap();
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let object = |name| pool.directory().object(name).unwrap().unwrap();
    let (deferred, background) = (object("sync_bplist"), object("free_bpobj"));
    for list in [deferred, background] {
        let rig = rig.copy();
        let forger = Forger::default().hole(list, BLOCKS).bonus(list, 0, &[ENTRIES]);
        changes(&rig, forger.open(&rig));
    }
    // The same as the array of lists of the other one.
    let forger = Forger::default().hole(deferred, BLOCKS).bonus(
        background,
        0x20,
        &[deferred.get(), ENTRIES],
    );
    changes(&rig, forger.open(&rig));
}

#[test]
fn a_list_of_destroyed_file_systems_that_is_a_hole_costs_nothing() {
    let mut rig = Rig::new(Workload::Single);
    rig.settings.pool.tunables.zfs_async_block_max_blocks = 1;
    let mut open = rig.create().unwrap();
    let name = format!("{}/fs", rig.name());
    open.create_file_system(&name).unwrap();
    Files(&open.file_systems[&name]).put(FILE, &contents(1)).unwrap();
    Files(open.root().unwrap().1).put("whole", &vec![8; LENGTH]).unwrap();
    open.sync().unwrap();
    open.destroy_file_system(&name).unwrap();
    open.sync().unwrap();
    let crash = rig.copy();
    let list = crash.read().unwrap().directory().object("bptree_obj").unwrap().unwrap();
    for end in [ENTRIES, u64::MAX] {
        let rig = crash.copy();
        let forger = Forger::default().hole(list, BLOCKS).bonus(list, 0, &[0, end]);
        let pool = forger.open(&rig);
        pool.sync().unwrap();
        assert_eq!(pool.view().unwrap().directory().object("bptree_obj").unwrap(), None);
        changes(&rig, pool);
        assert!(only_leaks(&rig), "what the list had is leaked");
    }
}
