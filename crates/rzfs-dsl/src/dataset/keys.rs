//! The keys of encrypted datasets, as datasets know them: where they are, and whether they are
//! loaded.

use super::keyring::KEY_OBJECT_FIELD;
use super::{Dataset, DatasetError, RootKey};
use rzfs_codec::crypto::{CryptoVersion, DatasetKey, KeyFormat, Pbkdf2, WrappedKeys};
use rzfs_dmu::Object;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::{Guid, ObjectId};
use rzfs_zap::{Zap, ZapValue};
use std::sync::Arc;

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
