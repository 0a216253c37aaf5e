//! Directories, clones and snapshots that can be come to in several ways, or that lead back to
//! themselves.

use super::administration::with_many_snapshots;
use super::forged::{Forger, change_entries, destroy_snapshot, goes_on, snapshot_called};
use super::{LENGTH, SNAPPED, with_snapshots};
use bytes::Bytes;
use rzfs_clock::Clock;
use rzfs_dmu::write::WriteInjector;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::{Environment, NewClone};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{Level, Txg};
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, Rig};
use std::sync::Arc;

/// Directories in each other.
const NESTED: usize = 24;

/// Writes that `e` is what `d` is, wherever both are.
#[derive(Debug)]
struct TwoNames(Arc<dyn Environment>);

impl WriteInjector for TwoNamesWriter {
    fn inject(&self, bookmark: Bookmark, kind: ObjectType, contents: Bytes) -> Bytes {
        if bookmark.level != Level::DATA || kind != ObjectType::DSL_DIR_CHILD_MAP {
            return contents;
        }
        let mut bytes = contents.to_vec();
        change_entries(&mut bytes, &|all| {
            let d = all.iter().find(|(name, _)| name == "d").map(|(_, object)| *object);
            let e = all.iter_mut().find(|(name, _)| name == "e");
            if let (Some(d), Some(e)) = (d, e) {
                e.1 = d;
            }
        });
        bytes.into()
    }
}

struct TwoNamesWriter;

impl Environment for TwoNames {
    fn clock(&self) -> Clock {
        self.0.clock()
    }

    fn now(&self) -> u64 {
        self.0.now()
    }

    fn random(&self) -> u64 {
        self.0.random()
    }

    fn host(&self) -> &HostIdentity {
        self.0.host()
    }

    fn write_injector(&self) -> Option<Arc<dyn WriteInjector>> {
        Some(Arc::new(TwoNamesWriter))
    }
}

/// File systems below each other, `NESTED` deep, each of which has two names.
fn nested() -> (Rig, String) {
    let mut rig = Rig::new(Workload::Single);
    let honest = Arc::clone(&rig.settings.environment);
    rig.settings.environment = Arc::new(TwoNames(Arc::clone(&honest)));
    let mut open = rig.create().unwrap();
    let mut name = format!("{}/top", rig.name());
    let top = name.clone();
    open.create_file_system(&name).unwrap();
    for _ in 0..NESTED {
        for last in ["e", "d"] {
            open.create_file_system(&format!("{name}/{last}")).unwrap();
        }
        name.push_str("/d");
    }
    Files(open.root().unwrap().1).put("whole", &vec![8; LENGTH]).unwrap();
    open.export().unwrap();
    rig.settings.environment = honest;
    (rig, top)
}

#[test]
fn directories_with_two_names_are_looked_into_once() {
    let (rig, top) = nested();
    let pool = rig.read().unwrap();
    let all = pool.datasets().root().unwrap().descendants().unwrap();
    // Each has its two names, below the first of those of what it is in.
    assert_eq!(all.len(), 2 + 2 * NESTED);
    assert!(all.iter().all(|one| !one.name().contains("/e/")));
    let live = rig.open_pool().unwrap();
    live.set_property(&top, "filesystem_limit", 500_u64.into()).unwrap();
    live.rename_dataset(&top, &format!("{}/moved", rig.name())).unwrap();
    goes_on(live);
}

/// Clones whose clones are said to be all of them.
#[test]
fn clones_that_lead_back_to_themselves_are_looked_at_once() {
    let Some(rig) = with_snapshots() else { return };
    let pool = rig.open_pool().unwrap();
    for name in ["g01/sa@new", "g01/sa@newer"] {
        pool.take_snapshots(&snapshot_called(name)).unwrap();
    }
    for number in 0..4 {
        let new = NewClone { origin: "g01/sa@newer".to_owned(), properties: Vec::new() };
        pool.clone_snapshot(&format!("g01/clone-{number}"), &new).unwrap();
    }
    pool.export().unwrap();
    let pool = rig.read().unwrap();
    let dir = |name: &str| pool.datasets().open(name).unwrap();
    let clones = dir(SNAPPED).dsl_dir().clones.unwrap();
    let mut forger = Forger::default();
    for number in 0..4 {
        let clone = dir(&format!("g01/clone-{number}")).directory_object();
        forger = forger.bonus(clone, 0x90, &[clones.get()]);
    }
    let live = forger.open(&rig);
    destroy_snapshot(&live, "g01/sa@new").unwrap();
    goes_on(live);
}

