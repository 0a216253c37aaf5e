//! The keys of encrypted datasets that are loaded.
//!
//! Encrypted directories below one *encryption root* share the root's wrapping key; each has a
//! key object of its own, wrapped with it, that clones share with their origin (spec 04, section
//! 19). Keys that were unwrapped are kept by key object.

use super::{Dataset, DatasetError};
use rzfs_dmu::DatasetKey;
use rzfs_format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The field of a directory's ZAP that has its key object.
const KEY_OBJECT_FIELD: &str = "com.datto:crypto_key_obj";
/// The field of a key object that has the directory of the encryption root.
const ROOT_FIELD: &[u8] = b"DSL_CRYPTO_ROOT_DDOBJ";

/// Unwrapped keys by key object.
#[derive(Debug, Default)]
pub(super) struct Keyring {
    keys: RwLock<HashMap<ObjectId, Arc<DatasetKey>>>,
}

impl Keyring {
    pub(super) fn get(&self, key_object: ObjectId) -> Option<Arc<DatasetKey>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&key_object).cloned()
    }
}

impl Dataset {
    /// The object with its wrapped key; `None` when it is not encrypted.
    pub fn key_object(&self) -> Result<Option<ObjectId>, DatasetError> {
        Ok(self.directory_field(KEY_OBJECT_FIELD)?.map(ObjectId))
    }

    /// The file system or volume whose key unlocks it; `None` when it is not encrypted.
    pub fn encryption_root(&self) -> Result<Option<Dataset>, DatasetError> {
        let Some(key_object) = self.key_object()? else { return Ok(None) };
        let object = self.tree().mos().object(key_object)?;
        let root = object.zap()?.lookup_u64(ROOT_FIELD);
        let root = root.map_err(|source| object.zap_error(source))?;
        let root = root.ok_or(DatasetError::IncompleteKey { object: key_object })?;
        let name = self.tree().directory_name(ObjectId(root))?;
        self.tree().open(&name).map(Some)
    }

    /// The key of its blocks; `None` when it is not encrypted.
    pub(super) fn loaded_key(&self) -> Result<Option<Arc<DatasetKey>>, DatasetError> {
        let Some(key_object) = self.key_object()? else { return Ok(None) };
        if let Some(key) = self.tree().keyring().get(key_object) {
            return Ok(Some(key));
        }
        let root = self.encryption_root()?.map_or_else(String::new, |root| root.name().to_owned());
        Err(DatasetError::KeyNotLoaded { root })
    }
}
