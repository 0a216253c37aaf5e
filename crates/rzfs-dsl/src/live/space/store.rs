//! Space maps and their arrays during a sync, and where they are found (spec 06, sections 5, 6.1
//! and 13.2).

use crate::live::LiveError;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key};
use crate::pool::MosStore;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{Extent, LiveObject, LiveObjset, NewObject as NewDmuObject};
use rzfs_format::features::Feature;
use rzfs_format::{ObjectId, Txg, VdevId};
use rzfs_metaslab::log::LogMap;
use rzfs_metaslab::{
    CountChange, CountedFeature, NewObject, SpaceDirectory, SpaceMapStore, SpaceMapStoreMut,
    StoreError, StoredObject,
};
use rzfs_vdev::VdevTree;

pub(crate) const LOGS: &str = "com.delphix:log_spacemap_zap";
pub(crate) const UNFLUSHED: &str = "com.delphix:ms_unflushed_phys_txgs";
const CHECKPOINT_MAP: &str = "com.delphix:pool_checkpoint_sm";
const OBSOLETE_MAP: &str = "com.delphix:indirect_obsolete_sm";
/// Size of a word in bytes.
const WORD: u64 = 8;

/// The MOS in a sync pass, as the store of space accounting.
pub(crate) struct LiveStore<'a> {
    pub(crate) mos: MosTx<'a>,
    pub(crate) features: &'a mut Features,
    pub(crate) vdevs: &'a VdevTree,
}

impl LiveStore<'_> {
    fn get(&self, object: ObjectId) -> Result<LiveObject, StoreError> {
        Ok(self.mos.object(object)?)
    }

    /// Reads the objects of space accounting, including changes of the syncing txg.
    fn reader(&self) -> MosStore<LiveObjset> {
        MosStore::new(self.mos.objset().clone())
    }

    /// Sets or removes an entry of a top-level vdev's ZAP.
    fn set_entry(
        &self,
        vdev: VdevId,
        name: &'static str,
        object: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        let top = self.vdevs.top_level(vdev);
        let zap = top.and_then(|top| top.own_config().top.zap.and_then(ObjectId::non_zero));
        let zap = zap.ok_or_else(|| format!("vdev {vdev} has no attributes"))?;
        match object {
            Some(object) => self.mos.set(zap, name, object.get())?,
            None => {
                self.mos.remove(zap, name)?;
            }
        }
        Ok(())
    }
}

impl SpaceMapStore for LiveStore<'_> {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        self.reader().object(object)
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        self.reader().read_words(object, first, count)
    }
}

impl SpaceMapStoreMut for LiveStore<'_> {
    fn create_object(&mut self, object: &NewObject) -> Result<ObjectId, StoreError> {
        let new = NewDmuObject {
            object_type: object.object_type,
            data_block_size: object.block_size,
            indirect_shift: u8::try_from(object.indirect_shift)?,
            bonus_type: object.bonus_type,
            bonus: &vec![0; object.bonus_size as usize],
            slots: 1,
        };
        Ok(self.mos.objset().allocate(self.mos.tx(), new)?.id())
    }

    fn free_object(&mut self, object: ObjectId) -> Result<(), StoreError> {
        Ok(self.mos.destroy(object)?)
    }

    fn free_blocks(&mut self, object: ObjectId) -> Result<(), StoreError> {
        Ok(self.get(object)?.free(self.mos.tx(), 0, Extent::ToEnd)?)
    }

    fn write_words(
        &mut self,
        object: ObjectId,
        first: u64,
        words: &[u64],
    ) -> Result<(), StoreError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(self.get(object)?.write(self.mos.tx(), first.saturating_mul(WORD), &bytes)?)
    }

    fn set_bonus(&mut self, object: ObjectId, bonus: &[u8]) -> Result<(), StoreError> {
        let object = self.get(object)?;
        Ok(object.set_bonus(self.mos.tx(), object.bonus_type()?, bonus)?)
    }

    fn indirect_shift(&self, object: ObjectId) -> Result<u32, StoreError> {
        Ok(self.get(object)?.indirect_shift()?.into())
    }

    fn is_damage(&self, error: &StoreError) -> bool {
        let of_object = error.downcast_ref().is_some_and(DmuError::is_damage);
        of_object || error.downcast_ref().is_some_and(LiveError::is_damage)
    }
}

impl SpaceDirectory for LiveStore<'_> {
    fn set_metaslab_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        let top = self.vdevs.top_level(vdev).ok_or_else(|| format!("there is no vdev {vdev}"))?;
        self.vdevs.change(top.guid(), |config| config.top.metaslab_array = array);
        Ok(())
    }

    fn set_unflushed_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        array.into_iter().for_each(|array| self.mos.hold(array));
        self.set_entry(vdev, UNFLUSHED, array)
    }

    fn set_checkpoint_map(
        &mut self,
        vdev: VdevId,
        map: Option<ObjectId>,
    ) -> Result<(), StoreError> {
        self.set_entry(vdev, CHECKPOINT_MAP, map)
    }

    fn set_obsolete_map(&mut self, vdev: VdevId, map: Option<ObjectId>) -> Result<(), StoreError> {
        self.set_entry(vdev, OBSOLETE_MAP, map)
    }

    fn add_log(&mut self, log: LogMap) -> Result<(), StoreError> {
        let zap = match self.mos.object_of(DIRECTORY, LOGS)? {
            Some(zap) => zap,
            None => {
                let zap = self.mos.create_held_zap()?;
                self.mos.insert(DIRECTORY, LOGS, zap.get())?;
                zap
            }
        };
        Ok(self.mos.insert(zap, &number_key(log.txg.get()), log.object.get())?)
    }

    fn remove_log(&mut self, txg: Txg) -> Result<(), StoreError> {
        if let Some(zap) = self.mos.object_of(DIRECTORY, LOGS)? {
            self.mos.remove(zap, &number_key(txg.get()))?;
        }
        Ok(())
    }

    fn count_feature(
        &mut self,
        feature: CountedFeature,
        change: CountChange,
    ) -> Result<(), StoreError> {
        let feature = match feature {
            CountedFeature::SpaceMapHistogram => Feature::SpaceMapHistogram,
            CountedFeature::LogSpaceMap => Feature::LogSpaceMap,
            CountedFeature::ObsoleteCounts => Feature::ObsoleteCounts,
        };
        let users = match change {
            CountChange::Increment => 1,
            CountChange::Decrement => -1,
        };
        Ok(self.features.add(&self.mos, feature, users)?)
    }
}