#[test]
fn a_snapshot_that_cannot_follow_is_refused() {
    let Some(rig) = with_snapshots() else { return };
    let head = rig.read().unwrap().datasets().open(SNAPPED).unwrap();
    for txg in [Txg(u64::MAX), Txg(1 << 40)] {
        let rig = rig.copy();
        let live = Forger::default().bonus(head.object(), 0x10, &[txg.get()]).open(&rig);
        live.take_snapshots(&snapshot_called("g01/sa@new")).unwrap_err();
        goes_on(live);
    }
}

#[test]
fn a_snapshot_of_another_file_system_is_not_destroyed_by_that_name() {
    let Some(rig) = with_many_snapshots() else { return };
    let pool = rig.read().unwrap();
    let other = pool.datasets().open("g01@s2").unwrap().object().get();
    let names = pool.datasets().open(SNAPPED).unwrap().dsl_dataset().snapshot_names.unwrap();
    let forger = Forger::default().entries(names, move |all| {
        all.iter_mut().filter(|(name, _)| name == "s2").for_each(|one| one.1 = other);
    });
    let live = forger.open(&rig);
    destroy_snapshot(&live, "g01/sa@s2").unwrap_err();
    goes_on(live);
    rig.read().unwrap().datasets().open("g01@s2").unwrap();
}

/// Paths are made of the names of snapshots: what would lead elsewhere is refused, and the file system
/// that has it can still be read.
#[test]
fn a_snapshot_has_no_name_that_leads_elsewhere() {
    let Some(rig) = with_many_snapshots() else { return };
    let pool = rig.read().unwrap();
    let names = pool.datasets().open(SNAPPED).unwrap().dsl_dataset().snapshot_names.unwrap();
    for bad in ["..", "a/b", "\u{1b}[2J"] {
        let forger = Forger::default().entries(names, move |all| {
            all.iter_mut().filter(|(name, _)| name == "2").for_each(|one| one.0 = bad.to_owned());
        });
        let live = forger.open(&rig.copy());
        let tree = live.dataset_tree().unwrap();
        let head = tree.open(SNAPPED).unwrap();
        let is_refused = |error: &DatasetError| matches!(error, DatasetError::ImpossibleName { name, .. } if name == bad);
        assert!(head.snapshots().is_err_and(|error| is_refused(&error)), "{bad:?} is listed");
        assert!(head.snapshot(bad).is_err_and(|error| is_refused(&error)), "{bad:?} is found");
        assert!(tree.open(&format!("{SNAPPED}@{bad}")).is_err(), "{bad:?} is opened");
        head.open_objset().unwrap();
        tree.open(&format!("{SNAPPED}@3")).unwrap();
        drop((tree, head));
        goes_on(live);
    }
}

/// What is said to be a table of a file system, and is something of the pool, does not go with it.
#[test]
fn what_a_record_names_and_is_none_of_its_tables_stays() {
    let Some(rig) = with_snapshots() else { return };
    let pool = rig.open_pool().unwrap();
    pool.take_snapshots(&snapshot_called("g01/sa@new")).unwrap();
    let new = NewClone { origin: "g01/sa@new".to_owned(), properties: Vec::new() };
    pool.clone_snapshot("g01/another", &new).unwrap();
    pool.export().unwrap();
    let pool = rig.read().unwrap();
    let root = pool.datasets().root().unwrap().directory_object();
    let clone = pool.datasets().open("g01/another").unwrap().directory_object();
    // Where the table of its clones is.
    let live = Forger::default().bonus(clone, 0x90, &[root.get()]).open(&rig);
    live.destroy_dataset("g01/another").unwrap();
    goes_on(live);
    let tree = rig.read().unwrap();
    assert_eq!(tree.datasets().root().unwrap().directory_object(), root);
}
