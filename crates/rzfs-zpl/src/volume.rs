//! Volumes: one object of bytes (spec 05, section 13).

use crate::error::ZplError;
use crate::master::typed_object;
use rzfs_dmu::{Object, Objset};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;

const DATA: ObjectId = ObjectId(1);
const PROPERTIES: ObjectId = ObjectId(2);

/// A volume, live or a snapshot, for reading.
#[derive(Clone, Debug)]
pub struct Volume {
    object: Object,
    size: u64,
}

impl Volume {
    /// Opens the volume on an object set.
    ///
    /// # Errors
    /// The set holds no volume, its key is not loaded, or its size makes no sense.
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
        let size = properties.zap()?.lookup("size").map_err(|e| properties.zap_error(e))?;
        let size = size.and_then(|size| size.first_u64()).unwrap_or(0);
        let whole = size.is_multiple_of(u64::from(object.block_size()));
        if size == 0 || !whole || i64::try_from(size).is_err() {
            return Err(ZplError::VolumeSize { objset: id, size });
        }
        Ok(Self { object, size })
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

    /// Fills `buffer` with the contents from `offset` on, and says how many bytes there are: less
    /// than the buffer has only at the end of the volume.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ZplError> {
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = rest.min(buffer.len());
        self.object.read_at(offset, buffer.get_mut(..len).unwrap_or_default())?;
        Ok(len)
    }
}
