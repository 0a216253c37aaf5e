//! Object sets that change.

use super::log_header::PendingHeaders;
use super::numbers::Numbers;
use super::object::{LiveObject, NewObject, ObjectCore};
use super::transaction::Transaction;
use super::version::{Shape, Version};
use crate::{BlockPipeline, DmuError, Objset};
use parking_lot::{Mutex, RwLock};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::Dnode;
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::{BlockId, ByteOrder, ObjectId, ObjsetId, Txg};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

/// Txgs in which an object can be dirty at one time are told apart by their last bits.
const SLOTS: usize = 4;
/// Dead entries after which the table of objects is swept.
const SWEEP_AFTER: usize = 4096;

/// Objects that are dirty in one txg.
pub(super) type DirtyObjects = BTreeMap<ObjectId, Arc<ObjectCore>>;

/// An object set that changes; a handle that can be cloned and shared.
#[derive(Clone, Debug)]
pub struct LiveObjset {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pipeline: Arc<BlockPipeline>,
    id: ObjsetId,
    key: Option<Arc<DatasetKey>>,
    /// What is on disk.
    pub(super) synced: RwLock<Objset>,
    objects: Mutex<HashMap<ObjectId, Weak<ObjectCore>>>,
    dirty: [Mutex<DirtyObjects>; SLOTS],
    pub(super) numbers: Mutex<Numbers>,
    pub(super) headers: PendingHeaders,
}

impl LiveObjset {
    /// Makes a set that is on disk changeable. There must be one live set of it only.
    #[must_use]
    pub fn open(synced: Objset) -> Self {
        let (pipeline, id) = (Arc::clone(synced.pipeline()), synced.id());
        Self {
            inner: Arc::new(Inner {
                pipeline,
                id,
                key: synced.shared_key().cloned(),
                synced: RwLock::new(synced),
                objects: Mutex::default(),
                dirty: Default::default(),
                numbers: Mutex::default(),
                headers: PendingHeaders::default(),
            }),
        }
    }

    /// A new set without objects; nothing of it is on disk before it is synced. With a key it is
    /// encrypted.
    #[must_use]
    pub fn create(
        pipeline: &Arc<BlockPipeline>,
        id: ObjsetId,
        (objset_type, flags): (ObjsetType, u64),
        key: Option<Arc<DatasetKey>>,
    ) -> Self {
        let block = ObjsetBlock {
            meta_dnode: None,
            objset_type,
            flags,
            zil_header: [0; rzfs_format::objset::ZIL_HEADER_SIZE],
            portable_mac: [0; 32],
            local_mac: [0; 32],
            accounting: [None, None, None],
            order: ByteOrder::NATIVE,
        };
        Self::open(Objset::unwritten(pipeline, id, block, key))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ObjsetId {
        self.inner.id
    }

    /// The pipeline that its blocks are read through.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.inner.pipeline
    }

    /// The key of its blocks, if it is encrypted and the key was loaded when it was opened.
    #[must_use]
    pub fn key(&self) -> Option<&Arc<DatasetKey>> {
        self.inner.key.as_ref()
    }

