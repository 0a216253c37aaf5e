//! Walks over all blocks of pools made by OpenZFS.

use rzfs_blockdev::{FileDevice, OpenOptions};
use rzfs_dmu::{DmuError, Visit, Visitor};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions, LoadVerification};
use rzfs_dsl::pool::PoolError;
use rzfs_dsl::walk::{DatasetOrder, Part, PoolVisitor, PoolWalk, Position};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg};
use rzfs_testkit::{Damage, OverlayDevice, ReferencePool};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Pools with few blocks, among them one with unreplayed logs and one with clones.
const SMALL: [&str; 4] = ["g17-checkpoint", "g21-v28", "g22-v8", "g24-zil"];

/// The start of the allocatable space of a device.
const START: u64 = 4 << 20;

/// The devices of a golden pool, which can be damaged.
fn devices(golden: &ReferencePool) -> Vec<Arc<OverlayDevice>> {
    let images = golden.images().unwrap().into_iter();
    images
        .map(|image| FileDevice::open(&image, &OpenOptions::new()).unwrap())
        .map(|device| OverlayDevice::new(Arc::new(device)))
        .collect()
}

fn import(devices: &[Arc<OverlayDevice>]) -> Pool {
    let sources: Vec<_> =
        devices.iter().map(|device| DeviceSource::Device(Arc::clone(device) as _)).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let options = ImportOptions {
        host_check: HostCheck::Override,
        verification: LoadVerification::None,
        ..ImportOptions::default()
    };
    Pool::import(&found.pools()[0], &options).unwrap()
}

fn open(name: &str) -> Option<Pool> {
    ReferencePool::golden(name).map(|golden| import(&devices(&golden)))
}

/// What to do about an unreadable block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDamage {
    GoOn,
    Stop,
}

/// The trace of a walk, up to a number of blocks.
struct Trace {
    part: Part,
    shown: Vec<(Part, Bookmark, BlockPointer)>,
    damage: Vec<DmuError>,
    limit: usize,
    on_damage: OnDamage,
}

impl Trace {
    fn up_to(limit: usize) -> Self {
        let (shown, damage) = (Vec::new(), Vec::new());
        Self { part: Part::FreeLists, shown, damage, limit, on_damage: OnDamage::GoOn }
    }

    /// The trace of the walk, and where it resumes.
    fn of(walk: PoolWalk<'_>, limit: usize) -> (Self, Option<Position>) {
        let mut trace = Self::up_to(limit);
        let next = walk.run(&mut trace);
        (trace, next)
    }
}

impl Visitor for Trace {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        if self.shown.len() == self.limit {
            return ControlFlow::Break(());
        }
        self.shown.push((self.part, visit.bookmark, *visit.pointer));
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        self.damage.push(error);
        match self.on_damage {
            OnDamage::GoOn => ControlFlow::Continue(()),
            OnDamage::Stop => ControlFlow::Break(()),
        }
    }
}

impl PoolVisitor for Trace {
    fn enter(&mut self, part: Part) -> ControlFlow<()> {
        assert!(part >= self.part);
        self.part = part;
        ControlFlow::Continue(())
    }

    fn broken(&mut self, error: PoolError) -> ControlFlow<()> {
        panic!("{error}");
    }
}

