//! The objects of a set: those in memory, those read from disk, and new ones.

use super::numbers::Numbers;
use super::object::LiveObject;
use super::objset::LiveObjset;
use super::state::ObjectCore;
use super::transaction::Transaction;
use super::version::{Shape, Version};
use crate::{DmuError, Object, Objset};
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Dead entries after which the table of objects is swept.
const SWEEP_AFTER: usize = 4096;

/// The parameters of a new object.
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// Its type.
    pub object_type: ObjectType,
    /// Bytes of a data block; a multiple of 512.
    pub data_block_size: u32,
    /// log2 of the size of an indirect block.
    pub indirect_shift: u8,
    /// Type of the bonus.
    pub bonus_type: ObjectType,
    /// The bonus.
    pub bonus: &'a [u8],
    /// 512-byte slots of the dnode.
    pub slots: u8,
}

impl LiveObjset {
    /// The object with this number; the accounting objects have their special numbers.
    ///
    /// # Errors
    /// There is no such object, its dnode cannot be read, or the set is superseded.
    pub fn object(&self, id: ObjectId) -> Result<LiveObject, DmuError> {
        loop {
            self.require_current()?;
            if let Some(core) = self.in_memory(id) {
                return self.existing(core);
            }
            let synced = self.synced();
            if let Some(core) = self.adopt(&synced, id, synced.object(id)) {
                return self.existing(core?);
            }
        }
    }

    /// Those of the objects with these numbers that exist and can be read, in no particular order.
    /// The dnode blocks of objects that are not in memory are read together.
    #[must_use]
    pub fn objects_of(&self, ids: &[ObjectId]) -> Vec<LiveObject> {
        let is_missing = |id: &ObjectId| self.in_memory(*id).is_none();
        let missing: Vec<ObjectId> = ids.iter().copied().filter(is_missing).collect();
        let synced = self.synced();
        let read = synced.objects_of(&missing).into_iter();
        // They are held until the last one is found.
        let _adopted: Vec<_> =
            read.map(|object| self.adopt(&synced, object.id(), Ok(object))).collect();
        ids.iter().filter_map(|id| self.object(*id).ok()).collect()
    }

    /// Accepts what was read, or an error, if nothing was synced meanwhile.
    fn adopt(
        &self,
        synced: &Objset,
        id: ObjectId,
        read: Result<Object, DmuError>,
    ) -> Option<Result<Arc<ObjectCore>, DmuError>> {
        let mut objects = self.inner.objects.lock();
        if *self.inner.synced.read().root() != *synced.root() {
            return None;
        }
        let object = match read {
            Ok(object) => object,
            Err(error) => return Some(Err(error)),
        };
        let slot = objects.entry(id).or_default();
        let core =
            slot.upgrade().unwrap_or_else(|| ObjectCore::new(id, Some(object.shared_dnode())));
        *slot = Arc::downgrade(&core);
        sweep(&mut objects);
        Some(Ok(core))
    }

    fn in_memory(&self, id: ObjectId) -> Option<Arc<ObjectCore>> {
        self.inner.objects.lock().get(&id)?.upgrade()
    }

    fn existing(&self, core: Arc<ObjectCore>) -> Result<LiveObject, DmuError> {
        let object = LiveObject::new(self.clone(), core);
        object.object_type()?;
        Ok(object)
    }

    /// Creates an object with a newly allocated number.
    ///
    /// # Errors
    /// Dnodes cannot be read, no number is free, or the set is superseded.
    pub fn allocate(
        &self,
        tx: &dyn Transaction,
        new: NewObject<'_>,
    ) -> Result<LiveObject, DmuError> {
        self.require_current()?;
        let id = self.with_numbers(|numbers, on_disk| numbers.take(on_disk, new.slots))?;
        Ok(self.insert(tx, id, new))
    }

    /// Creates an object with this number; `None` if the number is in use.
    ///
    /// # Errors
    /// Dnodes cannot be read, the number is invalid, or the set is superseded.
    pub fn claim(
        &self,
        tx: &dyn Transaction,
        id: ObjectId,
        new: NewObject<'_>,
    ) -> Result<Option<LiveObject>, DmuError> {
        self.require_current()?;
        let is_free =
            self.with_numbers(|numbers, on_disk| numbers.claim(on_disk, id, new.slots))?;
        Ok(is_free.then(|| self.insert(tx, id, new)))
    }

    /// Calls `choose` with the numbers on disk and in use. A number that is written counts as in
    /// use until the syncing thread has the lock, so only the set on disk read under the lock is
    /// sure to include numbers that no longer count.
    fn with_numbers<R>(
        &self,
        choose: impl Fn(&mut Numbers, &Objset) -> Result<R, DmuError>,
    ) -> Result<R, DmuError> {
        let mut numbers = self.inner.numbers.lock();
        loop {
            let on_disk = self.synced();
            match choose(&mut numbers, &on_disk) {
                Err(_) if on_disk.is_replaced() => {}
                chosen => return chosen,
            }
        }
    }

    /// Creates an accounting object, whose dnode is in the set's root block.
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
        if self.is_superseded() {
            core.state.write().clear();
        }
        drop(objects);
        self.mark_dirty(tx.txg(), &core);
        LiveObject::new(self.clone(), core)
    }
}

/// Drops the entries of objects without holders, when there may be many of them.
fn sweep(objects: &mut HashMap<ObjectId, Weak<ObjectCore>>) {
    if objects.len() >= SWEEP_AFTER && objects.len() == objects.capacity() {
        objects.retain(|_, core| core.strong_count() > 0);
    }
}
