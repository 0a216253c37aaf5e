//! The keys of encrypted datasets.
//!
//! Encrypted directories below one *encryption root* share the root's wrapping key; each has a
//! key object of its own, wrapped with it, that clones share with their origin (spec 04, section
//! 19). Loading a key unwraps the root's key object to see whether the key is right; the others
//! are unwrapped when they are needed, and kept by key object.

use super::{Dataset, DatasetError, RootKey};
use rzfs_codec::crypto::{CryptoVersion, DatasetKey, KeyFormat, Pbkdf2, WrappedKeys};
use rzfs_dmu::Object;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::{Guid, ObjectId};
use rzfs_zap::{Zap, ZapValue};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The field of a directory's ZAP that has its key object.
pub(crate) const KEY_OBJECT_FIELD: &str = "com.datto:crypto_key_obj";

/// The keys of a dataset that is to be made, and who wraps them.
#[derive(Clone, Debug)]
pub(crate) struct NewKeys {
    pub(crate) key: Arc<DatasetKey>,
    pub(crate) guid: Guid,
    pub(crate) root_key: RootKey,
    /// The directory of the encryption root; `None`: the new one's own.
    pub(crate) root: Option<ObjectId>,
}

/// The keys that were loaded. The lock protects the tables; it is never held over I/O.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    tables: RwLock<Tables>,
}

#[derive(Default)]
struct Tables {
    /// By the directory of the encryption root.
    roots: HashMap<ObjectId, RootKey>,
    /// By key object.
    unwrapped: HashMap<ObjectId, Arc<DatasetKey>>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roots: Vec<_> = self.roots.keys().collect();
        f.debug_struct("Tables").field("roots", &roots).finish_non_exhaustive()
    }
}

impl Keyring {
    fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        read(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Tables) -> T) -> T {
        write(&mut self.tables.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of an encryption root, by its directory.
    pub(crate) fn root_key(&self, root: ObjectId) -> Option<RootKey> {
        self.read(|tables| tables.roots.get(&root).cloned())
    }

    /// Remembers the key of an encryption root, in place of the one that it had.
    pub(crate) fn insert_root(&self, root: ObjectId, key: RootKey) {
        self.write(|tables| tables.roots.insert(root, key));
    }

    /// Forgets the key of an encryption root that is none any more.
    pub(crate) fn forget_root(&self, root: ObjectId) {
        self.write(|tables| tables.roots.remove(&root));
    }

    /// Forgets the keys in a key object that does not exist any more.
    pub(crate) fn forget_key(&self, key_object: ObjectId) {
        self.write(|tables| tables.unwrapped.remove(&key_object));
    }

    /// Remembers the keys of a new directory.
    pub(crate) fn insert_new(&self, dir: ObjectId, key_object: ObjectId, keys: &NewKeys) {
        self.write(|tables| {
            tables.unwrapped.insert(key_object, Arc::clone(&keys.key));
            if keys.root.is_none() {
                tables.roots.insert(dir, keys.root_key.clone());
            }
        });
    }

    fn unwrapped(&self, key_object: ObjectId) -> Option<Arc<DatasetKey>> {
        self.read(|tables| tables.unwrapped.get(&key_object).cloned())
    }
}

/// A key object in the MOS.
struct KeyObject {
    object: Object,
    zap: Zap<Object>,
}

impl KeyObject {
    fn field(&self, name: &str) -> Result<Option<ZapValue>, DatasetError> {
        let value = self.zap.lookup(name.as_bytes());
        Ok(value.map_err(|source| self.object.zap_error(source))?)
    }

    fn incomplete(&self) -> DatasetError {
        DatasetError::IncompleteKey { object: self.object.id() }
    }

    fn optional_u64(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        Ok(self.field(name)?.and_then(|value| value.first_u64()))
    }

    fn u64(&self, name: &str) -> Result<u64, DatasetError> {
        self.optional_u64(name)?.ok_or_else(|| self.incomplete())
    }

    fn bytes<const N: usize>(&self, name: &str) -> Result<[u8; N], DatasetError> {
        let value = self.field(name)?;
        let bytes = value.as_ref().and_then(|value| value.as_bytes()?.first_chunk());
        bytes.copied().ok_or_else(|| self.incomplete())
    }

    /// The directory of the encryption root.
    fn root(&self) -> Result<ObjectId, DatasetError> {
        self.u64("DSL_CRYPTO_ROOT_DDOBJ").map(ObjectId)
    }

    fn wrapped_keys(&self) -> Result<WrappedKeys, DatasetError> {
        let corrupt = |source| DatasetError::Corrupt { object: self.object.id(), source };
        let version = self.optional_u64("DSL_CRYPTO_VERSION")?.unwrap_or(0);
        Ok(WrappedKeys {
            suite: EncryptionSuite::from_number(self.u64("DSL_CRYPTO_SUITE")?).map_err(corrupt)?,
            version: CryptoVersion::from_number(version).map_err(corrupt)?,
            guid: Guid(self.u64("DSL_CRYPTO_GUID")?),
            iv: self.bytes("DSL_CRYPTO_IV")?,
            mac: self.bytes("DSL_CRYPTO_MAC")?,
            master: self.bytes("DSL_CRYPTO_MASTER_KEY_1")?,
            hmac: self.bytes("DSL_CRYPTO_HMAC_KEY_1")?,
        })
    }

    fn format(&self) -> Result<KeyFormat, DatasetError> {
        let corrupt = |source| DatasetError::Corrupt { object: self.object.id(), source };
        KeyFormat::from_number(self.u64("keyformat")?).map_err(corrupt)
    }

    fn derivation(&self) -> Result<Pbkdf2, DatasetError> {
        Ok(Pbkdf2 {
            salt: self.optional_u64("pbkdf2salt")?.unwrap_or(0),
            iterations: self.optional_u64("pbkdf2iters")?.unwrap_or(0),
        })
    }
}

/// Whether the key of a dataset is at hand (property `keystatus`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyStatus {
    /// The dataset is not encrypted.
    None,
    /// Its key is not loaded.
    Unavailable,
    /// Its key is loaded.
    Available,
}

