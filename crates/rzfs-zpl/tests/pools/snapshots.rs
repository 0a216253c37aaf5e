//! Snapshots, clones, bookmarks and holds: many random operations compared with a model, and
//! checked by our own checks, by OpenZFS's zdb, and by the contents of every dataset.

use crate::cloning::{dataset, settle, write};
use crate::{block, make, put};
use rzfs_dsl::live::{ChangeError, Destruction, LivePool, NewBookmark, NewClone, NewSnapshots};
use rzfs_format::ObjectId;
use rzfs_format::features::Feature;
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_hostile::Random;
use rzfs_proof::{ImagePool, Session, wrong_chains};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewKind};
use rzfs_zpl::{FileSystem, FileSystemOptions, NameTarget};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Barrier};

const RECORD: u64 = 128 << 10;
const FILES: u64 = 6;
const BLOCKS: u64 = 4;
/// How often two requests are made concurrently.
const ROUNDS: usize = 24;

/// The files of a file system: the contents of each block.
type Contents = BTreeMap<String, [u64; BLOCKS as usize]>;

#[derive(Clone, Default, Debug)]
struct Snapshot {
    name: String,
    contents: Contents,
    holds: BTreeSet<String>,
    is_deferred: bool,
}

#[derive(Clone, Default, Debug)]
struct Head {
    contents: Contents,
    /// Oldest first.
    snapshots: Vec<Snapshot>,
    /// Its origin.
    origin: Option<(String, String)>,
}

/// The expected state of a pool.
#[derive(Clone, Default, Debug)]
struct Model {
    heads: BTreeMap<String, Head>,
    next: u64,
}

impl Model {
    fn new_name(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}{}", self.next)
    }

    fn clones_of(&self, head: &str, snapshot: &str) -> usize {
        let is_clone = |other: &&Head| {
            other.origin.as_ref().is_some_and(|(of, name)| of == head && name == snapshot)
        };
        self.heads.values().filter(is_clone).count()
    }

    /// Drops snapshots that only waited for holds and clones to go.
    fn settle(&mut self) {
        let names: Vec<_> = self.heads.keys().cloned().collect();
        for name in names {
            let gone: Vec<_> = self.heads[&name]
                .snapshots
                .iter()
                .filter(|one| one.is_deferred && one.holds.is_empty())
                .filter(|one| self.clones_of(&name, &one.name) == 0)
                .map(|one| one.name.clone())
                .collect();
            let head = self.heads.get_mut(&name).unwrap();
            head.snapshots.retain(|one| !gone.contains(&one.name));
        }
    }
}

fn open(pool: &LivePool, name: &str) -> Arc<LiveFileSystem> {
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let live = pool.open_dataset(&dataset).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    LiveFileSystem::open_dataset(pool, &live, options).unwrap()
}

fn full(head: &str, snapshot: &str) -> String {
    format!("{head}@{snapshot}")
}

fn errno<T: std::fmt::Debug>(result: Result<T, ChangeError>) -> i32 {
    result.unwrap_err().errno()
}

const EBUSY: i32 = 16;
const EEXIST: i32 = 17;

/// A pool with its model.
struct Life {
    world: ImagePool,
    session: Option<Session>,
    model: Model,
    random: Random,
}

impl Life {
    fn new(world: ImagePool, seed: u64) -> Self {
        let session = Some(world.create());
        let heads = BTreeMap::from([("made".to_owned(), Head::default())]);
        let model = Model { heads, next: 0 };
        Self { world, session, model, random: Random::new(seed) }
    }

