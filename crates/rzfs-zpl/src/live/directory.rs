//! The names in directories that are in use: open as long as there is room for them.
//!
//! Directories may be in use by the hundred thousand (the kernel knows them), and an open one takes
//! up to some 20 KiB. What is kept open is in a bounded cache, which all file systems of a pool share;
//! the directory itself only knows where it is there.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::object::FileObject;
use crate::sync::{Arc, Mutex};
use rzfs_dmu::live::LiveObject;
use rzfs_zap::Zap;
use std::sync::Weak;

/// Names that are kept open.
pub(super) type OpenNames = ObjectCache<Arc<Zap<LiveObject>>>;

/// The names in a directory. They are the same for everybody who reads them, and change under the lock
/// of the file.
#[derive(Debug)]
pub(super) struct DirectoryNames {
    object: LiveObject,
    open: Arc<OpenNames>,
    /// Dead when they are not open.
    names: Mutex<Weak<Zap<LiveObject>>>,
}

impl DirectoryNames {
    pub(super) fn new(object: LiveObject, open: Arc<OpenNames>) -> Self {
        Self { object, open, names: Mutex::new(Weak::new()) }
    }

    /// The names, to read them.
    pub(super) fn get(&self) -> Result<Arc<Zap<LiveObject>>, ZplError> {
        if let Some(names) = self.names.lock().upgrade() {
            return Ok(names);
        }
        let names = Arc::new(self.object.clone().open_zap()?);
        self.keep(&names);
        Ok(names)
    }

    /// Changes the names; if that fails they are read anew.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Zap<LiveObject>) -> Result<T, ZplError>,
    ) -> Result<T, ZplError> {
        let names = self.get()?;
        self.close();
        let mut names = match Arc::try_unwrap(names) {
            Ok(names) => names,
            Err(_) => self.object.clone().open_zap()?,
        };
        let changed = change(&mut names)?;
        self.keep(&Arc::new(names));
        Ok(changed)
    }

    fn keep(&self, names: &Arc<Zap<LiveObject>>) {
        *self.names.lock() = Arc::downgrade(names);
        self.open.insert(self.object.id(), Arc::clone(names), names.memory_bytes());
    }

    fn close(&self) {
        let names = std::mem::take(&mut *self.names.lock());
        if names.strong_count() > 0 {
            self.open.remove(self.object.id());
        }
    }
}

impl Drop for DirectoryNames {
    fn drop(&mut self) {
        self.close();
    }
}
