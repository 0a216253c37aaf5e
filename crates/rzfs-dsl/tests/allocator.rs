//! Allocating and freeing in pools made by OpenZFS: their space maps and logs are copied to memory,
//! and must stay consistent when the allocator continues with them.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostIdentity, ImportOptions};
use rzfs_dsl::pool::{FeatureState, MosStore};
use rzfs_format::features::Feature;
use rzfs_format::space_map::SpaceMapVersion;
use rzfs_format::{Dva, Txg, VdevId};
use rzfs_metaslab::allocator::{
    Activity, AllocationRequest, Bias, Content, Devices, LogFeature, ObsoleteFeature, Placement,
    SpaceFeatures, SpaceTunables, VdevRole, Writability,
};
use rzfs_metaslab::log::LogMap;
use rzfs_metaslab::memory::{MemoryStore, SharedStore};
use rzfs_metaslab::space_map::append::{HeaderForm, MapFeatures};
use rzfs_metaslab::{
    Allocator, AllocatorOptions, PoolMetaslabs, RangeTree, VdevGeometry, VdevObjects,
};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::VdevTree;
use rzfs_vdev::config::AllocationBias;
use std::collections::BTreeMap;
use std::sync::Arc;

fn import(golden: &ReferencePool) -> Pool {
    let sources: Vec<_> =
        golden.images().expect("images").into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [pool] = found.pools() else { panic!("not one pool: {:?}", found.pools()) };
    let id = u32::try_from(pool.label().host.id).expect("a host id");
    let host = HostIdentity { id, name: None };
    let options = ImportOptions { host, ..ImportOptions::default() };
    Pool::import(pool, &options).unwrap_or_else(|failure| panic!("{failure}"))
}

struct TreeDevices(Arc<VdevTree>);

impl Devices for TreeDevices {
    fn allocated_size(&self, vdev: VdevId, size: u64, txg: Txg) -> Option<u64> {
        self.0.allocated_size(vdev, size, txg)
    }

    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.0.deflate_ratio(vdev).unwrap_or(0)
    }

    fn writability(&self, _: VdevId) -> Writability {
        Writability::Ready
    }
}

fn features(pool: &Pool) -> SpaceFeatures {
    let is_enabled = |feature| pool.features().state(feature) != FeatureState::Disabled;
    let logs = match pool.features().state(Feature::LogSpaceMap) {
        FeatureState::Disabled => LogFeature::Disabled,
        _ if pool.features().is_active(Feature::LogSpaceMap) => LogFeature::Active,
        _ => LogFeature::Enabled,
    };
    SpaceFeatures {
        maps: MapFeatures {
            header: if is_enabled(Feature::SpaceMapHistogram) {
                HeaderForm::Histogram
            } else {
                HeaderForm::V0
            },
            version: if pool.features().is_active(Feature::SpaceMapV2) {
                SpaceMapVersion::Two
            } else {
                SpaceMapVersion::One
            },
        },
        logs,
        obsolete: ObsoleteFeature::Disabled,
    }
}

/// A pool's space accounting in memory, and an allocator that continues with it.
struct Continued {
    devices: Arc<TreeDevices>,
    geometries: Vec<VdevGeometry>,
    roles: BTreeMap<VdevId, VdevRole>,
    store: SharedStore,
    allocator: Allocator,
    txg: Txg,
    /// The allocated ranges, by vdev.
    truth: BTreeMap<VdevId, RangeTree>,
}

fn logs(metaslabs: &PoolMetaslabs) -> Vec<LogMap> {
    metaslabs.logs().iter().map(|statistics| statistics.log).collect()
}

/// The allocated ranges in a store, as trees of whole vdevs.
fn allocated(store: &MemoryStore, geometries: &[VdevGeometry]) -> BTreeMap<VdevId, RangeTree> {
    let metaslabs = store.open(geometries).expect("metaslabs");
    let of_vdev = metaslabs.vdevs().map(|vdev| {
        let geometry = vdev.geometry();
        let mut tree = RangeTree::new(0..geometry.asize, geometry.ashift);
        for metaslab in vdev.metaslabs() {
            tree.add_all(&metaslab.load_allocated(store).expect("a metaslab")).expect("disjoint");
        }
        (geometry.vdev, tree)
    });
    of_vdev.collect()
}