    /// Whether it is encrypted and was opened without the key: nothing of it can be changed but
    /// the header of its intent log.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.synced().is_locked()
    }

    /// The set as it is on disk.
    #[must_use]
    pub fn synced(&self) -> Objset {
        self.inner.synced.read().clone()
    }

    /// Whether something of it is dirty in a txg.
    #[must_use]
    pub fn is_dirty(&self, txg: Txg) -> bool {
        !self.dirty(txg).lock().is_empty() || self.inner.headers.of(txg).is_some()
    }

    /// Whether nothing of it is dirty in any txg.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.inner.headers.is_empty()
            && self.inner.dirty.iter().all(|dirty| dirty.lock().is_empty())
    }

    /// Whether somebody else has a handle to it, or to one of its objects.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    pub(super) fn dirty(&self, txg: Txg) -> &Mutex<DirtyObjects> {
        &self.inner.dirty[(txg.get() % SLOTS as u64) as usize]
    }

    pub(super) fn mark_dirty(&self, txg: Txg, core: &Arc<ObjectCore>) {
        self.dirty(txg).lock().insert(core.id, Arc::clone(core));
    }

    /// The object with this number; the accounting objects have their special numbers.
    ///
    /// # Errors
    /// There is no such object, or its dnode cannot be read.
    pub fn object(&self, id: ObjectId) -> Result<LiveObject, DmuError> {
        loop {
            if let Some(core) = self.in_memory(id) {
                return self.existing(core);
            }
            let synced = self.synced();
            let read = synced.object(id).map(|object| Arc::new(object.dnode().clone()));
            let mut objects = self.inner.objects.lock();
            // What was read is the truth only if nothing was synced meanwhile: an error, too.
            if *self.inner.synced.read().root() != *synced.root() {
                continue;
            }
            let dnode = read?;
            let slot = objects.entry(id).or_default();
            let core = slot.upgrade().unwrap_or_else(|| ObjectCore::new(id, Some(dnode)));
            *slot = Arc::downgrade(&core);
            sweep(&mut objects);
            drop(objects);
            return self.existing(core);
        }
    }

    fn in_memory(&self, id: ObjectId) -> Option<Arc<ObjectCore>> {
        self.inner.objects.lock().get(&id)?.upgrade()
    }

    fn existing(&self, core: Arc<ObjectCore>) -> Result<LiveObject, DmuError> {
        let object = LiveObject::new(self.clone(), core);
        object.object_type()?;
        Ok(object)
    }

    /// Makes a new object with a number of its own.
    ///
    /// # Errors
    /// Dnodes cannot be read, or no number is free.
    pub fn allocate(
        &self,
        tx: &dyn Transaction,
        new: NewObject<'_>,
    ) -> Result<LiveObject, DmuError> {
        let id = self.with_numbers(|numbers, on_disk| numbers.take(on_disk, new.slots))?;
        Ok(self.insert(tx, id, new))
    }

    /// Makes a new object with this number; `None` if the number is taken.
    ///
    /// # Errors
    /// Dnodes cannot be read, or the number is not one that an object can have.
    pub fn claim(
        &self,
        tx: &dyn Transaction,
        id: ObjectId,
        new: NewObject<'_>,
    ) -> Result<Option<LiveObject>, DmuError> {
        let is_free =
            self.with_numbers(|numbers, on_disk| numbers.claim(on_disk, id, new.slots))?;
        Ok(is_free.then(|| self.insert(tx, id, new)))
    }

    /// Lets `choose` look for numbers: what is on disk together with what is taken. A number that
    /// is written counts as taken until whoever syncs has the lock, so only what is on disk once
    /// the lock is held is sure to have those that do not count any more.
    fn with_numbers<R>(&self, choose: impl FnOnce(&mut Numbers, &Objset) -> R) -> R {
        let mut numbers = self.inner.numbers.lock();
        let on_disk = self.synced();
        choose(&mut numbers, &on_disk)
    }

    /// Makes an accounting object, whose dnode is in the set's root block.
    pub fn create_special(
        &self,
        tx: &dyn Transaction,
        id: ObjectId,
        new: NewObject<'_>,
    ) -> LiveObject {
        self.insert(tx, id, new)
    }

    fn insert(&self, tx: &dyn Transaction, id: ObjectId, new: NewObject<'_>) -> LiveObject {
        let pointers = Dnode::pointer_count(new.bonus_type, new.bonus.len(), new.slots);
        let shape = Shape {
            object_type: new.object_type,
            bonus_type: new.bonus_type,
            bonus: new.bonus.into(),
            data_block_size: new.data_block_size,
            indirect_shift: new.indirect_shift,
            pointer_count: pointers as u8,
            slots: new.slots,
            checksum: 0,
            compress: 0,
            max_block_id: BlockId(0),
            has_spill: false,
        };
        let core = ObjectCore::new(id, None);
        let version = Version::new(tx.txg(), shape);
        tx.context().add_dirty(version.dirtied);
        core.state.write().versions.push_back(version);
        let mut objects = self.inner.objects.lock();
        objects.insert(id, Arc::downgrade(&core));
        sweep(&mut objects);
        drop(objects);
        self.mark_dirty(tx.txg(), &core);
        LiveObject::new(self.clone(), core)
    }
}

/// Drops the entries of objects that nobody holds, when there may be many of them.
fn sweep(objects: &mut HashMap<ObjectId, Weak<ObjectCore>>) {
    if objects.len() >= SWEEP_AFTER && objects.len() == objects.capacity() {
        objects.retain(|_, core| core.strong_count() > 0);
    }
}
