//! The names in directories in use: kept open as long as there is room.
//!
//! Hundreds of thousands of directories may be in use (known to the kernel), and an open one takes
//! some 20 KiB, or 160 with the index of a large microzap. Open ones are kept in a bounded cache
//! shared by all file systems of a pool, which evicts the oldest first. The directory itself only
//! refers to its names there.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::object::FileObject;
use crate::sync::{Arc, Mutex};
use rzfs_dmu::live::LiveObject;
use rzfs_format::ObjectId;
use rzfs_zap::Zap;
use std::sync::Weak;

/// Names kept open.
pub(super) type OpenNames = ObjectCache<Arc<Zap<LiveObject>>>;

/// The names in a directory. They are shared by all readers, and change under the lock of the file.
#[derive(Debug)]
pub(super) struct DirectoryNames {
    id: ObjectId,
    open: Arc<OpenNames>,
    /// Dead when they are not open.
    names: Mutex<Weak<Zap<LiveObject>>>,
}

impl DirectoryNames {
    pub(super) fn new(id: ObjectId, open: Arc<OpenNames>) -> Self {
        Self { id, open, names: Mutex::new(Weak::new()) }
    }

    /// The names in the object, for reading.
    pub(super) fn get(&self, object: &LiveObject) -> Result<Arc<Zap<LiveObject>>, ZplError> {
        if let Some(names) = self.names.lock().upgrade() {
            return Ok(names);
        }
        let names = Arc::new(object.clone().open_zap()?);
        self.keep(&names);
        Ok(names)
    }

    /// Changes the names in the object; after an error they are reread.
    pub(super) fn change<T>(
        &mut self,
        object: &LiveObject,
        change: impl FnOnce(&mut Zap<LiveObject>) -> Result<T, ZplError>,
    ) -> Result<T, ZplError> {
        let names = self.get(object)?;
        self.close();
        let mut names = match Arc::try_unwrap(names) {
            Ok(names) => names,
            Err(_) => object.clone().open_zap()?,
        };
        let changed = change(&mut names)?;
        self.keep(&Arc::new(names));
        Ok(changed)
    }

    fn keep(&self, names: &Arc<Zap<LiveObject>>) {
        *self.names.lock() = Arc::downgrade(names);
        self.open.insert(self.id, Arc::clone(names), names.memory_bytes());
    }

    fn close(&self) {
        let names = std::mem::take(&mut *self.names.lock());
        if names.strong_count() > 0 {
            self.open.remove(self.id);
        }
    }
}

impl Drop for DirectoryNames {
    fn drop(&mut self) {
        self.close();
    }
}