fn same(a: &BTreeMap<VdevId, RangeTree>, b: &BTreeMap<VdevId, RangeTree>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((_, a), (_, b))| a.iter().eq(b.iter()))
}

impl Continued {
    fn new(pool: &Pool) -> Self {
        let metaslabs = pool.metaslabs().expect("metaslabs");
        let mut objects = BTreeMap::new();
        let mut roles = BTreeMap::new();
        for vdev in metaslabs.vdevs() {
            let id = vdev.geometry().vdev;
            let top = pool.vdevs().top_level(id).expect("a vdev");
            let zap = pool.top_attributes(top).expect("a ZAP");
            let checkpoint_map = zap
                .map(|zap| zap.object("com.delphix:pool_checkpoint_sm").expect("a ZAP"))
                .unwrap_or_default();
            objects.insert(
                id,
                VdevObjects {
                    metaslab_array: vdev.metaslab_array(),
                    unflushed_array: vdev.unflushed_array(),
                    checkpoint_map,
                    obsolete_map: None,
                },
            );
            let bias = match top.allocation_bias() {
                None => Bias::None,
                Some(AllocationBias::Log) => Bias::Log,
                Some(AllocationBias::Special) => Bias::Special,
                Some(AllocationBias::Dedup) => Bias::Dedup,
            };
            roles.insert(id, VdevRole { bias, checkpoint_map, ..VdevRole::default() });
        }
        let geometries: Vec<_> = metaslabs.vdevs().map(|vdev| *vdev.geometry()).collect();
        let reader = MosStore::new(pool.mos().clone());
        let mut copy = MemoryStore::copy_of(&reader, &objects, &logs(&metaslabs)).expect("a copy");
        for top in pool.vdevs().top_levels() {
            let id = top.vdev_id().expect("a number");
            if metaslabs.vdev(id).is_none() {
                copy.set_gone(id);
            }
        }
        let truth = allocated(&copy, &geometries);
        let store = SharedStore::new(copy);
        let devices = Arc::new(TreeDevices(Arc::clone(pool.vdevs())));
        let txg = pool.uberblock().txg.next();
        let options = AllocatorOptions {
            tunables: SpaceTunables::default(),
            features: features(pool),
            devices: Arc::clone(&devices) as Arc<dyn Devices>,
            reader: Arc::new(store.clone()),
        };
        let opened = store.lock().open(&geometries).expect("metaslabs");
        let allocator = Allocator::open(options, opened, &roles).expect("an allocator");
        Self { devices, geometries, roles, store, allocator, txg, truth }
    }

    fn is_live(&self) -> bool {
        !self.geometries.is_empty()
    }

    /// Simulates a crash of the process.
    fn reopen(&mut self) {
        let options = AllocatorOptions {
            tunables: SpaceTunables::default(),
            features: self.allocator.features(),
            devices: Arc::clone(&self.devices) as Arc<dyn Devices>,
            reader: Arc::new(self.store.clone()),
        };
        let opened = self.store.lock().open(&self.geometries).expect("metaslabs");
        self.allocator = Allocator::open(options, opened, &self.roles).expect("an allocator");
    }

    /// Allocates blocks of different sizes and contents.
    fn allocate(&mut self, count: u64) -> Vec<Dva> {
        let mut all = Vec::new();
        for number in 0..count {
            let content = match number % 4 {
                0 => Content::Metadata,
                1 => Content::IntentLog,
                2 => Content::DedupTable,
                _ => Content::Data { special_up_to: 0 },
            };
            let copies = if content == Content::Metadata { 3 } else { 1 };
            let size = 512 << (number * 7 % 9);
            let placement = Placement::Block;
            let request =
                AllocationRequest { size, copies, content, placement, locality: number / 8 };
            let Ok(dvas) = self.allocator.allocate(&request, self.txg) else { continue };
            for dva in dvas.into_iter().filter(|dva| dva.is_valid()) {
                let tree = self.truth.get_mut(&dva.vdev()).expect("a vdev");
                tree.add(dva.offset()..dva.offset() + dva.asize()).expect("free space");
                all.push(dva);
            }
        }
        all
    }