    fn pool(&self) -> &LivePool {
        &self.session.as_ref().unwrap().pool
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn pick<T>(&mut self, from: Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let at = self.below(from.len());
        from.into_iter().nth(at)
    }

    fn pick_head(&mut self) -> String {
        self.pick(self.model.heads.keys().cloned().collect()).unwrap()
    }

    fn pick_snapshot(&mut self) -> Option<(String, String)> {
        let heads = self.model.heads.iter();
        let all = heads
            .flat_map(|(head, of)| of.snapshots.iter().map(|one| (head.clone(), one.name.clone())));
        self.pick(all.collect())
    }

    fn snapshot(&mut self, (head, name): &(String, String)) -> &mut Snapshot {
        let snapshots = &mut self.model.heads.get_mut(head).unwrap().snapshots;
        snapshots.iter_mut().find(|one| one.name == *name).unwrap()
    }

    /// Performs a random operation.
    fn step(&mut self) {
        let what = self.random.below(16);
        self.do_something(what);
        let wrong = wrong_chains(&self.pool().view().unwrap()).unwrap();
        assert_eq!(wrong, Vec::<String>::new(), "after {what}");
    }

    fn do_something(&mut self, what: u64) {
        match what {
            0..5 => self.write(),
            5..8 => self.take(),
            8..10 => self.destroy_snapshot(),
            10 => self.clone_one(),
            11 => self.destroy_head(),
            12 => self.promote(),
            13 => self.roll_back(),
            14 => self.hold_or_release(),
            _ => self.bookmark_or_rename(),
        }
    }

    fn write(&mut self) {
        let name = self.pick_head();
        let fs = open(self.pool(), &name);
        for _ in 0..1 + self.random.below(4) {
            let file = format!("file{}", self.random.below(FILES));
            let known = self.model.heads[&name].contents.contains_key(&file);
            if known && self.random.below(4) == 0 {
                fs.unlink(fs.root(), file.as_bytes()).unwrap();
                self.model.heads.get_mut(&name).unwrap().contents.remove(&file);
                continue;
            }
            let object = match fs.lookup(fs.root(), file.as_bytes()) {
                Ok(NameTarget::Object(object)) => object,
                _ => make(&fs, fs.root(), &file, NewKind::Regular),
            };
            let (at, value) = (self.random.below(BLOCKS), 1 + self.random.below(250));
            put(&fs, object, at * RECORD, &block(value));
            let contents = &mut self.model.heads.get_mut(&name).unwrap().contents;
            contents.entry(file).or_default()[at as usize] = value;
        }
        match self.random.below(3) {
            0 => self.pool().sync().unwrap(),
            1 => fs.commit(&[fs.root()]).unwrap(),
            _ => {}
        }
    }

    fn take(&mut self) {
        let name = self.model.new_name("s");
        let heads: Vec<String> = match self.random.below(3) {
            0 => self.model.heads.keys().cloned().collect(),
            _ => vec![self.pick_head()],
        };
        let names: Vec<_> = heads.iter().map(|head| full(head, &name)).collect();
        let new = NewSnapshots { names, properties: Vec::new() };
        self.pool().take_snapshots(&new).unwrap();
        assert_eq!(errno(self.pool().take_snapshots(&new)), EEXIST);
        for head in heads {
            let head = self.model.heads.get_mut(&head).unwrap();
            let contents = head.contents.clone();
            let taken = Snapshot { name: name.clone(), contents, ..Snapshot::default() };
            head.snapshots.push(taken);
        }
    }

    fn destroy_snapshot(&mut self) {
        let Some(place) = self.pick_snapshot() else { return };
        let clones = self.model.clones_of(&place.0, &place.1);
        let holds = self.snapshot(&place).holds.len();
        let names = [full(&place.0, &place.1), full(&place.0, "nowhere")];
        if self.random.below(4) == 0 {
            self.pool().destroy_snapshots(&names, Destruction::Deferred).unwrap();
            self.snapshot(&place).is_deferred = true;
            self.model.settle();
            return;
        }
        let destroyed = self.pool().destroy_snapshots(&names, Destruction::AtOnce);
        if holds > 0 {
            assert_eq!(errno(destroyed), EBUSY);
        } else if clones > 0 {
            assert_eq!(errno(destroyed), EEXIST);
        } else {
            destroyed.unwrap();
            let head = self.model.heads.get_mut(&place.0).unwrap();
            head.snapshots.retain(|one| one.name != place.1);
        }
    }

    fn clone_one(&mut self) {
        let Some(place) = self.pick_snapshot() else { return };
        let name = format!("made/{}", self.model.new_name("c"));
        let origin = full(&place.0, &place.1);
        let new = NewClone { origin, properties: Vec::new() };
        self.pool().clone_snapshot(&name, &new).unwrap();
        assert_eq!(errno(self.pool().clone_snapshot(&name, &new)), EEXIST);
        let contents = self.snapshot(&place).contents.clone();
        let head = Head { contents, origin: Some(place), ..Head::default() };
        self.model.heads.insert(name, head);
    }

    fn destroy_head(&mut self) {
        let name = self.pick_head();
        if name == "made" {
            return;
        }
        let destroyed = self.pool().destroy_dataset(&name);
        if self.model.heads[&name].snapshots.is_empty() {
            destroyed.unwrap();
            self.model.heads.remove(&name);
            self.model.settle();
        } else {
            assert_eq!(errno(destroyed), EBUSY);
        }
    }

    fn promote(&mut self) {
        let name = self.pick_head();
        let promoted = self.pool().promote(&name);
        let Some((of, snapshot)) = self.model.heads[&name].origin.clone() else {
            assert_eq!(errno(promoted), 22);
            return;
        };
        let at = {
            let snapshots = &self.model.heads[&of].snapshots;
            snapshots.iter().position(|one| one.name == snapshot).unwrap() + 1
        };
        let own: BTreeSet<_> =
            self.model.heads[&name].snapshots.iter().map(|one| one.name.clone()).collect();
        if self.model.heads[&of].snapshots[..at].iter().any(|one| own.contains(&one.name)) {
            assert_eq!(errno(promoted), EEXIST);
            return;
        }
        // Bookmarks move along: their names can collide, too.
        promoted.unwrap();
        let shared: Vec<_> = {
            let head = self.model.heads.get_mut(&of).unwrap();
            head.snapshots.drain(..at).collect()
        };
        let moved: BTreeSet<_> = shared.iter().map(|one| one.name.clone()).collect();
        let above = self.model.heads[&of].origin.clone();
        for head in self.model.heads.values_mut() {
            if let Some(origin) = &mut head.origin
                && origin.0 == of
                && moved.contains(&origin.1)
            {
                origin.0.clone_from(&name);
            }
        }
        self.model.heads.get_mut(&of).unwrap().origin = Some((name.clone(), snapshot));
        let clone = self.model.heads.get_mut(&name).unwrap();
        clone.origin = above;
        clone.snapshots.splice(0..0, shared);
    }

    fn roll_back(&mut self) {
        let name = self.pick_head();
        let Some(last) = self.model.heads[&name].snapshots.last().cloned() else {
            assert_eq!(errno(self.pool().roll_back(&name)), 3);
            return;
        };
        self.pool().roll_back(&name).unwrap();
        self.model.heads.get_mut(&name).unwrap().contents = last.contents;
    }

    fn hold_or_release(&mut self) {
        let Some(place) = self.pick_snapshot() else { return };
        let names = [full(&place.0, &place.1)];
        let tag = format!("tag{}", self.random.below(2));
        let has_it = self.snapshot(&place).holds.contains(&tag);
        let held = self.pool().hold_snapshots(&names, &tag);
        if has_it {
            assert_eq!(errno(held), EEXIST);
            self.pool().release_snapshots(&names, &tag).unwrap();
            self.snapshot(&place).holds.remove(&tag);
            self.model.settle();
        } else {
            held.unwrap();
            self.snapshot(&place).holds.insert(tag);
        }
    }

    fn bookmark_or_rename(&mut self) {
        let Some(place) = self.pick_snapshot() else { return };
        let source = full(&place.0, &place.1);
        match self.random.below(3) {
            0 => {
                let new = self.model.new_name("r");
                self.pool().rename_snapshots(&[source], &new).unwrap();
                self.snapshot(&place).name.clone_from(&new);
                for head in self.model.heads.values_mut() {
                    if head.origin.as_ref() == Some(&place) {
                        head.origin = Some((place.0.clone(), new.clone()));
                    }
                }
            }
            1 => {
                let name = self.model.new_name("b");
                let new = NewBookmark { source, name: format!("{}#{name}", place.0) };
                self.pool().create_bookmarks(&[new.clone(), new.clone()]).unwrap();
                assert_eq!(errno(self.pool().create_bookmarks(&[new])), EEXIST);
            }
            _ => {
                let tree = self.pool().dataset_tree().unwrap();
                let marks = tree.open(&place.0).unwrap().bookmarks().unwrap();
                let names: Vec<_> = marks.iter().map(|mark| mark.name().to_owned()).collect();
                let Some(name) = self.pick(names) else { return };
                // Duplicate names count once.
                self.pool().destroy_bookmarks(&[name.clone(), name]).unwrap();
            }
        }
    }

    /// Checks that everything exists and nothing else.
    fn check(&self, tree: &rzfs_dsl::dataset::DatasetTree) {
        let root = tree.root().unwrap();
        let mut heads = root.descendants().unwrap();
        heads.push(root);
        let names: BTreeSet<_> = heads.iter().map(|head| head.name().to_owned()).collect();
        assert!(names.iter().eq(self.model.heads.keys()), "{names:?}");
        for head in &heads {
            let expected = &self.model.heads[head.name()];
            let origin = head.origin().unwrap().map(|origin| origin.name().to_owned());
            assert_eq!(origin, expected.origin.as_ref().map(|(of, name)| full(of, name)));
            let snapshots: BTreeSet<_> =
                head.snapshots().unwrap().iter().map(|one| one.name().to_owned()).collect();
            let known: BTreeSet<_> =
                expected.snapshots.iter().map(|one| full(head.name(), &one.name)).collect();
            assert_eq!(snapshots, known);
            for one in &expected.snapshots {
                let snapshot = head.snapshot(&one.name).unwrap().unwrap();
                let holds = snapshot.holds().unwrap();
                assert!(holds.iter().map(|hold| &hold.tag).eq(one.holds.iter()), "{holds:?}");
                has(&FileSystem::of_dataset(&snapshot, 5000).unwrap(), &one.contents);
            }
            let objset = head.open_objset().unwrap();
            has(
                &FileSystem::open(objset, FileSystemOptions::default()).unwrap(),
                &expected.contents,
            );
        }
    }

    /// Exports the pool, and checks it.
    fn judge(&mut self) {
        self.session.take().unwrap().export();
        self.world.judge_chains();
        let pool = self.world.import(&rzfs_blockdev::OpenOptions::new());
        self.check(pool.datasets());
        self.session = Some(self.world.open());
    }
}

/// Checks that a file system has these files.
fn has(fs: &FileSystem, contents: &Contents) {
    for number in 0..FILES {
        let name = format!("file{number}");
        let found = match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(NameTarget::Object(object)) => Some(object),
            _ => None,
        };
        assert_eq!(found.is_some(), contents.contains_key(&name), "{name}");
        if let (Some(object), Some(values)) = (found, contents.get(&name)) {
            has_blocks(fs, (object, &name), values);
        }
    }
}

