//! An allocator on an in-memory store, compared with a map of allocations.

mod damage;
mod logs;
mod model;
mod policy;

use super::*;
use crate::memory::{MemoryStore, SharedStore};
use crate::metaslab::VdevGeometry;
use crate::store::CountedFeature;
use rzfs_format::Dva;
use std::collections::BTreeMap;

/// A vdev of a test pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestVdev {
    pub(super) geometry: VdevGeometry,
    pub(super) role: VdevRole,
    /// Sectors of parity for two of data.
    pub(super) parity: u64,
}

/// `count` metaslabs of 1 << `shift` bytes.
pub(super) fn vdev(id: u32, count: u64, shift: u32, ashift: u32) -> TestVdev {
    let geometry = VdevGeometry {
        vdev: VdevId(id),
        asize: (count << shift) + 512,
        ashift,
        metaslab_shift: shift,
        row_size: None,
    };
    TestVdev { geometry, role: VdevRole::default(), parity: 0 }
}

/// The vdevs of a test pool; those in `offline` cannot be written.
#[derive(Default)]
pub(super) struct TestDevices {
    pub(super) vdevs: RwLock<BTreeMap<VdevId, TestVdev>>,
    pub(super) offline: Mutex<Vec<VdevId>>,
    pub(super) moved: Mutex<Vec<(SpacePiece, SpacePiece)>>,
}

impl Devices for TestDevices {
    fn allocated_size(&self, vdev: VdevId, size: u64, _: Txg) -> Option<u64> {
        let vdev = *self.vdevs.read().get(&vdev)?;
        let sectors = size.div_ceil(1 << vdev.geometry.ashift);
        Some((sectors + sectors.div_ceil(2) * vdev.parity) << vdev.geometry.ashift)
    }

    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.vdevs.read().get(&vdev).map_or(0, |vdev| 512 * 2 / (2 + vdev.parity))
    }

    fn writability(&self, vdev: VdevId) -> Writability {
        if self.offline.lock().contains(&vdev) { Writability::None } else { Writability::Ready }
    }

    fn copies(
        &self,
        vdev: VdevId,
        range: Range<u64>,
    ) -> Result<Vec<SpacePiece>, crate::StoreError> {
        let moved = self.moved.lock();
        let of_vdev = moved.iter().filter(|(from, _)| from.vdev == vdev);
        let pieces = of_vdev.filter_map(|(SpacePiece { range: source, .. }, to)| {
            let (start, end) = (range.start.max(source.start), range.end.min(source.end));
            (start < end).then(|| SpacePiece {
                vdev: to.vdev,
                range: to.range.start + (start - source.start)
                    ..to.range.start + (end - source.start),
            })
        });
        Ok(pieces.collect())
    }
}

/// A pool: vdevs, a store, and its open allocator.
pub(super) struct World {
    pub(super) devices: Arc<TestDevices>,
    pub(super) store: SharedStore,
    pub(super) allocator: Allocator,
    pub(super) txg: Txg,
    tunables: SpaceTunables,
}

impl World {
    /// A new pool in its first txg.
    pub(super) fn create(
        vdevs: &[TestVdev],
        tunables: SpaceTunables,
        features: SpaceFeatures,
    ) -> Self {
        let of_id = vdevs.iter().map(|vdev| (vdev.geometry.vdev, *vdev)).collect();
        let of_id = RwLock::new(of_id);
        let devices = Arc::new(TestDevices { vdevs: of_id, ..TestDevices::default() });
        let store = SharedStore::default();
        let allocator = Allocator::new(AllocatorOptions {
            tunables,
            features,
            devices: Arc::clone(&devices) as Arc<dyn Devices>,
            reader: Arc::new(store.clone()),
        });
        for vdev in vdevs {
            allocator.add_vdev(vdev.geometry, vdev.role, Availability::Now).unwrap();
        }
        Self { devices, store, allocator, txg: Txg::INITIAL, tunables }
    }

    /// Imports the state left by a crash.
    pub(super) fn open(&self, store: MemoryStore, txg: Txg) -> Self {
        let mut features = self.allocator.features();
        if features.logs == LogFeature::Active && store.logs().is_empty() {
            features.logs = LogFeature::Enabled;
        }
        let geometries: Vec<_> =
            self.devices.vdevs.read().values().map(|vdev| vdev.geometry).collect();
        let metaslabs = store.open(&geometries).unwrap();
        let vdevs = self.devices.vdevs.read();
        let roles = vdevs.iter().map(|(id, vdev)| {
            let checkpoint_map = store.vdev(*id).checkpoint_map;
            (*id, VdevRole { checkpoint_map, ..vdev.role })
        });
        let roles = roles.collect();
        drop(vdevs);
        let store = SharedStore::new(store);
        let options = AllocatorOptions {
            tunables: self.tunables,
            features,
            devices: Arc::clone(&self.devices) as Arc<dyn Devices>,
            reader: Arc::new(store.clone()),
        };
        let allocator = Allocator::open(options, metaslabs, &roles).unwrap();
        Self { devices: Arc::clone(&self.devices), store, allocator, txg, tunables: self.tunables }
    }

