//! A store of space accounting in memory, for tests, benches and simulations.
//!
//! It keeps the on-disk state of a pool as plain values. A clone of it is the state after a crash:
//! [`MemoryStore::open`] imports it as a pool's import would. A [`SharedStore`] is read by an
//! allocator while a txg is synced to it.

mod shared;

pub use shared::SharedStore;

use crate::log::{LoggedVdev, PoolMetaslabs};
use crate::metaslab::{VdevGeometry, VdevMetaslabs};
use crate::store::{
    CountChange, CountedFeature, LogMap, NewObject, SpaceDirectory, SpaceMapStore,
    SpaceMapStoreMut, VdevObjects,
};
use crate::{MetaslabError, StoreError, StoredObject};
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::SpaceMapHeader;
use rzfs_format::{ByteOrder, ObjectId, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};

/// An object of a [`MemoryStore`].
#[derive(Clone, Debug)]
struct MemoryObject {
    shape: NewObject,
    words: Vec<u64>,
    bonus: Vec<u8>,
}

/// Counters of writes to a [`MemoryStore`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreActivity {
    /// Calls that wrote words.
    pub writes: u64,
    /// Words written.
    pub words: u64,
    /// Blocks that these words lie in, counted for each call.
    pub blocks: u64,
    /// Bonus buffers written.
    pub bonuses: u64,
}

/// Why a [damaged](MemoryStore::damage) object cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("the object is damaged")]
struct DamagedObject;

/// Space accounting in memory.
#[derive(Clone, Default, Debug)]
pub struct MemoryStore {
    objects: BTreeMap<ObjectId, MemoryObject>,
    last_object: u64,
    vdevs: BTreeMap<VdevId, VdevObjects>,
    gone: BTreeSet<VdevId>,
    damaged: BTreeSet<ObjectId>,
    logs: BTreeMap<Txg, ObjectId>,
    histogram_count: u64,
    log_count: u64,
    obsolete_count: u64,
    activity: StoreActivity,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of the space accounting of a pool: the objects of these vdevs and these logs, with
    /// the numbers that they have there. Counts of features are those of what is copied.
    ///
    /// # Errors
    /// An object cannot be read, or does not belong to space accounting.
    pub fn copy_of(
        store: &impl SpaceMapStore,
        vdevs: &BTreeMap<VdevId, VdevObjects>,
        logs: &[LogMap],
    ) -> Result<Self, MetaslabError> {
        let mut copy = Self { vdevs: vdevs.clone(), ..Self::default() };
        for objects in vdevs.values() {
            for array in objects.metaslab_array.into_iter().chain(objects.unflushed_array) {
                copy.copy_object(store, array)?;
            }
            let maps: Vec<u64> =
                objects.metaslab_array.map_or_else(Vec::new, |array| copy.words(array).to_vec());
            let others = objects.checkpoint_map.into_iter().chain(objects.obsolete_map);
            let maps = maps.into_iter().filter_map(|map| ObjectId(map).non_zero());
            for map in maps.chain(others) {
                copy.copy_object(store, map)?;
            }
        }
        for log in logs {
            copy.copy_object(store, log.object)?;
            copy.logs.insert(log.txg, log.object);
        }
        copy.log_count = u64::from(!logs.is_empty());
        Ok(copy)
    }

    fn copy_object(
        &mut self,
        store: &impl SpaceMapStore,
        id: ObjectId,
    ) -> Result<(), MetaslabError> {
        const CHUNK: u64 = 1 << 17;
        let failed = MetaslabError::store(id);
        let stored = store.object(id).map_err(&failed)?;
        let is_map = stored.object_type == ObjectType::SPACE_MAP;
        let (bonus_type, bonus) = if is_map {
            let header = SpaceMapHeader::decode(&stored.bonus, stored.order)
                .map_err(MetaslabError::format(id))?;
            self.histogram_count += u64::from(header.histogram.is_some());
            (ObjectType::SPACE_MAP_HEADER, header.encode(ByteOrder::NATIVE))
        } else {
            (ObjectType::NONE, Vec::new())
        };
        let mut words = Vec::new();
        let end = stored.extent / 8;
        while (words.len() as u64) < end {
            let first = words.len() as u64;
            let count = (end - first).min(CHUNK) as usize;
            words.extend(store.read_words(id, first, count).map_err(&failed)?);
        }
        let shape = NewObject {
            object_type: stored.object_type,
            block_size: stored.block_size,
            indirect_shift: if is_map { 14 } else { 17 },
            bonus_type,
            bonus_size: bonus.len() as u32,
        };
        self.last_object = self.last_object.max(id.0);
        self.objects.insert(id, MemoryObject { shape, words, bonus });
        Ok(())
    }

