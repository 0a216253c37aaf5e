//! What space accounting needs from the object store that holds its objects.
//!
//! ```text
//! SpaceMapStore       read objects            any time, any thread
//! SpaceMapStoreMut    change objects          syncing context only
//! SpaceDirectory      say where they are      syncing context only
//! ```
//! The layer above implements them over its MOS. Nothing here may allocate or free space while it
//! is called: it makes objects dirty, and the next sync pass writes them.

use crate::error::{MetaslabError, StoreError};
use bytes::Bytes;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId, Txg, VdevId};

/// Properties of an object of the MOS.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Its type.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Bytes from the start to the end of the last block.
    pub extent: u64,
    /// The bonus.
    pub bonus: Bytes,
    /// Byte order of the bonus.
    pub order: ByteOrder,
}

/// Objects of the MOS that hold 64-bit words: space maps, arrays of object numbers and of txgs.
///
/// The layer above implements it over its object sets; this crate knows no other way to storage.
pub trait SpaceMapStore {
    /// What an object is.
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError>;

    /// `count` words of an object from word `first` on, in host order. Holes and what lies beyond
    /// the end read as zeros.
    ///
    /// A caller asks for at most 1 MiB at once, and for what it soon reads through
    /// [`SpaceMapStore::prefetch`].
    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError>;

    /// Says that these objects will be read from their start, each up to the given number of
    /// bytes, so that the store can have the reads under way together.
    fn prefetch(&self, objects: &[(ObjectId, u64)]) {
        let _ = objects;
    }
}

impl<S: SpaceMapStore + ?Sized> SpaceMapStore for std::sync::Arc<S> {
    fn object(&self, object: ObjectId) -> Result<StoredObject, StoreError> {
        (**self).object(object)
    }

    fn read_words(
        &self,
        object: ObjectId,
        first: u64,
        count: usize,
    ) -> Result<Vec<u64>, StoreError> {
        (**self).read_words(object, first, count)
    }

    fn prefetch(&self, objects: &[(ObjectId, u64)]) {
        (**self).prefetch(objects);
    }
}

/// What a new object is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewObject {
    /// Its type.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// log2 of the bytes of an indirect block.
    pub indirect_shift: u32,
    /// Type of the bonus; [`ObjectType::NONE`] without one.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus, zeros at first.
    pub bonus_size: u32,
}

/// Changes to objects of the MOS. Only the thread that syncs a txg has one.
///
/// After an error the txg must not be committed: what was changed before stays changed.
pub trait SpaceMapStoreMut: SpaceMapStore {
    /// Creates an object.
    fn create_object(&mut self, object: &NewObject) -> Result<ObjectId, StoreError>;

    /// Frees an object and all of its blocks.
    fn free_object(&mut self, object: ObjectId) -> Result<(), StoreError>;

    /// Frees all data blocks of an object, which stays and then reads as zeros.
    fn free_blocks(&mut self, object: ObjectId) -> Result<(), StoreError>;

    /// Writes words from word `first` on. They may lie beyond what was written so far.
    fn write_words(
        &mut self,
        object: ObjectId,
        first: u64,
        words: &[u64],
    ) -> Result<(), StoreError>;

    /// Replaces the bonus by bytes of the size that it has, in [`ByteOrder::NATIVE`].
    fn set_bonus(&mut self, object: ObjectId, bonus: &[u8]) -> Result<(), StoreError>;

    /// log2 of the bytes of an object's indirect blocks.
    fn indirect_shift(&self, object: ObjectId) -> Result<u32, StoreError>;

    /// Whether an error of this store says that something is damaged for good, so that trying
    /// again is of no use.
    fn is_damage(&self, error: &StoreError) -> bool {
        let _ = error;
        false
    }
}

/// Objects of a top-level vdev's space accounting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VdevObjects {
    /// The array of its metaslabs' space maps.
    pub metaslab_array: Option<ObjectId>,
    /// The array of its metaslabs' unflushed txgs.
    pub unflushed_array: Option<ObjectId>,
    /// Its checkpoint space map.
    pub checkpoint_map: Option<ObjectId>,
    /// The obsolete space map of a removed vdev.
    pub obsolete_map: Option<ObjectId>,
}

/// A feature whose reference count space accounting changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CountedFeature {
    /// `com.delphix:spacemap_histogram`: one for each space map with a histogram.
    SpaceMapHistogram,
    /// `com.delphix:log_spacemap`: one from the first log on.
    LogSpaceMap,
    /// `com.delphix:obsolete_counts`: one for each obsolete space map, among others.
    ObsoleteCounts,
}

/// A change of a reference count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CountChange {
    /// One more.
    Increment,
    /// One less.
    Decrement,
}

/// A log space map: an entry of the MOS's ZAP of logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogMap {
    /// The txg of its changes.
    pub txg: Txg,
    /// The space map.
    pub object: ObjectId,
}

/// Where the pool keeps the objects of its space accounting: the configurations and ZAPs of
/// top-level vdevs, the MOS's ZAP of logs, the features (spec 06, sections 5, 6.1 and 13.2).
pub trait SpaceDirectory {
    /// Sets a vdev's array of space maps (`metaslab_array` of its configuration); `None` removes
    /// it.
    fn set_metaslab_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError>;

    /// Sets a vdev's array of unflushed txgs (`com.delphix:ms_unflushed_phys_txgs` of its ZAP);
    /// `None` removes the entry.
    fn set_unflushed_array(
        &mut self,
        vdev: VdevId,
        array: Option<ObjectId>,
    ) -> Result<(), StoreError>;

    /// Sets a vdev's checkpoint space map (`com.delphix:pool_checkpoint_sm` of its ZAP); `None`
    /// removes the entry.
    fn set_checkpoint_map(&mut self, vdev: VdevId, map: Option<ObjectId>)
    -> Result<(), StoreError>;

    /// Sets the obsolete space map of a removed vdev (`com.delphix:indirect_obsolete_sm` of its
    /// ZAP).
    fn set_obsolete_map(&mut self, vdev: VdevId, map: Option<ObjectId>) -> Result<(), StoreError>;

    /// Adds a log to the ZAP of logs, which is created and linked from the object directory if it
    /// is not there. The txg has no log so far.
    fn add_log(&mut self, log: LogMap) -> Result<(), StoreError>;

    /// Removes a log from the ZAP of logs.
    fn remove_log(&mut self, txg: Txg) -> Result<(), StoreError>;

    /// Changes the reference count of a feature.
    fn count_feature(
        &mut self,
        feature: CountedFeature,
        change: CountChange,
    ) -> Result<(), StoreError>;
}

/// All that syncing space accounting needs.
pub trait SyncStore: SpaceMapStoreMut + SpaceDirectory {}

impl<S: SpaceMapStoreMut + SpaceDirectory + ?Sized> SyncStore for S {}

impl MetaslabError {
    /// Whether an object of this store cannot be changed as it is damaged for good.
    pub(crate) fn is_damage(&self, store: &(impl SpaceMapStoreMut + ?Sized)) -> bool {
        matches!(self, Self::Store { source, .. } if store.is_damage(source))
    }
}
