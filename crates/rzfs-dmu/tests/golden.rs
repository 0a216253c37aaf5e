//! Reads the meta object sets of pools made by OpenZFS.
//!
//! The pools here have one disk, so their label needs no import logic: the newest uberblock of
//! the first label leads to the meta object set.

use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions, read_exact_at};
use rzfs_cache::AccessOutcome;
use rzfs_codec::checksum::Salt;
use rzfs_dmu::{BlockPipeline, BlockRequest, Objset, PipelineOptions, Traversal, Visit, Visitor};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, Guid, ObjectId, ObjsetId, Txg};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Barrier};

const SINGLE_DISK_POOLS: [&str; 4] = ["g17-checkpoint", "g20-nofeatures", "g21-v28", "g22-v8"];

/// Offset and size of the uberblock ring in a label, and the size of a slot for ashift up to 12.
const RING: std::ops::Range<u64> = 128 << 10..256 << 10;

fn newest_uberblock(device: &dyn BlockDevice) -> Uberblock {
    let ring = read_exact_at(device, RING.start, (RING.end - RING.start) as usize).unwrap();
    let slots = ring.chunks(1024).filter_map(|slot| Uberblock::decode(slot).ok());
    slots.map(|(uberblock, _)| uberblock).max_by_key(Uberblock::precedence).unwrap()
}

fn open_mos(pool: &ReferencePool) -> Objset {
    let images = pool.images().unwrap();
    let [image] = images.as_slice() else { panic!("{} has several disks", pool.name()) };
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, &OpenOptions::new()).unwrap());
    let uberblock = newest_uberblock(&*device);
    let mut disk = VdevConfig::new(VdevKind::File, Guid(2));
    disk.top.ashift = Some(9);
    disk.top.asize = Some(device.geometry().size - (5 << 20));
    let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([disk]);
    let devices = HashMap::from([(Guid(2), device)]);
    let vdevs = VdevTree::open(root, &devices, TreeOptions::default()).unwrap();
    let pipeline = BlockPipeline::new(
        Arc::new(vdevs),
        PipelineOptions {
            salt: Salt::new([0; 32]),
            dynamic_gang_headers: false,
            arc_max: 8 << 20,
            tunables: Default::default(),
            injector: None,
        },
    );
    Objset::open(&pipeline, ObjsetId::MOS, &uberblock.mos, None).unwrap()
}

fn pools() -> impl Iterator<Item = (ReferencePool, Objset)> {
    SINGLE_DISK_POOLS.into_iter().filter_map(ReferencePool::golden).map(|pool| {
        let mos = open_mos(&pool);
        (pool, mos)
    })
}

#[test]
fn a_mos_has_as_many_objects_as_its_root_counts() {
    for (pool, mos) in pools() {
        assert_eq!(mos.objset_type(), ObjsetType::Meta, "{}", pool.name());
        let objects: Vec<_> = mos.objects().collect::<Result<_, _>>().unwrap();
        assert_eq!(objects.len() as u64, mos.root().fill(), "{}", pool.name());
        assert!(objects.is_sorted_by_key(|entry| entry.id), "{}", pool.name());
        for entry in &objects {
            let object = mos.object(entry.id).unwrap();
            assert_eq!(object.dnode(), &entry.dnode, "{} {}", pool.name(), entry.id);
        }
    }
}

#[test]
fn the_first_object_of_a_mos_is_the_object_directory() {
    for (pool, mos) in pools() {
        let directory = mos.object(ObjectId(1)).unwrap();
        assert_eq!(directory.object_type(), ObjectType::OBJECT_DIRECTORY, "{}", pool.name());
        assert!(directory.zap().unwrap().lookup_u64(b"root_dataset").unwrap().is_some());
    }
}

#[test]
fn numbers_without_an_object_are_errors_of_their_own() {
    let (_, mos) = pools().next().unwrap();
    let errno = |id| mos.object(ObjectId(id)).unwrap_err().errno();
    assert_eq!(errno(0), 22);
    assert_eq!(errno(1 << 48), 22);
    assert_eq!(errno((1 << 48) - 1), 2);
}