impl Dataset {
    /// The object with its wrapped key; `None` when it is not encrypted.
    pub(super) fn key_object(&self) -> Result<Option<ObjectId>, DatasetError> {
        Ok(self.directory_field(KEY_OBJECT_FIELD)?.map(ObjectId))
    }

    fn open_key_object(&self) -> Result<Option<KeyObject>, DatasetError> {
        let Some(id) = self.key_object()? else { return Ok(None) };
        let object = self.tree().mos().object(id)?;
        let zap = object.zap()?;
        Ok(Some(KeyObject { object, zap }))
    }

    /// The file system or volume whose key unlocks it; `None` when it is not encrypted.
    pub fn encryption_root(&self) -> Result<Option<Dataset>, DatasetError> {
        let Some(key) = self.open_key_object()? else { return Ok(None) };
        let name = self.tree().directory_name(key.root()?)?;
        self.tree().open(&name).map(Some)
    }

    /// How the user gives the key of its encryption root; `None` when it is not encrypted.
    pub fn key_format(&self) -> Result<Option<KeyFormat>, DatasetError> {
        let Some(root) = self.encryption_root()? else { return Ok(None) };
        let key = root.open_key_object()?;
        key.map(|key| key.format()).transpose()
    }

    /// Whether its key is at hand.
    pub fn key_status(&self) -> Result<KeyStatus, DatasetError> {
        let Some(key) = self.open_key_object()? else { return Ok(KeyStatus::None) };
        let root = key.root()?;
        Ok(match self.tree().keyring().read(|tables| tables.roots.contains_key(&root)) {
            true => KeyStatus::Available,
            false => KeyStatus::Unavailable,
        })
    }

    /// Loads the key of its encryption root, from what the user typed or a key file holds. All
    /// datasets with this root can be opened then.
    ///
    /// # Errors
    /// [`DatasetError::WrongKey`] when it is not the key, [`DatasetError::NotEncrypted`] when
    /// there is nothing to unlock.
    pub fn load_key(&self, input: &[u8]) -> Result<(), DatasetError> {
        let not_encrypted = || DatasetError::NotEncrypted { name: self.name().to_owned() };
        let root = self.encryption_root()?.ok_or_else(not_encrypted)?;
        let (root_key, object, unwrapped) = root.unwrap_with(input)?;
        self.tree().keyring().write(|tables| {
            tables.roots.insert(root.directory_object(), root_key);
            tables.unwrapped.insert(object, Arc::new(unwrapped));
        });
        Ok(())
    }

    /// Says whether this is the key of its encryption root, without keeping it.
    ///
    /// # Errors
    /// As [`Dataset::load_key`].
    pub fn check_key(&self, input: &[u8]) -> Result<(), DatasetError> {
        let not_encrypted = || DatasetError::NotEncrypted { name: self.name().to_owned() };
        let root = self.encryption_root()?.ok_or_else(not_encrypted)?;
        root.unwrap_with(input).map(drop)
    }

    /// Unwraps the keys of an encryption root.
    fn unwrap_with(&self, input: &[u8]) -> Result<(RootKey, ObjectId, DatasetKey), DatasetError> {
        let not_encrypted = || DatasetError::NotEncrypted { name: self.name().to_owned() };
        let key = self.open_key_object()?.ok_or_else(not_encrypted)?;
        let wrong = |source| DatasetError::WrongKey { root: self.name().to_owned(), source };
        let root_key =
            RootKey::from_input(key.format()?, input, key.derivation()?).map_err(wrong)?;
        let unwrapped = DatasetKey::unwrap(&root_key.wrapping, &key.wrapped_keys()?);
        Ok((root_key, key.object.id(), unwrapped.map_err(wrong)?))
    }

    /// Forgets the key of its encryption root; what is open stays open.
    pub fn unload_key(&self) -> Result<(), DatasetError> {
        let Some(key) = self.open_key_object()? else { return Ok(()) };
        let root = key.root()?;
        self.tree().keyring().write(|tables| {
            tables.roots.remove(&root);
            tables.unwrapped.clear();
        });
        Ok(())
    }

    /// The key of its blocks; `None` when it is not encrypted.
    pub(super) fn loaded_key(&self) -> Result<Option<Arc<DatasetKey>>, DatasetError> {
        let Some(key) = self.open_key_object()? else { return Ok(None) };
        let (keyring, id, root) = (self.tree().keyring(), key.object.id(), key.root()?);
        if let Some(unwrapped) = keyring.unwrapped(id) {
            return Ok(Some(unwrapped));
        }
        let root_name = || self.tree().directory_name(root);
        let Some(root_key) = keyring.root_key(root) else {
            return Err(DatasetError::KeyNotLoaded { root: root_name()? });
        };
        let unwrapped = match DatasetKey::unwrap(&root_key.wrapping, &key.wrapped_keys()?) {
            Ok(unwrapped) => Arc::new(unwrapped),
            Err(source) => return Err(DatasetError::WrongKey { root: root_name()?, source }),
        };
        keyring.write(|tables| tables.unwrapped.insert(id, Arc::clone(&unwrapped)));
        Ok(Some(unwrapped))
    }
}