fn has_blocks(fs: &FileSystem, (object, name): (ObjectId, &str), values: &[u64]) {
    for (at, value) in (0..).zip(values) {
        let mut bytes = vec![0; RECORD as usize];
        let len = fs.read(object, at * RECORD, &mut bytes).unwrap();
        let expected = if *value == 0 { vec![0; RECORD as usize] } else { block(*value) };
        assert!(bytes[..len] == expected[..len], "{name}: block {at}");
        assert!(*value == 0 || len == RECORD as usize, "{name}: {len} bytes of block {at}");
    }
}

fn live(world: ImagePool, seed: u64, rounds: usize, steps: usize) {
    let mut life = Life::new(world, seed);
    for _ in 0..rounds {
        for _ in 0..steps {
            life.step();
        }
        life.judge();
    }
}

#[test]
fn histories_of_snapshots_are_as_the_model_has_them() {
    for seed in 1..4 {
        live(ImagePool::new("A"), seed, 5, 40);
    }
}

/// What one request must not do, nor two in one txg.
#[test]
fn requests_that_meet_cost_nothing() {
    let world = ImagePool::new("A");
    let Session { pool, fs } = world.create();
    make(&fs, fs.root(), "file", NewKind::Regular);
    let take = |name: &str| {
        let names = vec![full("made", name)];
        pool.take_snapshots(&NewSnapshots { names, properties: Vec::new() }).unwrap();
    };
    ["a", "b"].into_iter().for_each(take);
    let both = ["a", "b"].map(|name| full("made", name));
    assert_eq!(errno(pool.rename_snapshots(&both, "c")), EEXIST);
    let marks = both.map(|source| NewBookmark { source, name: "made#x".to_owned() });
    assert_eq!(errno(pool.create_bookmarks(&marks)), EEXIST);
    drop(fs);
    for round in 0..ROUNDS {
        let fs = open(&pool, "made");
        let file = make(&fs, fs.root(), &format!("file{round}"), NewKind::Regular);
        // A log exists that a rollback drops.
        fs.commit(&[file]).unwrap();
        let start = Barrier::new(2);
        // Whether they share a txg depends on the threads.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                take(&format!("r{round}"));
            });
            scope.spawn(|| {
                start.wait();
                pool.roll_back("made").unwrap();
            });
        });
    }
    pool.export().unwrap();
    world.judge_chains();
    let read = world.import(&rzfs_blockdev::OpenOptions::new());
    for round in 0..ROUNDS {
        let taken = read.datasets().open(&full("made", &format!("r{round}"))).unwrap();
        FileSystem::of_dataset(&taken, FEATURES_VERSION).unwrap();
    }
}

