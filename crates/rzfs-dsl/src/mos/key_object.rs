//! Key objects of encrypted directories (spec 04, section 19.3).
//!
//! ```text
//! directory ── com.datto:crypto_key_obj ──> ZAP: suite, guid, wrapped keys, how they are wrapped
//! clone     ── the same ──────────────────┘      DSL_CRYPTO_ROOT_DDOBJ ──> directory of the root
//! ```

use super::MosSource;
use super::error::MosError;
use super::extensible::{field, zapify};
use super::features::Features;
use super::live::MosTx;
use crate::dataset::RootKey;
use crate::live::LiveError;
use rzfs_codec::crypto::{CryptoVersion, KeyFormat, Pbkdf2, WrappedKeys};
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::object_type::ObjectType;
use rzfs_format::property::DatasetProperty;
use rzfs_format::{FormatError, Guid, ObjectId};
use rzfs_zap::{IntegerSize, ZapValue};

/// The field of a directory's object that refers to its key object.
pub(crate) const KEY_OBJECT_FIELD: &str = "com.datto:crypto_key_obj";
/// The field of a snapshot's object that distinguishes its ciphertexts from all others.
pub(crate) const IV_SET: &str = "com.datto:ivset_guid";
const SUITE: &str = DatasetProperty::Encryption.stored_name();
const GUID: &str = "DSL_CRYPTO_GUID";
const IV: &str = "DSL_CRYPTO_IV";
const MAC: &str = "DSL_CRYPTO_MAC";
const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
const REFERENCES: &str = "DSL_CRYPTO_REFCOUNT";
const VERSION: &str = "DSL_CRYPTO_VERSION";
const FORMAT: &str = DatasetProperty::KeyFormat.stored_name();
const SALT: &str = "pbkdf2salt";
const ITERATIONS: &str = DatasetProperty::Pbkdf2Iters.stored_name();

/// The key object of a directory, if it is encrypted.
pub(crate) fn of_dir<M: MosSource>(mos: &M, dir: ObjectId) -> Result<Option<ObjectId>, M::Error> {
    Ok(field(mos, dir, KEY_OBJECT_FIELD)?.and_then(|key| ObjectId(key).non_zero()))
}

/// The directory of the encryption root.
pub(crate) fn root<M: MosSource>(mos: &M, key: ObjectId) -> Result<ObjectId, M::Error> {
    number(mos, key, ROOT).map(ObjectId)
}

/// Cipher and key size.
pub(crate) fn suite<M: MosSource>(mos: &M, key: ObjectId) -> Result<EncryptionSuite, M::Error> {
    let suite = number(mos, key, SUITE)?;
    Ok(EncryptionSuite::from_number(suite).map_err(MosError::corrupt(key))?)
}

/// How the user supplies the key of the encryption root.
pub(crate) fn format<M: MosSource>(mos: &M, key: ObjectId) -> Result<KeyFormat, M::Error> {
    let format = number(mos, key, FORMAT)?;
    Ok(KeyFormat::from_number(format).map_err(MosError::corrupt(key))?)
}

/// How a passphrase is turned into the key of the encryption root.
pub(crate) fn derivation<M: MosSource>(mos: &M, key: ObjectId) -> Result<Pbkdf2, M::Error> {
    Ok(Pbkdf2 {
        salt: mos.number(key, SALT)?.unwrap_or(0),
        iterations: mos.number(key, ITERATIONS)?.unwrap_or(0),
    })
}

/// Number of directories that use it: one, and its clones.
pub(crate) fn references<M: MosSource>(mos: &M, key: ObjectId) -> Result<u64, M::Error> {
    number(mos, key, REFERENCES)
}

/// The wrapped keys.
pub(crate) fn wrapped<M: MosSource>(mos: &M, key: ObjectId) -> Result<WrappedKeys, M::Error> {
    let version = mos.number(key, VERSION)?.unwrap_or(0);
    Ok(WrappedKeys {
        suite: suite(mos, key)?,
        version: CryptoVersion::from_number(version).map_err(MosError::corrupt(key))?,
        guid: Guid(number(mos, key, GUID)?),
        iv: bytes(mos, key, IV)?,
        mac: bytes(mos, key, MAC)?,
        master: bytes(mos, key, MASTER_KEY)?,
        hmac: bytes(mos, key, HMAC_KEY)?,
    })
}

fn number<M: MosSource>(mos: &M, key: ObjectId, name: &str) -> Result<u64, M::Error> {
    Ok(mos.number(key, name)?.ok_or_else(|| missing(key))?)
}

fn bytes<M: MosSource, const N: usize>(
    mos: &M,
    key: ObjectId,
    name: &str,
) -> Result<[u8; N], M::Error> {
    let value = mos.lookup(key, name)?;
    let bytes = value.as_ref().and_then(|value| value.as_bytes()?.first_chunk());
    Ok(bytes.copied().ok_or_else(|| missing(key))?)
}

fn missing(key: ObjectId) -> MosError {
    MosError::corrupt(key)(FormatError::invalid("key object", "it lacks a field"))
}

/// Creates a key object used by one directory.
pub(crate) fn create(
    mos: &MosTx<'_>,
    keys: &WrappedKeys,
    root: (ObjectId, &RootKey),
) -> Result<ObjectId, LiveError> {
    let object = mos.create_zap(ObjectType::ZAP_METADATA)?;
    store(mos, object, keys, root)?;
    mos.insert(object, REFERENCES, 1_u64)?;
    Ok(object)
}

/// Stores keys wrapped by another root, or with another key of it.
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
        (FORMAT, root_key.format.number()),
        (SALT, root_key.derivation.salt),
        (ITERATIONS, root_key.derivation.iterations),
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

/// Shares the key object of a new clone's origin.
pub(crate) fn share(
    mos: &MosTx<'_>,
    features: &mut Features,
    key: ObjectId,
    clone: ObjectId,
) -> Result<(), LiveError> {
    zapify(mos, features, clone)?;
    mos.insert(clone, KEY_OBJECT_FIELD, key.get())?;
    mos.set(key, REFERENCES, references(mos, key)?.saturating_add(1))
}

/// Sets another directory as the encryption root of a key object, with the same key.
pub(crate) fn set_root(mos: &MosTx<'_>, key: ObjectId, root: ObjectId) -> Result<(), LiveError> {
    mos.set(key, ROOT, root.get())
}

/// Releases a directory's key object.
pub(crate) fn release(mos: &MosTx<'_>, key: ObjectId) -> Result<(), LiveError> {
    match references(mos, key)? {
        0 | 1 => mos.destroy(key),
        several => mos.set(key, REFERENCES, several - 1),
    }
}