    /// Syncs the txg, freeing these.
    fn sync(&mut self, dying: &[Dva]) {
        let pass = self.allocator.begin_sync(self.txg).expect("a pass");
        for dva in dying {
            pass.free(*dva, Txg(1)).expect("it is allocated");
            let tree = self.truth.get_mut(&dva.vdev()).expect("a vdev");
            tree.remove(dva.offset()..dva.offset() + dva.asize()).expect("it is allocated");
        }
        let pass = pass.sync(&mut self.store, Activity::Busy).expect("a store");
        let pass = pass.sync(&mut self.store, Activity::Busy).expect("a store");
        pass.finish().expect("all is recorded").committed().expect("a txg");
        self.txg = self.txg.next();
        let stored = allocated(&self.store.lock(), &self.geometries);
        assert!(same(&stored, &self.truth), "after txg {}", self.txg);
    }

    /// Existing blocks: the start of each vdev's largest segments.
    fn old_blocks(&self) -> Vec<Dva> {
        let of_vdev = self.truth.iter().flat_map(|(vdev, tree)| {
            let geometry = self.geometries.iter().find(|of| of.vdev == *vdev).expect("a vdev");
            let unit = geometry.row_size.unwrap_or(1 << geometry.ashift);
            tree.iter().step_by(5).take(20).filter_map(move |range| {
                let size = unit.min(1 << 20);
                (range.end - range.start >= size).then(|| Dva::new(*vdev, range.start, size, false))
            })
        });
        of_vdev.collect()
    }
}

#[test]
fn figures_are_those_that_reading_finds() {
    for golden in ReferencePool::all_golden() {
        let pool = import(&golden);
        let continued = Continued::new(&pool);
        let usage = continued.allocator.vdev_usage();
        let space = pool.space().expect("space");
        assert_eq!(usage.len(), space.len(), "{}", golden.name());
        for (usage, space) in usage.iter().zip(&space) {
            let found = (usage.vdev, usage.totals.space, usage.totals.allocated);
            assert_eq!(found, (space.vdev, space.size, space.allocated), "{}", golden.name());
        }
        let plain = ["g01-default", "g04-mirror3", "g05-raidz1", "g06-raidz2", "g08-draid2"];
        if plain.contains(&golden.name()) {
            let usage = continued.allocator.usage();
            let usable = pool.usable_space().expect("space");
            assert_eq!(usage.normal_space - usage.slop, usable, "{}", golden.name());
        }
    }
}

#[test]
fn pools_of_openzfs_are_continued_without_a_leak_or_a_double_allocation() {
    let mut with_logs = 0;
    for golden in ReferencePool::all_golden() {
        let pool = import(&golden);
        let mut continued = Continued::new(&pool);
        if !continued.is_live() {
            continue;
        }
        let old = continued.old_blocks();
        let new = continued.allocate(200);
        assert!(!new.is_empty(), "{}", golden.name());
        continued.sync(&old);
        let more = continued.allocate(50);
        continued.sync(&new);
        continued.reopen();
        continued.sync(&more);
        continued.allocate(20);
        continued.allocator.flush_for_export();
        continued.sync(&[]);
        let left = continued.store.lock().logs().len();
        assert!(left <= 1, "{}: {left} logs", golden.name());
        with_logs += left;
        continued.reopen();
        let usage = continued.allocator.vdev_usage();
        for usage in usage {
            let truth = continued.truth.get(&usage.vdev).map(RangeTree::space);
            assert_eq!(Some(usage.totals.allocated), truth, "{}", golden.name());
        }
    }
    assert!(ReferencePool::all_golden().is_empty() || with_logs > 0);
}
