//! The MOS in the state of the syncing txg, and changing it in a sync pass.

use super::error::MosError;
use super::open_zaps::OpenZaps;
use super::record::BonusRecord;
use super::{MosSource, OBJECT_DIRECTORY};
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use parking_lot::Mutex;
use rzfs_dmu::live::{LiveObject, LiveObjset, NewObject, SyncTx, ZapTx};
use rzfs_dmu::{DmuError, SourceObject};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, FormatError, ObjectId};
use rzfs_zap::{KeyRef, NewZap, Zap, ZapError, ZapValue, ZapWriter};

/// log2 of the default size of indirect blocks.
pub(crate) const INDIRECT_SHIFT: u8 = 17;
/// Default block size in bytes.
const SMALLEST_BLOCK: u32 = 512;

/// The MOS with its recently used ZAPs, which stay open.
#[derive(Debug)]
pub(crate) struct LiveMos {
    objset: LiveObjset,
    zaps: Mutex<OpenZaps<LiveObject>>,
}

impl LiveMos {
    pub(crate) fn new(objset: LiveObjset) -> Self {
        Self { objset, zaps: Mutex::default() }
    }

    /// Keeps an object in memory from now on.
    pub(crate) fn hold(&self, id: ObjectId) {
        self.objset.synced().hold(id);
    }

    pub(crate) const fn objset(&self) -> &LiveObjset {
        &self.objset
    }

    /// Calls `visit` with an open ZAP, opening it if needed.
    fn with_open<T>(
        &self,
        id: ObjectId,
        visit: impl FnOnce(&mut Zap<LiveObject>, &LiveObject) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, LiveError> {
        let object = self.object(id)?;
        let mut zaps = self.zaps.lock();
        let mut zap = match zaps.take(id) {
            Some(zap) => zap,
            None => object.clone().into_zap()?,
        };
        // After an error the ZAP has to be reopened.
        let value = visit(&mut zap, &object).map_err(MosError::zap(id))?;
        zaps.keep(id, zap);
        Ok(value)
    }

    /// Closes the ZAPs not used in the ending txg.
    pub(crate) fn close_idle_zaps(&self) {
        self.zaps.lock().close_idle();
    }

    /// The MOS in a pass; `random` generates the salts of new ZAPs.
    pub(crate) fn in_pass<'a>(
        &'a self,
        tx: &'a SyncTx<'a>,
        random: &'a dyn Fn() -> u64,
    ) -> MosTx<'a> {
        MosTx { mos: self, tx, random }
    }
}

impl MosSource for LiveMos {
    type Object = LiveObject;
    type Error = LiveError;

    fn object(&self, id: ObjectId) -> Result<LiveObject, LiveError> {
        Ok(self.objset.object(id)?)
    }

    fn with_zap<T>(
        &self,
        zap: ObjectId,
        look: impl FnOnce(&Zap<LiveObject>) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, LiveError> {
        self.with_open(zap, |open, _| look(open))
    }
}

/// Where lookups of a spoilt entry fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoilt {
    Everywhere,
    /// Not before memory forgets what it has read.
    OnDisk,
}

/// The MOS in a sync pass.
#[derive(Clone, Copy)]
pub(crate) struct MosTx<'a> {
    mos: &'a LiveMos,
    tx: &'a SyncTx<'a>,
    random: &'a dyn Fn() -> u64,
}

impl MosSource for MosTx<'_> {
    type Object = LiveObject;
    type Error = LiveError;

    fn object(&self, id: ObjectId) -> Result<LiveObject, LiveError> {
        self.mos.object(id)
    }

    fn with_zap<T>(
        &self,
        zap: ObjectId,
        look: impl FnOnce(&Zap<LiveObject>) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, LiveError> {
        self.mos.with_zap(zap, look)
    }
}

impl<'a> MosTx<'a> {
    pub(crate) const fn tx(&self) -> &'a SyncTx<'a> {
        self.tx
    }

