//! The unlinked set: unlinked files that are not freed yet (spec 05, section 3.6).

use super::tables::Table;
use crate::error::ZplError;
use crate::object::typed_object;
use rzfs_dmu::live::{LiveObject, LiveObjset};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;

/// The name of a file in the set.
pub(super) fn key(object: ObjectId) -> String {
    format!("{:x}", object.0)
}

/// The set of unlinked files. Damage to it does not affect other files.
#[derive(Debug)]
pub(super) struct UnlinkedSet {
    objset: LiveObjset,
    object: LiveObject,
    /// `None` if it is damaged and could not be opened.
    table: Option<Table>,
}

impl UnlinkedSet {
    pub(super) fn open(objset: &LiveObjset, id: ObjectId) -> Result<Self, ZplError> {
        let object = typed_object(objset, id, ObjectType::UNLINKED_SET)?;
        let table = match Table::open(objset, id, ObjectType::UNLINKED_SET) {
            Err(ZplError::Dmu(error)) if error.is_damage() => {
                tracing::warn!(%error, "files without names keep their space");
                None
            }
            table => Some(table?),
        };
        Ok(Self { objset: objset.clone(), object, table })
    }

    pub(super) const fn object(&self) -> &LiveObject {
        &self.object
    }

    pub(super) fn table(&mut self) -> Result<&mut Table, ZplError> {
        let table = match self.table.take() {
            Some(table) => table,
            None => Table::open(&self.objset, self.object.id(), ObjectType::UNLINKED_SET)?,
        };
        Ok(self.table.insert(table))
    }
}
