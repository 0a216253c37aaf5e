//! Unlinked files: open ones stay alive, the others are reclaimed (spec 05, sections 3.6 and 3.7).

use super::file_system::LiveFileSystem;
use super::node::LiveNode;
use super::unlinked_set::key;
use crate::error::ZplError;
use crate::sync::Arc;
use rzfs_dmu::live::Transaction;
use rzfs_format::ObjectId;
use rzfs_zap::ZapEntry;

/// Holds a file while it is open, or known to the kernel. Dropping the last hold of an unlinked
/// file reclaims it.
#[derive(Debug)]
pub struct Hold {
    file_system: Arc<LiveFileSystem>,
    node: Arc<LiveNode>,
}

impl Hold {
    /// The file.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.node.id()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // If it cannot be written, only the access time is lost.
        let _ = self.file_system.flush_access_time(&self.node);
        if self.node.release() {
            self.file_system.reclaim_or_leave(self.node.id());
        }
    }
}

impl LiveFileSystem {
    /// Holds a file.
    ///
    /// # Errors
    /// The number is not that of a file, or it is being reclaimed.
    pub fn hold(self: &Arc<Self>, object: ObjectId) -> Result<Hold, ZplError> {
        Ok(Hold { file_system: Arc::clone(self), node: self.hold_node(object)? })
    }

    /// Holds a file until [`LiveNode::release`].
    pub(super) fn hold_node(&self, object: ObjectId) -> Result<Arc<LiveNode>, ZplError> {
        let node = self.node(object)?;
        if node.hold() { Ok(node) } else { Err(ZplError::NotFound { place: self.place(object) }) }
    }

    /// Adds a file to the unlinked set.
    pub(super) fn queue(&self, tx: &dyn Transaction, object: ObjectId) -> Result<(), ZplError> {
        self.unlinked.lock().table()?.set(tx, &key(object), object.0)?;
        self.counters.count_unlinked();
        Ok(())
    }

    /// Removes a file from the unlinked set.
    pub(super) fn unqueue(&self, tx: &dyn Transaction, object: ObjectId) -> Result<(), ZplError> {
        self.unlinked.lock().table()?.remove(tx, &key(object)).map(|_| ())
    }

    /// Reads the unlinked set, as far as it can be read.
    fn read_unlinked(&self, into: &mut Vec<ZapEntry>) -> Result<(), ZplError> {
        let mut unlinked = self.unlinked.lock();
        let place = self.place(unlinked.object().id());
        for entry in unlinked.table()?.zap().entries() {
            into.push(entry.map_err(|source| place.zap_failure(source))?);
        }
        Ok(())
    }

    /// Number of unlinked files whose space will be freed while the file system is in use: one that
    /// is read-only, or being closed, keeps them.
    ///
    /// # Errors
    /// The unlinked set cannot be read.
    pub fn unfreed_files(&self) -> Result<u64, ZplError> {
        if self.is_read_only() || self.reclaimer.is_paused() {
            return Ok(0);
        }
        Ok(self.unlinked.lock().table()?.zap().entry_count())
    }

    /// Reclaims the files that were unlinked but not freed when the file system was closed, or
    /// starts to where that spans many groups; returns their number. To be called once it is open,
    /// before it is used. A read-only one keeps them.
    ///
    /// # Errors
    /// The unlinked set cannot be read.
    pub fn drain_unlinked(&self) -> Result<usize, ZplError> {
        if self.is_read_only() {
            return Ok(0);
        }
        let mut entries = Vec::new();
        match self.read_unlinked(&mut entries) {
            // Unreadable entries of the set are leaked; the other files are reclaimed.
            Err(ZplError::Dmu(error)) if error.is_damage() => {
                tracing::warn!(%error, "files without names keep their space");
            }
            read => read?,
        }
        let mut found = 0;
        for entry in entries {
            let object = entry.value.first_u64().map(ObjectId);
            let is_sound = |id: &ObjectId| key(*id).as_bytes() == entry.name();
            let Some(object) = object.filter(is_sound) else { continue };
            if object == self.root() || object.0 < FIRST_FILE {
                continue;
            }
            let rest = self.reclaim_or_leave_rest(object);
            self.reclaim_later(object, rest);
            found += 1;
        }
        Ok(found)
    }
}

/// Lower numbers are not files: the meta-dnode and the master node.
const FIRST_FILE: u64 = 2;