    /// What was written since the last call of [`MemoryStore::take_activity`].
    pub fn take_activity(&mut self) -> StoreActivity {
        std::mem::take(&mut self.activity)
    }

    /// The objects of a vdev.
    #[must_use]
    pub fn vdev(&self, vdev: VdevId) -> VdevObjects {
        self.vdevs.get(&vdev).copied().unwrap_or_default()
    }

    /// Marks a vdev as without metaslabs; its log entries no longer count.
    pub fn set_gone(&mut self, vdev: VdevId) {
        self.gone.insert(vdev);
    }

    /// Makes an object neither readable nor changeable.
    pub fn damage(&mut self, object: ObjectId) {
        self.damaged.insert(object);
    }

    /// The logs by txg.
    #[must_use]
    pub fn logs(&self) -> Vec<LogMap> {
        self.logs.iter().map(|(&txg, &object)| LogMap { txg, object }).collect()
    }

    /// The reference count of a feature.
    #[must_use]
    pub const fn feature_count(&self, feature: CountedFeature) -> u64 {
        match feature {
            CountedFeature::SpaceMapHistogram => self.histogram_count,
            CountedFeature::LogSpaceMap => self.log_count,
            CountedFeature::ObsoleteCounts => self.obsolete_count,
        }
    }

    /// Numbers of all objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.objects.keys().copied()
    }

    /// Words of an object as far as they were written.
    #[must_use]
    pub fn words(&self, object: ObjectId) -> &[u64] {
        self.objects.get(&object).map_or(&[], |object| &object.words)
    }

    /// Reads the metaslabs of these vdevs and replays the logs.
    pub fn open(&self, vdevs: &[VdevGeometry]) -> Result<PoolMetaslabs, MetaslabError> {
        let gone = self.gone.iter().map(|vdev| (*vdev, LoggedVdev::Gone));
        let mut opened: BTreeMap<_, _> = gone.collect();
        for geometry in vdevs.iter().filter(|geometry| !self.gone.contains(&geometry.vdev)) {
            let objects = self.vdev(geometry.vdev);
            let vdev = VdevMetaslabs::open(
                self,
                *geometry,
                objects.metaslab_array,
                objects.unflushed_array,
            )?;
            opened.insert(geometry.vdev, LoggedVdev::Concrete(vdev));
        }
        let mut pool = PoolMetaslabs::new(opened);
        pool.replay(self, &self.logs())?;
        Ok(pool)
    }

    fn check(&self, object: ObjectId) -> Result<(), StoreError> {
        if self.damaged.contains(&object) { Err(DamagedObject.into()) } else { Ok(()) }
    }

    fn get(&self, object: ObjectId) -> Result<&MemoryObject, StoreError> {
        self.check(object)?;
        self.objects.get(&object).ok_or_else(|| "no such object".into())
    }

    fn get_mut(&mut self, object: ObjectId) -> Result<&mut MemoryObject, StoreError> {
        self.check(object)?;
        self.objects.get_mut(&object).ok_or_else(|| "no such object".into())
    }
}

impl SpaceMapStore for MemoryStore {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        let object = self.get(object)?;
        let block_size = u64::from(object.shape.block_size);
        let blocks = (object.words.len() as u64 * 8).div_ceil(block_size).max(1);
        Ok(StoredObject {
            object_type: object.shape.object_type,
            block_size: object.shape.block_size,
            extent: blocks * block_size,
            bonus: object.bonus.clone().into(),
            order: ByteOrder::NATIVE,
        })
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let first = usize::try_from(first)?;
        let there = self.get(object)?.words.get(first..).unwrap_or_default();
        let mut words = there.get(..count).unwrap_or(there).to_vec();
        words.resize(count, 0);
        Ok(words)
    }
}

