//! The names in directories that are in use: open as long as there is room for them.
//!
//! Directories may be in use by the hundred thousand (the kernel knows them), and an open one takes some
//! 20 KiB, or 160 with the index of a large microzap. What is kept open is in a bounded cache, which all
//! file systems of a pool share: who came first goes first. The directory itself only knows where its
//! names are there.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::object::FileObject;
use crate::sync::{Arc, Mutex};
use rzfs_dmu::live::LiveObject;
use rzfs_format::ObjectId;
use rzfs_zap::Zap;
use std::sync::Weak;

/// Names that are kept open.
pub(super) type OpenNames = ObjectCache<Arc<Zap<LiveObject>>>;

/// The names in a directory. They are the same for everybody who reads them, and change under the lock
/// of the file.
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

    /// The names in the object, to read them.
    pub(super) fn get(&self, object: &LiveObject) -> Result<Arc<Zap<LiveObject>>, ZplError> {
        if let Some(names) = self.names.lock().upgrade() {
            return Ok(names);
        }
        let names = Arc::new(object.clone().open_zap()?);
        self.keep(&names);
        Ok(names)
    }

    /// Changes the names in the object; if that fails they are read anew.
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
