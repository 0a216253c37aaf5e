//! Volumes: one object of bytes (spec 05, section 13).

use crate::cache::SharedCache;
use crate::contents::{fill, segments};
use crate::error::ZplError;
use crate::object::typed_object;
use crate::read_ahead::{ReadAhead, Streams};
use crate::sync::Arc;
use bytes::Bytes;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::dataset::Dataset;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::DatasetProperty;

/// The object with the contents.
pub(crate) const DATA: ObjectId = ObjectId(1);
const PROPERTIES: ObjectId = ObjectId(2);
/// Memory for read streams.
const STREAMS_BYTES: usize = 1 << 20;

/// A volume, live or a snapshot, for reading.
#[derive(Clone, Debug)]
pub struct Volume {
    object: Object,
    size: u64,
    streams: Arc<Streams>,
}

impl Volume {
    /// Opens the volume of a dataset; `read_ahead` prefetches for sequential readers.
    ///
    /// # Errors
    /// As [`Volume::open`], or the dataset cannot be read.
    pub fn of_dataset(
        dataset: &Dataset,
        read_ahead: Option<Arc<ReadAhead>>,
    ) -> Result<Self, ZplError> {
        let volume = Self::open(&dataset.open_objset()?)?;
        Ok(Self { streams: streams(read_ahead), ..volume })
    }

    /// Opens the volume on an object set.
    ///
    /// # Errors
    /// The set is not a volume, its key is not loaded, or its size is invalid.
    pub fn open(objset: &Objset) -> Result<Self, ZplError> {
        let id = objset.id();
        if objset.objset_type() != ObjsetType::Zvol {
            let found = objset.objset_type().name();
            return Err(ZplError::WrongKind { objset: id, found, wanted: "a volume" });
        }
        if objset.is_locked() {
            return Err(ZplError::Locked { objset: id });
        }
        let object = typed_object(objset, DATA, ObjectType::ZVOL)?;
        let properties = typed_object(objset, PROPERTIES, ObjectType::ZVOL_PROP)?;
        let size = properties
            .zap()?
            .lookup(DatasetProperty::VolSize.stored_name())
            .map_err(|e| properties.zap_error(e))?;
        let size = size.and_then(|size| size.first_u64()).unwrap_or(0);
        let whole = size.is_multiple_of(u64::from(object.block_size()));
        if size == 0 || !whole || i64::try_from(size).is_err() {
            return Err(ZplError::VolumeSize { objset: id, size });
        }
        Ok(Self { object, size, streams: streams(None) })
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Size of its blocks in bytes (property `volblocksize`).
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.object.block_size()
    }

    /// Fills `buffer` with the contents from `offset` on, and returns the number of bytes: less
    /// than the buffer size only at the end of the volume.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ZplError> {
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = rest.min(buffer.len());
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        fill(&self.object, &self.streams, offset, buffer)?;
        Ok(len)
    }

    /// The contents from `offset` on as parts of the cached blocks, without a copy: `len` bytes,
    /// less at the end of the volume and beyond 32 MiB.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn read_segments(&self, offset: u64, len: u64) -> Result<Vec<Bytes>, ZplError> {
        let len = len.min(self.size.saturating_sub(offset));
        segments(&self.object, &self.streams, offset, len)
    }

    /// The first byte at or after `offset` that is not in a hole; `None` when only holes follow.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, ZplError> {
        Ok(self.object.next_data(offset)?.filter(|data| *data < self.size))
    }

    /// The first byte at or after `offset` that is in a hole; the end of the volume counts as
    /// one.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<u64, ZplError> {
        let hole = self.object.next_hole(offset)?;
        let hole = hole.unwrap_or_else(|| self.object.dnode().extent());
        Ok(hole.max(offset).min(self.size))
    }
}

/// The streams of one object.
fn streams(read_ahead: Option<Arc<ReadAhead>>) -> Arc<Streams> {
    Arc::new(Streams::new(read_ahead, SharedCache::new(STREAMS_BYTES).part()))
}