#[test]
fn objects_read_the_same_whole_and_in_pieces() {
    for (pool, mos) in pools() {
        for entry in mos.objects() {
            let object = mos.object(entry.unwrap().id).unwrap();
            let extent = (object.dnode().extent() as usize).min(1 << 20);
            let mut whole = vec![0xff; extent + 100];
            object.read_at(0, &mut whole).unwrap();
            assert!(whole[object.dnode().extent().min(1 << 20) as usize..].len() >= 100);
            for (offset, len) in [(0, extent.min(10)), (extent / 2, extent - extent / 2), (1, 0)] {
                let piece = object.read_bytes(offset as u64, len).unwrap();
                assert_eq!(piece, whole[offset..offset + len], "{} {}", pool.name(), object.id());
            }
        }
    }
}

#[test]
fn data_and_holes_alternate_to_the_end_of_an_object() {
    for (pool, mos) in pools() {
        let meta = mos.meta_object().unwrap();
        let extent = meta.dnode().extent();
        let (mut at, mut data) = (0, 0);
        while let Some(start) = meta.next_data(at).unwrap() {
            let end = meta.next_hole(start).unwrap().unwrap_or(extent);
            assert!(at <= start && start < end && end <= extent, "{}", pool.name());
            data += end - start;
            at = end;
        }
        let blocks = meta.read_blocks(0..extent / u64::from(meta.block_size()));
        let full = blocks.into_iter().filter(|b| b.as_ref().unwrap().data.iter().any(|b| *b != 0));
        assert_eq!(data, full.count() as u64 * u64::from(meta.block_size()), "{}", pool.name());
    }
}

#[derive(Default)]
struct Collect {
    pointers: Vec<(Bookmark, BlockPointer)>,
    damaged: usize,
}

impl Visitor for Collect {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        self.pointers.push((visit.bookmark, *visit.pointer));
        ControlFlow::Continue(())
    }

    fn damage(&mut self, _: rzfs_dmu::DmuError) -> ControlFlow<()> {
        self.damaged += 1;
        ControlFlow::Continue(())
    }
}

fn traverse(mos: &Objset, after: Txg) -> Collect {
    let mut found = Collect::default();
    let traversal = Traversal::parents_first(mos.pipeline(), mos.id()).born_after(after);
    traversal.run(mos.root(), &mut found);
    found
}

#[test]
fn a_traversal_visits_each_block_once_and_prunes_by_birth() {
    for (pool, mos) in pools() {
        let all = traverse(&mos, Txg(0));
        assert_eq!(all.damaged, 0, "{}", pool.name());
        let places: std::collections::HashSet<_> = all.pointers.iter().map(|(at, _)| at).collect();
        assert_eq!(places.len(), all.pointers.len(), "{}", pool.name());
        let newest = all.pointers.iter().map(|(_, bp)| bp.logical_birth()).max().unwrap();
        assert_eq!(newest, mos.root().logical_birth(), "{}", pool.name());

        let after = Txg(newest.0 - 1);
        let new = traverse(&mos, after).pointers;
        let expected: Vec<_> =
            all.pointers.into_iter().filter(|(_, bp)| bp.logical_birth() > after).collect();
        assert_eq!(new, expected, "{}", pool.name());
        assert!(!new.is_empty());
    }
}

#[test]
fn threads_that_want_the_same_blocks_have_each_read_once() {
    const THREADS: usize = 8;
    for pool in SINGLE_DISK_POOLS.into_iter().filter_map(ReferencePool::golden) {
        let pointers = traverse(&open_mos(&pool), Txg(0)).pointers;
        let mos = open_mos(&pool);
        let requests: Vec<BlockRequest<'_>> = pointers
            .iter()
            .filter(|(_, pointer)| pointer.dvas().next().is_some())
            .map(|(bookmark, pointer)| BlockRequest { pointer, bookmark: *bookmark, key: None })
            .collect();
        let before = mos.pipeline().cache().stats();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for batch in requests.chunks(64) {
                        assert!(mos.pipeline().read_many(batch).iter().all(Result::is_ok));
                    }
                });
            }
        });
        let after = mos.pipeline().cache().stats();
        let distinct: std::collections::HashSet<_> =
            pointers.iter().filter_map(|(_, pointer)| pointer.dvas().next()).collect();
        // Opening the objset has already read its root.
        let read = after.misses - before.misses;
        assert_eq!(read, distinct.len() as u64 - 1, "{}", pool.name());
        let found = after.hits + after.iohits - before.hits - before.iohits;
        assert_eq!(found + read, (THREADS * requests.len()) as u64, "{}", pool.name());
    }
}