#[test]
fn so_are_those_without_the_features_that_came_later() {
    for (seed, feature) in
        (20..).zip([Feature::LiveList, Feature::BookmarkWritten, Feature::EmptyBpobj])
    {
        live(ImagePool::new("mirror A B").without_feature(feature), seed, 3, 40);
    }
}

/// Snapshots waiting for destruction, and hidden datasets.
#[test]
fn what_somebody_reads_or_receives_is_not_given_up() {
    let world = ImagePool::new("A");
    let session = world.create();
    let pool = &session.pool;
    let take = |name: &str| {
        let names = vec![name.to_owned()];
        pool.take_snapshots(&NewSnapshots { names, properties: Vec::new() }).unwrap();
    };
    let open = |name: &str| pool.dataset_tree().unwrap().open(name);
    let is_busy = |result: Result<(), ChangeError>| matches!(result, Err(ChangeError::Busy { .. }));
    take("made@held");
    let held = ["made@held".to_owned()];
    pool.hold_snapshots(&held, "tag").unwrap();
    pool.destroy_snapshots(&held, Destruction::Deferred).unwrap();
    let kept = open("made@held").unwrap().keep();
    let refused = pool.release_snapshots(&held, "tag").unwrap_err();
    assert!(
        matches!(&refused, ChangeError::Each(all) if matches!(all.as_slice(), [(_, ChangeError::Busy { .. })])),
        "{refused}"
    );
    drop(kept);
    pool.release_snapshots(&held, "tag").unwrap();
    assert!(open("made@held").is_err());

    take("made@cloned");
    let new = NewClone { origin: "made@cloned".to_owned(), properties: Vec::new() };
    pool.clone_snapshot("made/clone", &new).unwrap();
    pool.destroy_snapshots(&["made@cloned".to_owned()], Destruction::Deferred).unwrap();
    let kept = open("made@cloned").unwrap().keep();
    assert!(is_busy(pool.destroy_dataset("made/clone")));
    assert!(open("made/clone").is_ok());
    drop(kept);
    pool.destroy_dataset("made/clone").unwrap();
    assert!(open("made@cloned").is_err());

    for hidden in [pool.promote("made/%recv"), pool.rename_dataset("made/%recv", "made/shown")] {
        assert!(matches!(hidden, Err(ChangeError::InvalidName { .. })), "{hidden:?}");
    }
    session.export();
    world.judge();
}

