//! Objects that hold a packed name-value list (spec 01, section 4.4): its exact length is in the
//! bonus, the rest of the last block is zeros.

use super::error::MosError;
use super::live::MosTx;
use super::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::live::LiveError;
use rzfs_dmu::SourceObject;
use rzfs_dmu::live::Extent;
use rzfs_format::endian::Fields;
use rzfs_format::nvlist::{Encoding, NvList};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId};

/// Maximum length of a list; a configuration has some hundred bytes per device.
const MAX_SIZE: u64 = 16 << 20;
/// Block size of a list in bytes, and the unit its length is padded to.
const BLOCK: u32 = 16 << 10;

/// Reads the list of an object.
pub(crate) fn read<M: MosSource>(mos: &M, id: ObjectId) -> Result<NvList, M::Error> {
    Ok(list_in(&mos.object(id)?)?)
}

fn list_in(object: &impl SourceObject) -> Result<NvList, MosError> {
    let found = object.object_type()?;
    if found != ObjectType::PACKED_NVLIST {
        return Err(object.is_not(found, ObjectType::PACKED_NVLIST.name()).into());
    }
    let corrupt = MosError::corrupt(object.id());
    let bonus = object.bonus()?;
    let bonus = Fields::new("packed nvlist size", &bonus, object.bonus_order());
    let size = bonus.u64(0).map_err(&corrupt)?;
    if size > MAX_SIZE.min(object.extent()?) {
        return Err(corrupt(FormatError::field("packed nvlist", "size", size)));
    }
    NvList::decode(&object.bytes_at(0, size as usize)?).map_err(corrupt)
}

/// Creates an object for a list, under this name in the object directory.
pub(crate) fn create(mos: &MosTx<'_>, name: &str) -> Result<ObjectId, LiveError> {
    let (kind, bonus) = (ObjectType::PACKED_NVLIST, ObjectType::PACKED_NVLIST_SIZE);
    let id = mos.create(kind, BLOCK, bonus, &[0; 8])?.id();
    mos.insert(DIRECTORY, name, id.get())?;
    Ok(id)
}

/// Writes a list.
pub(crate) fn write(mos: &MosTx<'_>, id: ObjectId, list: &NvList) -> Result<(), LiveError> {
    let mut bytes = list.encode(Encoding::Xdr).map_err(LiveError::corrupt(id))?;
    let len = bytes.len() as u64;
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    let object = mos.object(id)?;
    object.write(mos.tx(), 0, &bytes)?;
    object.free(mos.tx(), bytes.len() as u64, Extent::ToEnd)?;
    object.set_bonus(mos.tx(), ObjectType::PACKED_NVLIST_SIZE, &len.to_ne_bytes())?;
    Ok(())
}
