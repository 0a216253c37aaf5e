//! ZAPs of a file system other than directories: the master node, the unlinked set, quotas, the
//! tables of system attributes.

use crate::error::ZplError;
use crate::object::{FileObject, typed_object};
use rzfs_dmu::live::{LiveObject, LiveObjset, NewObject, Transaction};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_zap::{KeyRef, NewZap, Zap, ZapValue};

/// log2 of the size of indirect blocks of new objects.
pub(super) const INDIRECT_SHIFT: u8 = 17;
/// Block size of new objects.
pub(super) const FIRST_BLOCK_SIZE: u32 = 512;

/// An object with its ZAP. The holder synchronises access.
#[derive(Debug)]
pub(super) struct Table {
    object: LiveObject,
    zap: Zap<LiveObject>,
}

/// A new object of a ZAP type.
fn new_object<'a>(object_type: ObjectType) -> NewObject<'a> {
    NewObject {
        object_type,
        data_block_size: FIRST_BLOCK_SIZE,
        indirect_shift: INDIRECT_SHIFT,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    }
}

impl Table {
    /// Opens the table with this number, which must have this type.
    pub(super) fn open(
        objset: &LiveObjset,
        id: ObjectId,
        kind: ObjectType,
    ) -> Result<Self, ZplError> {
        let object = typed_object(objset, id, kind)?;
        Ok(Self { zap: object.clone().open_zap()?, object })
    }

    /// Creates a table: with this number if it is free, else with another one.
    pub(super) fn create(
        objset: &LiveObjset,
        tx: &dyn Transaction,
        kind: ObjectType,
        wanted: Option<ObjectId>,
        salt: u64,
    ) -> Result<Self, ZplError> {
        let new = new_object(kind);
        let claimed = match wanted {
            Some(id) => objset.claim(tx, id, new)?,
            None => None,
        };
        let object = match claimed {
            Some(object) => object,
            None => objset.allocate(tx, new)?,
        };
        let zap = object.create_zap(tx, &NewZap::new(salt));
        let zap = zap.map_err(|source| object.zap_failure(source))?;
        Ok(Self { object, zap })
    }

    pub(super) const fn object(&self) -> &LiveObject {
        &self.object
    }

    pub(super) const fn zap(&self) -> &Zap<LiveObject> {
        &self.zap
    }

    /// The number under a name; other values count as none.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ZplError> {
        let found = self.zap.lookup(name).map_err(|source| self.object.zap_failure(source))?;
        Ok(found.and_then(|value| value.first_u64()))
    }

    /// Sets the value of a name.
    pub(super) fn set(
        &mut self,
        tx: &dyn Transaction,
        name: &str,
        value: impl Into<ZapValue>,
    ) -> Result<(), ZplError> {
        let result = self.zap.writer(self.object.zap_blocks(tx)).update(KeyRef::from(name), value);
        result.map_err(|source| self.object.zap_failure(source))
    }

    /// Removes a name; returns whether it existed.
    pub(super) fn remove(&mut self, tx: &dyn Transaction, name: &str) -> Result<bool, ZplError> {
        let result = self.zap.writer(self.object.zap_blocks(tx)).remove(KeyRef::from(name));
        result.map_err(|source| self.object.zap_failure(source))
    }
}
