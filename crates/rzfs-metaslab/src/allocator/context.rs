//! State shared by all parts of an allocator.

use super::devices::Devices;
use super::rest::DisableGate;
use super::tunables::{SpaceFeatures, SpaceTunables};
use crate::log::book::MetaslabId;
use crate::store::SpaceMapStore;
use parking_lot::{Mutex, RwLock};
use rzfs_format::Txg;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The index of a txg in arrays of four.
pub(crate) const fn slot(txg: Txg) -> usize {
    (txg.0 & 3) as usize
}

/// Reads the objects of space accounting, including writes of the syncing txg.
pub type SpaceReader = Arc<dyn SpaceMapStore + Send + Sync>;

/// State shared by all parts of an allocator.
pub(crate) struct Context {
    pub(crate) tunables: SpaceTunables,
    pub(crate) devices: Arc<dyn Devices>,
    pub(crate) reader: SpaceReader,
    pub(crate) features: RwLock<SpaceFeatures>,
    /// Metaslabs with something to record, by `txg & 3`.
    dirty: Mutex<[BTreeSet<MetaslabId>; 4]>,
    /// Loaded metaslabs.
    pub(crate) loaded: Mutex<BTreeSet<MetaslabId>>,
    /// Size of their trees when last counted.
    pub(crate) loaded_bytes: AtomicU64,
    /// The last txg that is on disk.
    committed: AtomicU64,
    /// The last txg in which a dedup table block found no room on dedup vdevs.
    dedup_spill: AtomicU64,
    /// Metaslabs disabled while their free space is processed.
    pub(crate) rests: Arc<DisableGate>,
}

impl Context {
    pub(crate) fn new(
        tunables: SpaceTunables,
        features: SpaceFeatures,
        devices: Arc<dyn Devices>,
        reader: SpaceReader,
    ) -> Self {
        Self {
            tunables,
            devices,
            reader,
            features: RwLock::new(features),
            dirty: Mutex::default(),
            loaded: Mutex::default(),
            loaded_bytes: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            dedup_spill: AtomicU64::new(0),
            rests: Arc::default(),
        }
    }

    pub(crate) fn features(&self) -> SpaceFeatures {
        *self.features.read()
    }

    /// The last txg that is on disk; 0 before the first.
    pub(crate) fn committed(&self) -> Txg {
        Txg(self.committed.load(Ordering::Relaxed))
    }

    pub(crate) fn set_committed(&self, txg: Txg) {
        self.committed.store(txg.0, Ordering::Relaxed);
    }

    pub(crate) fn note_dedup_spill(&self, txg: Txg) {
        self.dedup_spill.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// The last txg in which a dedup table block found no room on dedup vdevs; 0 if there was none.
    pub(crate) fn dedup_spill(&self) -> Txg {
        Txg(self.dedup_spill.load(Ordering::Relaxed))
    }

    pub(crate) fn mark_dirty(&self, txg: Txg, metaslab: MetaslabId) {
        self.dirty.lock()[slot(txg)].insert(metaslab);
    }

    pub(crate) fn take_dirty(&self, txg: Txg) -> BTreeSet<MetaslabId> {
        std::mem::take(&mut self.dirty.lock()[slot(txg)])
    }

    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        !self.dirty.lock()[slot(txg)].is_empty()
    }
}