    pub(super) fn allocate(&self, size: u64, copies: u8) -> Result<Vec<Dva>, NoSpace> {
        self.allocate_for(size, copies, Content::Data { special_up_to: 0 })
    }

    pub(super) fn allocate_for(
        &self,
        size: u64,
        copies: u8,
        content: Content,
    ) -> Result<Vec<Dva>, NoSpace> {
        let request = AllocationRequest {
            size,
            copies,
            content,
            placement: Placement::Block,
            locality: size,
        };
        let dvas = self.allocator.allocate(&request, self.txg)?;
        Ok(dvas.into_iter().filter(|dva| dva.is_valid()).collect())
    }

    /// Allocates until a block is at the wanted place.
    pub(super) fn allocate_until(&self, wanted: impl Fn(Dva) -> bool) -> Dva {
        let mut blocks = (0..10_000).filter_map(|_| self.allocate(0x4000, 1).ok()).flatten();
        blocks.find(|dva| wanted(*dva)).unwrap()
    }

    /// Syncs the txg with these frees in its first pass.
    pub(super) fn sync(&mut self, frees: &[Dva]) {
        let pass = self.allocator.begin_sync(self.txg).unwrap();
        for dva in frees {
            pass.free(*dva, Txg(1)).unwrap();
        }
        let pass = pass.sync(&mut self.store, Activity::Busy).unwrap();
        pass.finish().unwrap().committed().unwrap();
        self.txg = self.txg.next();
    }
}

/// What is allocated according to a store.
pub(super) fn stored(store: &MemoryStore, devices: &TestDevices) -> BTreeMap<(VdevId, u64), u64> {
    let geometries: Vec<_> = devices.vdevs.read().values().map(|vdev| vdev.geometry).collect();
    let mut segments = BTreeMap::new();
    for vdev in store.open(&geometries).unwrap().vdevs() {
        for metaslab in vdev.metaslabs() {
            let tree = metaslab.load_allocated(store).unwrap();
            assert_eq!(tree.space().cast_signed(), metaslab.allocated());
            for range in tree.iter() {
                segments.insert((vdev.geometry().vdev, range.start), range.end);
            }
        }
    }
    segments
}

/// Checks the invariants of every metaslab between txgs.
pub(super) fn check_metaslabs(world: &World) {
    let mut histograms = 0;
    for live in world.allocator.topology().vdevs.values() {
        let mut totals = SpaceTotals::default();
        live.groups.iter().for_each(|group| totals.add(*group.totals.lock()));
        let mut counted = SpaceTotals::default();
        for metaslab in &live.metaslabs {
            let state = metaslab.state.lock();
            let deferred = state.transient.as_ref().map_or(0, |transient| {
                transient.deferred.iter().map(|deferred| deferred.segments.space()).sum()
            });
            let allocated = state.allocated.cast_unsigned();
            counted.add(SpaceTotals {
                space: metaslab.size(),
                allocated: allocated + deferred,
                deferred,
            });
            assert_eq!(
                state.key,
                group::OrderKey::new(
                    state.active.map(|active| active.activation),
                    state.weight,
                    metaslab.id.index
                )
            );
            assert!(!matches!(state.free, metaslab::FreeTree::Unusable));
            if let metaslab::FreeTree::Loaded(free) = &state.free {
                let allocating = state
                    .transient
                    .as_ref()
                    .map_or(0, |transient| transient.allocating.iter().map(RangeTree::space).sum());
                let free = free.segments().space();
                assert_eq!(metaslab.size() - allocated, free + allocating + deferred);
            }
            histograms +=
                u64::from(state.map.as_ref().is_some_and(|map| map.header().histogram.is_some()));
        }
        assert_eq!(totals, counted, "{:?}", live.geometry.vdev);
    }
    let logs = world.store.lock().logs().len() as u64;
    let store = world.store.lock();
    let maps = if world.allocator.features().maps.header
        == crate::space_map::append::HeaderForm::Histogram
    {
        let vdevs = world.devices.vdevs.read();
        let checkpoints = vdevs.keys().filter(|id| store.vdev(**id).checkpoint_map.is_some());
        histograms + logs + checkpoints.count() as u64
    } else {
        0
    };
    assert_eq!(store.feature_count(CountedFeature::SpaceMapHistogram), maps);
}
