//! Objects of the MOS that hold a packed name-value list (spec 01, section 4.4).

use super::error::PoolError;
use rzfs_dmu::Objset;
use rzfs_format::endian::Fields;
use rzfs_format::nvlist::NvList;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId};

/// Longest list that is read; a configuration has some hundred bytes for each device.
const MAX_SIZE: u64 = 16 << 20;

/// Reads the list of an object. Its exact length is in the bonus, the rest of the last block is
/// zeros.
pub(crate) fn read(mos: &Objset, id: ObjectId) -> Result<NvList, PoolError> {
    let object = mos.object(id)?;
    if object.object_type() != ObjectType::PACKED_NVLIST {
        return Err(object.wrong_type(ObjectType::PACKED_NVLIST.name()).into());
    }
    let corrupt = PoolError::corrupt(id);
    let bonus = Fields::new("packed nvlist size", object.bonus(), object.order());
    let size = bonus.u64(0).map_err(&corrupt)?;
    if size > MAX_SIZE.min(object.dnode().extent()) {
        return Err(corrupt(FormatError::field("packed nvlist", "size", size)));
    }
    let bytes = object.read_bytes(0, size as usize)?;
    NvList::decode(&bytes).map_err(corrupt)
}