    pub(crate) const fn objset(&self) -> &'a LiveObjset {
        &self.mos.objset
    }

    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }

    /// Creates an object without contents.
    pub(crate) fn create(
        &self,
        object_type: ObjectType,
        data_block_size: u32,
        bonus_type: ObjectType,
        bonus: &[u8],
    ) -> Result<LiveObject, LiveError> {
        let new = NewObject {
            object_type,
            data_block_size,
            indirect_shift: INDIRECT_SHIFT,
            bonus_type,
            bonus,
            slots: 1,
        };
        Ok(self.mos.objset.allocate(self.tx, new)?)
    }

    /// Creates an object with a record in its bonus and its own block size.
    pub(crate) fn create_record<R: BonusRecord>(
        &self,
        object_type: ObjectType,
        data_block_size: u32,
        record: &R,
    ) -> Result<ObjectId, LiveError> {
        let object = self.create(object_type, data_block_size, R::BONUS_TYPE, &record.encode())?;
        Ok(object.id())
    }

    pub(crate) fn set_record<R: BonusRecord>(
        &self,
        id: ObjectId,
        record: &R,
    ) -> Result<(), LiveError> {
        Ok(self.object(id)?.set_bonus(self.tx, R::BONUS_TYPE, &record.encode())?)
    }

    /// Creates an empty ZAP.
    pub(crate) fn create_zap(&self, object_type: ObjectType) -> Result<ObjectId, LiveError> {
        let new = NewZap::new(self.random());
        self.create_zap_with(object_type, ObjectType::NONE, &[], &new)
    }

    /// Creates an empty pool-wide ZAP, which stays in memory.
    pub(crate) fn create_held_zap(&self) -> Result<ObjectId, LiveError> {
        let id = self.create_zap(ObjectType::ZAP_METADATA)?;
        self.hold(id);
        Ok(id)
    }

    /// Keeps an object in memory from now on.
    pub(crate) fn hold(&self, id: ObjectId) {
        self.mos.hold(id);
    }

    /// Creates an empty ZAP with a bonus, or in another format.
    pub(crate) fn create_zap_with(
        &self,
        object_type: ObjectType,
        bonus_type: ObjectType,
        bonus: &[u8],
        new: &NewZap,
    ) -> Result<ObjectId, LiveError> {
        let object = self.create(object_type, SMALLEST_BLOCK, bonus_type, bonus)?;
        let id = object.id();
        let zap = object.create_zap(self.tx, new).map_err(MosError::zap(id))?;
        self.mos.zaps.lock().keep(id, zap);
        Ok(id)
    }

    /// Turns an object without contents into a ZAP, keeping its bonus.
    pub(crate) fn zapify(&self, id: ObjectId) -> Result<(), LiveError> {
        let object = self.object(id)?;
        object.set_object_type(self.tx, ObjectType::ZAP_METADATA)?;
        let new = NewZap::new(self.random());
        let zap = object.create_zap(self.tx, &new).map_err(MosError::zap(id))?;
        self.mos.zaps.lock().keep(id, zap);
        Ok(())
    }

    /// Frees any object except the object directory.
    pub(crate) fn destroy(&self, id: ObjectId) -> Result<(), LiveError> {
        if id == OBJECT_DIRECTORY {
            let problem = FormatError::invalid("object directory", "something is said to own it");
            return Err(LiveError::corrupt(id)(problem));
        }
        self.mos.zaps.lock().take(id);
        self.mos.objset.synced().release(id);
        Ok(self.object(id)?.destroy(self.tx)?)
    }

    /// As [`MosTx::destroy`]; a damaged object is leaked.
    pub(crate) fn destroy_or_leak(&self, id: ObjectId) -> Result<(), LiveError> {
        let warn = |error: &LiveError| tracing::warn!(%error, object = %id, "an object is leaked");
        self.destroy(id).unless_damaged(warn).map(drop)
    }

    /// Frees an object that a record claims as its own; one that is damaged, or of the wrong type,
    /// is leaked: it may belong to something else.
    pub(crate) fn destroy_own_or_leak(
        &self,
        id: ObjectId,
        object_type: ObjectType,
    ) -> Result<(), LiveError> {
        let check = || {
            let object = self.object(id)?;
            let found = object.object_type()?;
            match found == object_type {
                true => Ok(()),
                false => Err(LiveError::from(object.is_not(found, object_type.name()))),
            }
        };
        let warn = |error: &LiveError| tracing::warn!(%error, object = %id, "an object is leaked");
        match check().unless_damaged(warn)? {
            Some(()) => self.destroy_or_leak(id),
            None => Ok(()),
        }
    }

    /// Calls `change` with a ZAP in this pass.
    fn edit<T>(
        &self,
        zap: ObjectId,
        change: impl FnOnce(&mut ZapWriter<'_, ZapTx<'_>>) -> Result<T, ZapError<DmuError>>,
    ) -> Result<T, LiveError> {
        self.mos.with_open(zap, |open, object| change(&mut open.writer(object.zap_blocks(self.tx))))
    }

    /// Sets the value of a key.
    pub(crate) fn set<'k>(
        &self,
        zap: ObjectId,
        key: impl Into<KeyRef<'k>>,
        value: impl Into<ZapValue>,
    ) -> Result<(), LiveError> {
        let (key, value) = (key.into(), value.into());
        self.edit(zap, |writer| writer.update(key, value))
    }

    /// Makes lookups of a key fail, whose entry is stale or missing; returns where they do. Damage may
    /// prevent it: what cannot be written because of damage cannot be read either, except from memory.
    pub(crate) fn spoil<'k>(
        &self,
        zap: ObjectId,
        key: impl Into<KeyRef<'k>>,
    ) -> Result<Spoilt, LiveError> {
        let key = key.into();
        let is_hidden = || self.lookup(zap, key).is_err_and(|error| error.is_damage());
        if is_hidden() {
            return Ok(Spoilt::Everywhere);
        }
        let warn = |error: &LiveError| tracing::warn!(%error, "a wrong entry stays in memory");
        self.edit(zap, |writer| writer.spoil(key)).unless_damaged(warn)?;
        Ok(if is_hidden() { Spoilt::Everywhere } else { Spoilt::OnDisk })
    }

    /// Adds a key that must not exist.
    pub(crate) fn insert<'k>(
        &self,
        zap: ObjectId,
        key: impl Into<KeyRef<'k>>,
        value: impl Into<ZapValue>,
    ) -> Result<(), LiveError> {
        let (key, value) = (key.into(), value.into());
        self.edit(zap, |writer| writer.insert(key, value))
    }

    /// Checks that a key can be removed: everything read for that is readable.
    pub(crate) fn check_removal(&self, zap: ObjectId, key: &str) -> Result<(), LiveError> {
        // The header of an open ZAP is cached; it is reread when it changes.
        self.object(zap)?.read_block(BlockId(0))?;
        self.lookup(zap, key).map(drop)
    }

    /// Checks that any change of a ZAP is possible: all its blocks and entries can be read.
    pub(crate) fn check_zap(&self, zap: ObjectId) -> Result<(), LiveError> {
        let object = self.object(zap)?;
        let size = u64::from(object.data_block_size()?).max(1);
        let mut from = 0;
        while let Some(offset) = object.next_data(from)? {
            let block = offset / size;
            object.read_block(BlockId(block))?;
            from = block.saturating_add(1).saturating_mul(size);
        }
        self.with_zap(zap, |open| open.entries().try_for_each(|entry| entry.map(drop)))
    }

    /// Removes a key; returns whether it existed.
    pub(crate) fn remove<'k>(
        &self,
        zap: ObjectId,
        key: impl Into<KeyRef<'k>>,
    ) -> Result<bool, LiveError> {
        let key = key.into();
        self.edit(zap, |writer| writer.remove(key))
    }
}
