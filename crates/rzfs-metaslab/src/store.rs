//! What space accounting needs from the object store that holds its objects.

use crate::error::StoreError;
use bytes::Bytes;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId};

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