/// The number of blocks counted by OpenZFS's zdb.
fn counted_by_openzfs(name: &str) -> usize {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rzfs-zdb/tests/zdb/oracle");
    let text = std::fs::read_to_string(oracle.join(name).join("-bcc.txt")).unwrap();
    let count = text.lines().find_map(|line| line.trim().strip_prefix("bp count:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn every_block_is_shown_that_openzfs_counts() {
    for golden in ReferencePool::all_golden() {
        let (name, pool) = (golden.name(), import(&devices(&golden)));
        let (trace, next) = Trace::of(PoolWalk::new(&pool), usize::MAX);
        assert_eq!(next, None);
        assert!(trace.damage.is_empty(), "{name}: {:?}", trace.damage);
        assert_eq!(trace.shown.len(), counted_by_openzfs(name), "{name}");
    }
}

#[test]
fn a_walk_that_goes_on_anywhere_shows_exactly_what_is_left() {
    const MOST: usize = 200;
    for (name, order) in SMALL
        .into_iter()
        .flat_map(|name| [(name, DatasetOrder::ByNumber), (name, DatasetOrder::OldestFirst)])
    {
        let Some(pool) = open(name) else { continue };
        let walk = PoolWalk::new(&pool).datasets_in(order);
        let (whole, _) = Trace::of(walk, usize::MAX);
        for limit in (0..whole.shown.len()).step_by(whole.shown.len() / MOST + 1) {
            let (begun, next) = Trace::of(walk, limit);
            let (rest, end) = Trace::of(walk.resumed_at(next), usize::MAX);
            assert!(next.is_some() && end.is_none());
            let (first, second) = whole.shown.split_at(limit);
            assert!(begun.shown == first, "{name}, {order:?}: before {next:?}");
            assert!(rest.shown == second, "{name}, {order:?}: from {next:?}");
        }
    }
}

#[test]
fn datasets_come_after_their_snapshots_and_are_all_there() {
    for name in ["g01-default", "g23-many"] {
        let Some(pool) = open(name) else { continue };
        let [by_number, oldest_first] =
            [DatasetOrder::ByNumber, DatasetOrder::OldestFirst].map(|order| {
                let walk = PoolWalk::new(&pool).only(&[Part::Datasets]).datasets_in(order);
                Trace::of(walk, usize::MAX).0.shown
            });
        let mut passed = BTreeSet::new();
        let mut previous = HashMap::new();
        for (_, bookmark, _) in &oldest_first {
            if !passed.insert(bookmark.objset) {
                continue;
            }
            let object = pool.mos().object(ObjectId(bookmark.objset.0)).unwrap();
            let dataset = rzfs_format::dsl::DslDataset::decode(object.bonus(), object.order());
            if let Some(snapshot) = dataset.unwrap().previous_snapshot {
                previous.insert(bookmark.objset, ObjsetId(snapshot.0));
                let all_of_it_is_old =
                    !by_number.iter().any(|(_, at, _)| at.objset.0 == snapshot.0);
                assert!(passed.contains(&ObjsetId(snapshot.0)) || all_of_it_is_old);
            }
        }
        assert!(previous.len() > 2, "{name} has snapshots");
        let sorted = |mut shown: Vec<(Part, Bookmark, BlockPointer)>| {
            shown.sort_by_key(|(_, bookmark, _)| *bookmark);
            shown
        };
        assert!(sorted(by_number) == sorted(oldest_first), "{name}");
    }
}

/// Both copies of the only indirect block of a file of the pool g01.
const INDIRECT: Bookmark =
    Bookmark { objset: ObjsetId(133), object: ObjectId(13), level: Level(1), block: BlockId(0) };
const COPIES_OF_INDIRECT: [u64; 2] = [0x17_1000, 0x10c_9000];

#[test]
fn a_damaged_block_is_told_and_hides_only_what_is_below_it() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = devices(&golden);
    let (whole, _) = Trace::of(PoolWalk::new(&import(&devices)), usize::MAX);
    for offset in COPIES_OF_INDIRECT {
        let start = START + offset;
        devices[0].damage(start..start + 0x1000, Damage::Garbage { seed: offset });
    }
    let pool = import(&devices);
    let (damaged, _) = Trace::of(PoolWalk::new(&pool), usize::MAX);
    let [DmuError::Block { bookmark, .. }] = &damaged.damage[..] else {
        panic!("{:?}", damaged.damage)
    };
    assert_eq!(*bookmark, INDIRECT);
    let is_below = |at: &Bookmark| {
        (at.objset, at.object, at.level) == (INDIRECT.objset, INDIRECT.object, Level::DATA)
    };
    let (below, others): (Vec<_>, Vec<_>) =
        whole.shown.into_iter().partition(|(_, at, _)| is_below(at));
    assert!(below.len() > 1);
    assert!(damaged.shown == others);

    let mut trace = Trace { on_damage: OnDamage::Stop, ..Trace::up_to(usize::MAX) };
    let next = PoolWalk::new(&pool).run(&mut trace);
    let Some(Position::Dataset { next: place, .. }) = next else { panic!("{next:?}") };
    assert_eq!(place, INDIRECT);
    let (rest, _) = Trace::of(PoolWalk::new(&pool).resumed_at(next), usize::MAX);
    assert_eq!(rest.damage.len(), 1, "it is tried once more");
    assert!([trace.shown, rest.shown].concat() == others);
}

/// Holes and blocks of data of one object.
#[derive(Default)]
struct Layout {
    holes: Vec<(u64, Txg)>,
    data: Vec<u64>,
}

impl Visitor for Layout {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        if visit.bookmark.level == Level::DATA && visit.bookmark.object != ObjectId::META_DNODE {
            self.data.push(visit.bookmark.block.0);
        }
        ControlFlow::Continue(())
    }

    fn hole(&mut self, hole: &Visit<'_>) -> ControlFlow<()> {
        if hole.bookmark.object != ObjectId::META_DNODE {
            self.holes.push((hole.bookmark.block.0, hole.pointer.logical_birth()));
        }
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        panic!("{error}");
    }
}

#[test]
fn what_was_born_between_two_txgs_is_shown_of_a_dataset() {
    let Some(pool) = open("g01-default") else { return };
    let dataset = pool.datasets().open("g01/sa").unwrap();
    let objset = dataset.open_objset().unwrap();
    let layout = |after, up_to| {
        let mut layout = Layout::default();
        let walk = objset.traversal().born_after(after).born_up_to(up_to);
        assert_eq!(walk.run(objset.root(), &mut layout), None);
        layout
    };
    let middle = pool.datasets().open("g01/sa@s1").unwrap().dsl_dataset().creation_txg;
    let everything = layout(Txg(0), Txg(u64::MAX));
    let (older, newer) = (layout(Txg(0), middle), layout(middle, Txg(u64::MAX)));
    assert!(!older.data.is_empty() && !newer.data.is_empty());
    assert_eq!(older.data.len() + newer.data.len(), everything.data.len());
    assert!(!everything.holes.is_empty());
    let is_of_range = |(_, birth): &(u64, Txg)| *birth == Txg(0) || *birth > middle;
    assert!(newer.holes.iter().all(is_of_range));
}
