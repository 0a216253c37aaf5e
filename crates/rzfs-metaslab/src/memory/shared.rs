//! A [`MemoryStore`] with several holders.

use super::MemoryStore;
use crate::StoreError;
use crate::store::LogMap;
use crate::store::{
    CountChange, CountedFeature, NewObject, SpaceDirectory, SpaceMapStore, SpaceMapStoreMut,
    StoredObject,
};
use parking_lot::{Mutex, MutexGuard};
use rzfs_format::{ObjectId, Txg, VdevId};
use std::sync::Arc;

/// A [`MemoryStore`] with several holders: one writes, others read.
#[derive(Clone, Default, Debug)]
pub struct SharedStore(Arc<Mutex<MemoryStore>>);

impl SharedStore {
    /// Shares a store.
    #[must_use]
    pub fn new(store: MemoryStore) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    /// The store itself, while the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, MemoryStore> {
        self.0.lock()
    }

    /// The state that a crash would leave now.
    #[must_use]
    pub fn snapshot(&self) -> MemoryStore {
        self.0.lock().clone()
    }
}

impl SpaceMapStore for SharedStore {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        self.lock().object(object)
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        self.lock().read_words(object, first, count)
    }
}

impl SpaceMapStoreMut for SharedStore {
    fn create_object(&mut self, object: &NewObject) -> Result<ObjectId, StoreError> {
        self.lock().create_object(object)
    }

    fn free_object(&mut self, object: ObjectId) -> Result<(), StoreError> {
        self.lock().free_object(object)
    }

    fn free_blocks(&mut self, object: ObjectId) -> Result<(), StoreError> {
        self.lock().free_blocks(object)
    }

    fn write_words(
        &mut self,
        object: ObjectId,
        first: u64,
        words: &[u64],
    ) -> Result<(), StoreError> {
        self.lock().write_words(object, first, words)
    }

    fn set_bonus(&mut self, object: ObjectId, bonus: &[u8]) -> Result<(), StoreError> {
        self.lock().set_bonus(object, bonus)
    }

    fn indirect_shift(&self, object: ObjectId) -> Result<u32, StoreError> {
        self.lock().indirect_shift(object)
    }

    fn is_damage(&self, error: &StoreError) -> bool {
        self.lock().is_damage(error)
    }
}

impl SpaceDirectory for SharedStore {
    fn set_metaslab_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.lock().set_metaslab_array(vdev, array)
    }

    fn set_unflushed_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.lock().set_unflushed_array(vdev, array)
    }

    fn set_checkpoint_map(
        &mut self,
        vdev: VdevId,
        map: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.lock().set_checkpoint_map(vdev, map)
    }

    fn set_obsolete_map(&mut self, vdev: VdevId, map: Option<ObjectId>) -> Result<(), StoreError> {
        self.lock().set_obsolete_map(vdev, map)
    }

    fn add_log(&mut self, log: LogMap) -> Result<(), StoreError> {
        self.lock().add_log(log)
    }

    fn remove_log(&mut self, txg: Txg) -> Result<(), StoreError> {
        self.lock().remove_log(txg)
    }

    fn count_feature(
        &mut self,
        feature: CountedFeature,
        change: CountChange,
    ) -> Result<(), StoreError> {
        self.lock().count_feature(feature, change)
    }
}