/// After a promotion, frees are counted before another snapshot, whichever of the two file systems
/// has the bookmark.
#[test]
fn promotion_counts_anew_what_bookmarks_of_the_origin_say() {
    let world = ImagePool::new("A");
    let session = world.create();
    let (pool, fs) = (&session.pool, dataset(&session, "made/a", &[]));
    write(&fs, "large", 8);
    write(&fs, "small", 2);
    let take = |name: &str| {
        let names = vec![name.to_owned()];
        pool.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
    };
    take("made/a@origin");
    fs.unlink(fs.root(), b"small").unwrap();
    settle(&session);
    take("made/a@next");
    let new = NewClone { origin: "made/a@origin".to_owned(), properties: Vec::new() };
    pool.clone_snapshot("made/clone", &new).unwrap();
    let marks = ["made/a#theirs", "made/clone#own"]
        .map(|name| NewBookmark { source: "made/a@origin".to_owned(), name: name.to_owned() });
    pool.create_bookmarks(&marks).unwrap();
    let clone = open(pool, "made/clone");
    clone.unlink(clone.root(), b"large").unwrap();
    settle(&session);
    pool.promote("made/clone").unwrap();
    let marks = pool.dataset_tree().unwrap().open("made/clone").unwrap().bookmarks().unwrap();
    let freed: Vec<_> = marks.iter().map(|mark| mark.record().freed_before_next.used).collect();
    assert!(freed.len() == 2 && freed[0] == freed[1] && freed[0] > 0, "{freed:?}");
    drop((fs, clone));
    session.export();
    world.judge();
}
