//! The keys of encrypted datasets.
//!
//! Encrypted directories below one *encryption root* share the root's wrapping key; each has a
//! key object of its own, wrapped with it, that clones share with their origin (spec 04, section
//! 19). Loading a key unwraps the root's key object to verify the key; the others are unwrapped on
//! demand and cached by key object.

use super::RootKey;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::{Guid, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The keys of a new dataset, and what wraps them.
#[derive(Clone, Debug)]
pub(crate) struct NewKeys {
    pub(crate) key: Arc<DatasetKey>,
    pub(crate) guid: Guid,
    pub(crate) root_key: RootKey,
    /// The directory of the encryption root; `None`: the new one's own.
    pub(crate) root: Option<ObjectId>,
}

/// The loaded keys. The lock protects the tables; it is never held across I/O.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    tables: RwLock<Tables>,
}

#[derive(Default)]
pub(super) struct Tables {
    /// By the directory of the encryption root.
    pub(super) roots: HashMap<ObjectId, RootKey>,
    /// By key object.
    pub(super) unwrapped: HashMap<ObjectId, Arc<DatasetKey>>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roots: Vec<_> = self.roots.keys().collect();
        f.debug_struct("Tables").field("roots", &roots).finish_non_exhaustive()
    }
}

impl Keyring {
    pub(super) fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        read(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn write<T>(&self, write: impl FnOnce(&mut Tables) -> T) -> T {
        write(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of an encryption root, by its directory.
    pub(crate) fn root_key(&self, root: ObjectId) -> Option<RootKey> {
        self.read(|tables| tables.roots.get(&root).cloned())
    }

    /// Stores the key of an encryption root, replacing any earlier one.
    pub(crate) fn insert_root(&self, root: ObjectId, key: RootKey) {
        self.write(|tables| tables.roots.insert(root, key));
    }

    /// Drops the key of a directory that is no longer an encryption root.
    pub(crate) fn forget_root(&self, root: ObjectId) {
        self.write(|tables| tables.roots.remove(&root));
    }

    /// Drops the keys of a key object that no longer exists.
    pub(crate) fn forget_key(&self, key_object: ObjectId) {
        self.write(|tables| tables.unwrapped.remove(&key_object));
    }

    /// Stores the keys of a new directory.
    pub(crate) fn insert_new(&self, dir: ObjectId, key_object: ObjectId, keys: &NewKeys) {
        self.write(|tables| {
            tables.unwrapped.insert(key_object, Arc::clone(&keys.key));
            if keys.root.is_none() {
                tables.roots.insert(dir, keys.root_key.clone());
            }
        });
    }

    pub(super) fn unwrapped(&self, key_object: ObjectId) -> Option<Arc<DatasetKey>> {
        self.read(|tables| tables.unwrapped.get(&key_object).cloned())
    }
}
