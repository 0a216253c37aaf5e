//! The keys of encrypted datasets as seen by datasets: where they are and whether they are loaded.

use super::{Dataset, DatasetError, RootKey};
use crate::mos::key_object;
use rzfs_codec::crypto::{DatasetKey, KeyFormat, Pbkdf2, WrappedKeys};
use rzfs_format::{Guid, ObjectId};
use std::sync::Arc;

/// Whether the key of a dataset is loaded (property `keystatus`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyStatus {
    /// The dataset is not encrypted.
    None,
    /// Its key is not loaded.
    Unavailable,
    /// Its key is loaded.
    Available,
}

/// The keys of a dataset as stored: the key of its encryption root unwraps them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedKeys {
    /// The wrapped keys.
    pub keys: WrappedKeys,
    /// How the user supplies the key of the encryption root.
    pub format: KeyFormat,
    /// How a passphrase is turned into that key.
    pub derivation: Pbkdf2,
}

impl Dataset {
    /// The object with its wrapped key; `None` when it is not encrypted.
    pub(super) fn key_object(&self) -> Result<Option<ObjectId>, DatasetError> {
        Ok(key_object::of_dir(self.tree().mos(), self.directory_object())?)
    }

    /// The file system or volume whose key unlocks this one; `None` when it is not encrypted.
    pub fn encryption_root(&self) -> Result<Option<Dataset>, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(None) };
        let name = self.tree().directory_name(key_object::root(self.tree().mos(), key)?)?;
        self.tree().open(&name).map(Some)
    }

    /// Whether it is an encryption root.
    pub fn is_encryption_root(&self) -> Result<bool, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(false) };
        Ok(key_object::root(self.tree().mos(), key)? == self.directory_object())
    }

    /// How the user supplies the key of its encryption root; `None` when it is not encrypted.
    pub fn key_format(&self) -> Result<Option<KeyFormat>, DatasetError> {
        let Some(root) = self.encryption_root()? else { return Ok(None) };
        let key = root.key_object()?;
        Ok(key.map(|key| key_object::format(root.tree().mos(), key)).transpose()?)
    }

    /// Its keys as they are stored; `None` when it is not encrypted.
    pub fn sealed_keys(&self) -> Result<Option<SealedKeys>, DatasetError> {
        let (Some(key), Some(root)) = (self.key_object()?, self.encryption_root()?) else {
            return Ok(None);
        };
        let mos = self.tree().mos();
        // The other records of the root were not always right.
        let of_root = root.key_object()?.unwrap_or(key);
        Ok(Some(SealedKeys {
            keys: key_object::wrapped(mos, key)?,
            format: key_object::format(mos, of_root)?,
            derivation: key_object::derivation(mos, of_root)?,
        }))
    }

    /// The IV set guid, which tells the ciphertexts of a snapshot from all others; `None` when
    /// there is none, as on unencrypted datasets.
    pub fn iv_set(&self) -> Result<Option<Guid>, DatasetError> {
        Ok(self.dataset_field(key_object::IV_SET)?.map(Guid))
    }

    /// Whether its key is loaded.
    pub fn key_status(&self) -> Result<KeyStatus, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(KeyStatus::None) };
        let root = key_object::root(self.tree().mos(), key)?;
        Ok(match self.tree().keyring().read(|tables| tables.roots.contains_key(&root)) {
            true => KeyStatus::Available,
            false => KeyStatus::Unavailable,
        })
    }

    /// Loads the key of its encryption root, from typed input or the contents of a key file. All
    /// datasets with this root can be opened afterwards.
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

    /// Checks whether this is the key of its encryption root, without keeping it.
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
        let key = self.key_object()?.ok_or_else(not_encrypted)?;
        let wrong = |source| DatasetError::WrongKey { root: self.name().to_owned(), source };
        let mos = self.tree().mos();
        let (format, derivation) =
            (key_object::format(mos, key)?, key_object::derivation(mos, key)?);
        let root_key = RootKey::from_input(format, input, derivation).map_err(wrong)?;
        let unwrapped = DatasetKey::unwrap(&root_key.wrapping, &key_object::wrapped(mos, key)?);
        Ok((root_key, key, unwrapped.map_err(wrong)?))
    }

    /// Drops the key of its encryption root; open objects stay open.
    pub fn unload_key(&self) -> Result<(), DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(()) };
        let root = key_object::root(self.tree().mos(), key)?;
        self.tree().keyring().write(|tables| {
            tables.roots.remove(&root);
            tables.unwrapped.clear();
        });
        Ok(())
    }

    /// The key of its blocks; `None` when it is not encrypted.
    pub(crate) fn loaded_key(&self) -> Result<Option<Arc<DatasetKey>>, DatasetError> {
        let Some(key) = self.key_object()? else { return Ok(None) };
        let (keyring, mos) = (self.tree().keyring(), self.tree().mos());
        let root = key_object::root(mos, key)?;
        if let Some(unwrapped) = keyring.unwrapped(key) {
            return Ok(Some(unwrapped));
        }
        let root_name = || self.tree().directory_name(root);
        let Some(root_key) = keyring.root_key(root) else {
            return Err(DatasetError::KeyNotLoaded { root: root_name()? });
        };
        let unwrapped =
            match DatasetKey::unwrap(&root_key.wrapping, &key_object::wrapped(mos, key)?) {
                Ok(unwrapped) => Arc::new(unwrapped),
                Err(source) => return Err(DatasetError::WrongKey { root: root_name()?, source }),
            };
        keyring.write(|tables| tables.unwrapped.insert(key, Arc::clone(&unwrapped)));
        Ok(Some(unwrapped))
    }
}