#[test]
fn what_was_prefetched_is_there_and_counts_as_such() {
    for (pool, mos) in pools() {
        let pointers = traverse(&open_mos(&pool), Txg(0)).pointers;
        let requests: Vec<BlockRequest<'_>> = pointers
            .iter()
            .map(|(bookmark, pointer)| BlockRequest { pointer, bookmark: *bookmark, key: None })
            .collect();
        mos.pipeline().prefetch(&requests);
        let batch = mos.pipeline().begin(&requests);
        assert_eq!(batch.outcome(), AccessOutcome::Cached, "{}", pool.name());
        assert!(batch.finish().iter().all(Result::is_ok), "{}", pool.name());
        let stats = mos.pipeline().cache().stats();
        assert!(stats.demand_hit_predictive_prefetch > 0, "{}", pool.name());
        assert_eq!(stats.demand_data_misses, 0, "{}", pool.name());
    }
}

/// The trace of a walk, up to a number of blocks and holes.
struct Trace {
    shown: Vec<(Bookmark, BlockPointer)>,
    limit: usize,
}

impl Trace {
    /// The trace of the walk, and where it resumes.
    fn of(walk: Traversal<'_>, mos: &Objset, limit: usize) -> (Self, Option<Bookmark>) {
        let mut trace = Self { shown: Vec::new(), limit };
        let next = walk.run(mos.root(), &mut trace);
        (trace, next)
    }
}

impl Visitor for Trace {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        if self.shown.len() == self.limit {
            return ControlFlow::Break(());
        }
        self.shown.push((visit.bookmark, *visit.pointer));
        ControlFlow::Continue(())
    }

    fn hole(&mut self, hole: &Visit<'_>) -> ControlFlow<()> {
        self.block(hole)
    }

    fn damage(&mut self, error: rzfs_dmu::DmuError) -> ControlFlow<()> {
        panic!("{error}");
    }
}

fn both_orders(mos: &Objset) -> [Traversal<'_>; 2] {
    [Traversal::parents_first, Traversal::children_first].map(|walk| walk(mos.pipeline(), mos.id()))
}

#[test]
fn a_walk_that_goes_on_anywhere_shows_exactly_what_is_left() {
    const MOST: usize = 300;
    for (pool, mos) in pools() {
        for walk in both_orders(&mos) {
            let (whole, end) = Trace::of(walk, &mos, usize::MAX);
            assert_eq!(end, None);
            for limit in (0..whole.shown.len()).step_by(whole.shown.len() / MOST + 1) {
                let (begun, next) = Trace::of(walk, &mos, limit);
                let next_of_whole = whole.shown[limit].0;
                assert_eq!(next, Some(next_of_whole), "{}", pool.name());
                let (rest, end) = Trace::of(walk.resumed_at(next), &mos, usize::MAX);
                assert_eq!(end, None);
                let (first, second) = whole.shown.split_at(limit);
                assert!(begun.shown == first, "{}: before {next_of_whole}", pool.name());
                assert!(rest.shown == second, "{}: from {next_of_whole}", pool.name());
            }
        }
    }
}

#[test]
fn both_orders_show_the_same() {
    for (pool, mos) in pools() {
        let [parents_first, children_first] = both_orders(&mos).map(|walk| {
            let (mut trace, _) = Trace::of(walk, &mos, usize::MAX);
            trace.shown.sort_by_key(|(bookmark, _)| *bookmark);
            trace.shown
        });
        assert!(parents_first == children_first, "{}", pool.name());
    }
}