impl SpaceMapStoreMut for MemoryStore {
    fn create_object(&mut self, shape: &NewObject) -> Result<ObjectId, StoreError> {
        self.last_object += 1;
        let object = ObjectId(self.last_object);
        let bonus = vec![0; shape.bonus_size as usize];
        self.objects.insert(object, MemoryObject { shape: *shape, words: Vec::new(), bonus });
        Ok(object)
    }

    fn free_object(&mut self, object: ObjectId) -> Result<(), StoreError> {
        self.check(object)?;
        self.objects.remove(&object).map(drop).ok_or_else(|| "no such object".into())
    }

    fn free_blocks(&mut self, object: ObjectId) -> Result<(), StoreError> {
        self.get_mut(object)?.words.clear();
        Ok(())
    }

    fn write_words(
        &mut self,
        object: ObjectId,
        first: u64,
        words: &[u64],
    ) -> Result<(), StoreError> {
        let stored = self.get_mut(object)?;
        let start = usize::try_from(first)?;
        let end = start.checked_add(words.len()).ok_or("beyond the largest object")?;
        if stored.words.len() < end {
            stored.words.resize(end, 0);
        }
        if let Some(place) = stored.words.get_mut(start..end) {
            place.copy_from_slice(words);
        }
        let per_block = (stored.shape.block_size as usize / 8).max(1);
        self.activity.writes += 1;
        self.activity.words += words.len() as u64;
        self.activity.blocks += (end.div_ceil(per_block) - start / per_block) as u64;
        Ok(())
    }

    fn set_bonus(&mut self, object: ObjectId, bonus: &[u8]) -> Result<(), StoreError> {
        let stored = self.get_mut(object)?;
        if stored.bonus.len() != bonus.len() {
            return Err("the bonus has another size".into());
        }
        stored.bonus.copy_from_slice(bonus);
        self.activity.bonuses += 1;
        Ok(())
    }

    fn indirect_shift(&self, object: ObjectId) -> Result<u32, StoreError> {
        Ok(self.get(object)?.shape.indirect_shift)
    }

    fn is_damage(&self, error: &StoreError) -> bool {
        error.is::<DamagedObject>()
    }
}

impl SpaceDirectory for MemoryStore {
    fn set_metaslab_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.vdevs.entry(vdev).or_default().metaslab_array = array;
        Ok(())
    }

    fn set_unflushed_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.vdevs.entry(vdev).or_default().unflushed_array = array;
        Ok(())
    }

    fn set_checkpoint_map(
        &mut self,
        vdev: VdevId,
        map: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.vdevs.entry(vdev).or_default().checkpoint_map = map;
        Ok(())
    }

    fn set_obsolete_map(&mut self, vdev: VdevId, map: Option<ObjectId>) -> Result<(), StoreError> {
        self.vdevs.entry(vdev).or_default().obsolete_map = map;
        Ok(())
    }

    fn add_log(&mut self, log: LogMap) -> Result<(), StoreError> {
        match self.logs.insert(log.txg, log.object) {
            None => Ok(()),
            Some(_) => Err("the txg has a log already".into()),
        }
    }

    fn remove_log(&mut self, txg: Txg) -> Result<(), StoreError> {
        self.logs.remove(&txg).map(drop).ok_or_else(|| "the txg has no log".into())
    }

    fn count_feature(
        &mut self,
        feature: CountedFeature,
        change: CountChange,
    ) -> Result<(), StoreError> {
        let count = match feature {
            CountedFeature::SpaceMapHistogram => &mut self.histogram_count,
            CountedFeature::LogSpaceMap => &mut self.log_count,
            CountedFeature::ObsoleteCounts => &mut self.obsolete_count,
        };
        *count = match change {
            CountChange::Increment => *count + 1,
            CountChange::Decrement => count.checked_sub(1).ok_or("a count below zero")?,
        };
        Ok(())
    }
}
