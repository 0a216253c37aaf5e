//! The files that the kernel knows.
//!
//! ```text
//! answer that names a file ──> remember: lookups + 1     first one: the file is held
//! FORGET n                 ──> forget:   lookups - n     none left: it is let go
//! ```
//! The kernel counts how often an answer has named a file to it, and says so when it has forgotten
//! the file. Until then the number of the file stands for this file and no other, and the file
//! lives on when its last name goes.

use crate::answer::{Answer, errno};
use rzfs_format::ObjectId;
use rzfs_zpl::live::{Hold, LiveFileSystem};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

#[derive(Debug)]
struct Entry {
    lookups: u64,
    /// Whether the kernel may have pages of it.
    has_pages: bool,
    /// Dropped when the kernel has forgotten the file.
    _hold: Hold,
}

type Shard = HashMap<ObjectId, Entry>;

/// The files of one file system that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    shards: [Mutex<Shard>; SHARDS],
}

impl KnownFiles {
    fn shard(&self, object: ObjectId) -> MutexGuard<'_, Shard> {
        let mixed = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.shards[mixed as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_up(&self, object: ObjectId) -> bool {
        let mut shard = self.shard(object);
        let entry = shard.get_mut(&object);
        entry.map(|entry| entry.lookups = entry.lookups.saturating_add(1)).is_some()
    }

    /// Notes that an answer names a file, before it is given.
    ///
    /// # Errors
    /// The file is gone.
    pub(crate) fn remember(
        &self,
        file_system: &Arc<LiveFileSystem>,
        object: ObjectId,
    ) -> Answer<()> {
        if self.count_up(object) {
            return Ok(());
        }
        // Held before the table is locked: opening a file may read it.
        let hold = file_system.hold(object).map_err(|error| errno(&error))?;
        let mut shard = self.shard(object);
        let spare = match shard.get_mut(&object) {
            Some(entry) => {
                entry.lookups = entry.lookups.saturating_add(1);
                Some(hold)
            }
            None => {
                shard.insert(object, Entry { lookups: 1, has_pages: false, _hold: hold });
                None
            }
        };
        drop(shard);
        drop(spare);
        Ok(())
    }

    /// Notes that the kernel gets pages of a file, before they are read.
    pub(crate) fn note_pages(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.has_pages = true;
        }
    }

    /// Whether the kernel may have pages of a file.
    pub(crate) fn has_pages(&self, object: ObjectId) -> bool {
        self.shard(object).get(&object).is_some_and(|entry| entry.has_pages)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        let lock = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.keys().copied().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(lock).collect()
    }

    /// Takes back so many lookups of a file.
    pub(crate) fn forget(&self, object: ObjectId, lookups: u64) {
        let mut shard = self.shard(object);
        let Some(entry) = shard.get_mut(&object) else { return };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        let forgotten = if entry.lookups == 0 { shard.remove(&object) } else { None };
        drop(shard);
        // Letting go of a file without names reclaims it.
        drop(forgotten);
    }

    /// Lets all files go: the kernel says nothing of those that it knows when it is unmounted.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            drop(files);
        }
    }
}
