//! Key objects of encrypted directories, as a txg changes them (spec 04, section 19.3).
//!
//! ```text
//! directory ── com.datto:crypto_key_obj ──> ZAP: suite, guid, wrapped keys, how they are wrapped
//! clone     ── the same ──────────────────┘      DSL_CRYPTO_ROOT_DDOBJ ──> directory of the root
//! ```

use crate::dataset::{KEY_OBJECT_FIELD, NewKeys, RootKey};
use crate::live::LiveError;
use crate::live::datasets::creation::Maker;
use crate::live::mos::MosTx;
use crate::live::mos::extensible::{activate, is_extended, zapify};
use rzfs_codec::crypto::{CryptoVersion, WrappedKeys};
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, Guid, ObjectId};
use rzfs_zap::{IntegerSize, ZapValue};

const SUITE: &str = "DSL_CRYPTO_SUITE";
const GUID: &str = "DSL_CRYPTO_GUID";
const IV: &str = "DSL_CRYPTO_IV";
const MAC: &str = "DSL_CRYPTO_MAC";
const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
const REFERENCES: &str = "DSL_CRYPTO_REFCOUNT";
const VERSION: &str = "DSL_CRYPTO_VERSION";

/// The key object of a directory, if it is encrypted.
pub(crate) fn of_dir(mos: &MosTx<'_>, dir: ObjectId) -> Result<Option<ObjectId>, LiveError> {
    if is_extended(mos, dir)? { mos.object_of(dir, KEY_OBJECT_FIELD) } else { Ok(None) }
}

/// The directory of the encryption root.
pub(crate) fn root(mos: &MosTx<'_>, key: ObjectId) -> Result<ObjectId, LiveError> {
    number(mos, key, ROOT).map(ObjectId)
}

/// Cipher and key size.
pub(crate) fn suite(mos: &MosTx<'_>, key: ObjectId) -> Result<EncryptionSuite, LiveError> {
    let suite = number(mos, key, SUITE)?;
    EncryptionSuite::from_number(suite).map_err(LiveError::corrupt(key))
}

/// Directories that use it: one, and its clones.
pub(crate) fn references(mos: &MosTx<'_>, key: ObjectId) -> Result<u64, LiveError> {
    number(mos, key, REFERENCES)
}

/// The wrapped keys.
pub(crate) fn wrapped(mos: &MosTx<'_>, key: ObjectId) -> Result<WrappedKeys, LiveError> {
    let version = mos.number(key, VERSION)?.unwrap_or(0);
    Ok(WrappedKeys {
        suite: suite(mos, key)?,
        version: CryptoVersion::from_number(version).map_err(LiveError::corrupt(key))?,
        guid: Guid(number(mos, key, GUID)?),
        iv: bytes(mos, key, IV)?,
        mac: bytes(mos, key, MAC)?,
        master: bytes(mos, key, MASTER_KEY)?,
        hmac: bytes(mos, key, HMAC_KEY)?,
    })
}

/// Stores keys that were wrapped by another root, or with another key of it.
pub(crate) fn store(
    mos: &MosTx<'_>,
    object: ObjectId,
    keys: &WrappedKeys,
    (root, root_key): (ObjectId, &RootKey),
) -> Result<(), LiveError> {
    let numbers = [
        (SUITE, keys.suite.number()),
        (GUID, keys.guid.0),
        (ROOT, root.get()),
        ("keyformat", root_key.format.number()),
        ("pbkdf2salt", root_key.derivation.salt),
        ("pbkdf2iters", root_key.derivation.iterations),
    ];
    for (name, number) in numbers {
        mos.set(object, name, number)?;
    }
    if keys.version != CryptoVersion::Zero {
        mos.set(object, VERSION, keys.version.number())?;
    }
    let strings =
        [(IV, &keys.iv[..]), (MAC, &keys.mac), (MASTER_KEY, &keys.master), (HMAC_KEY, &keys.hmac)];
    for (name, bytes) in strings {
        let words: Vec<u64> = bytes.iter().map(|byte| u64::from(*byte)).collect();
        mos.set(object, name, ZapValue::new(IntegerSize::One, &words))?;
    }
    Ok(())
}

/// Ends a directory's use of its key object.
pub(crate) fn release(mos: &MosTx<'_>, key: ObjectId) -> Result<(), LiveError> {
    match references(mos, key)? {
        0 | 1 => mos.destroy(key),
        several => mos.set(key, REFERENCES, several - 1),
    }
}

fn missing(key: ObjectId) -> LiveError {
    LiveError::corrupt(key)(FormatError::invalid("key object", "it lacks a field"))
}

fn number(mos: &MosTx<'_>, key: ObjectId, name: &str) -> Result<u64, LiveError> {
    mos.number(key, name)?.ok_or_else(|| missing(key))
}

fn bytes<const N: usize>(mos: &MosTx<'_>, key: ObjectId, name: &str) -> Result<[u8; N], LiveError> {
    let value = mos.lookup(key, name)?;
    let bytes = value.as_ref().and_then(|value| value.as_bytes()?.first_chunk());
    bytes.copied().ok_or_else(|| missing(key))
}

impl Maker<'_> {
    /// Gives a new directory and its head their key object, which is the answer.
    pub(crate) fn encrypt(
        &mut self,
        (dir, head): (ObjectId, ObjectId),
        new: &NewKeys,
    ) -> Result<ObjectId, LiveError> {
        let mos = self.mos;
        let wrapped = new.key.wrap_anew(&new.root_key.wrapping, new.guid)?;
        let object = mos.create_zap(ObjectType::ZAP_METADATA)?;
        store(&mos, object, &wrapped, (new.root.unwrap_or(dir), &new.root_key))?;
        mos.insert(object, REFERENCES, 1_u64)?;
        zapify(&mos, self.features, dir)?;
        mos.insert(dir, KEY_OBJECT_FIELD, object.get())?;
        activate(&mos, self.features, head, Feature::Encryption)?;
        Ok(object)
    }
}
