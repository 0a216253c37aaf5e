//! The keys of a dataset and its clones (spec 04, sections 19.2, 19.3, 19.6 and 19.7).

use super::aead::Aead;
use super::layout::{LOG_MAC, Layout};
use super::nonce::{self, Nonces};
use super::{CryptoError, CryptoVersion, KeyBytes, MAC_SIZE, WrappingKey, key_bytes};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::RwLock;
use rzfs_format::block_pointer::Protection;
use rzfs_format::encryption::{BlockCryptParams, EncryptionSuite};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, FormatError, Guid};
use sha2::Sha512;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Most bytes of a master key.
const MASTER_SIZE: usize = 32;
/// Bytes of an HMAC key.
const HMAC_SIZE: usize = 64;
/// Block keys kept. A dataset takes a new salt every 400 million blocks, so that few are in use;
/// deduplicated blocks have their own and pass through.
const CACHED_BLOCK_KEYS: usize = 16;

pub(super) type HmacSha512 = Hmac<Sha512>;

/// The encrypted keys of a dataset, as its key object stores them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrappedKeys {
    /// Cipher and key size of the dataset (`DSL_CRYPTO_SUITE`).
    pub suite: EncryptionSuite,
    /// Version of the key object (`DSL_CRYPTO_VERSION`).
    pub version: CryptoVersion,
    /// Identity of the keys (`DSL_CRYPTO_GUID`).
    pub guid: Guid,
    /// IV of the wrapping (`DSL_CRYPTO_IV`).
    pub iv: [u8; 12],
    /// Tag of the wrapping (`DSL_CRYPTO_MAC`).
    pub mac: [u8; MAC_SIZE],
    /// Wrapped master key; what is behind the suite's key length is meaningless
    /// (`DSL_CRYPTO_MASTER_KEY_1`).
    pub master: [u8; MASTER_SIZE],
    /// Wrapped HMAC key (`DSL_CRYPTO_HMAC_KEY_1`).
    pub hmac: [u8; HMAC_SIZE],
}

impl WrappedKeys {
    /// What the wrapping authenticates besides the keys, and how much of it there is.
    fn aad(&self) -> ([u8; 24], usize) {
        let mut aad = [0; 24];
        aad[..8].copy_from_slice(&self.guid.0.to_le_bytes());
        aad[8..16].copy_from_slice(&self.suite.number().to_le_bytes());
        aad[16..].copy_from_slice(&self.version.number().to_le_bytes());
        let length = match self.version {
            CryptoVersion::Zero => 8,
            CryptoVersion::One => aad.len(),
        };
        (aad, length)
    }
}

/// The unwrapped keys of a dataset: decrypts, encrypts and authenticates its blocks. Keys are
/// wiped when it is dropped.
pub struct DatasetKey {
    suite: EncryptionSuite,
    version: CryptoVersion,
    master: KeyBytes<MASTER_SIZE>,
    hmac: KeyBytes<HMAC_SIZE>,
    /// The lock protects the block keys kept; it is held for a look-up or an insertion, never
    /// while a block is processed.
    block_keys: RwLock<BlockKeys>,
    nonces: Nonces,
}

/// Block keys by salt; the oldest makes room.
#[derive(Default)]
struct BlockKeys {
    entries: Vec<([u8; 8], Arc<Aead>)>,
    oldest: usize,
}

impl BlockKeys {
    fn get(&self, salt: [u8; 8]) -> Option<Arc<Aead>> {
        self.entries.iter().find(|(other, _)| *other == salt).map(|(_, key)| Arc::clone(key))
    }

    fn insert(&mut self, salt: [u8; 8], key: Arc<Aead>) {
        match self.entries.get_mut(self.oldest) {
            Some(entry) => *entry = (salt, key),
            None => self.entries.push((salt, key)),
        }
        self.oldest = (self.oldest + 1) % CACHED_BLOCK_KEYS;
    }
}

impl DatasetKey {
    /// The dataset's keys, from how they are stored.
    ///
    /// # Errors
    /// [`CryptoError::WrongKey`]: they were wrapped with another key, or changed since.
    pub fn unwrap(wrapping: &WrappingKey, wrapped: &WrappedKeys) -> Result<Self, CryptoError> {
        let length = wrapped.suite.key_len();
        let mut message = Zeroizing::new([0; MASTER_SIZE + HMAC_SIZE]);
        let (master, rest) = message.split_at_mut(length);
        master.copy_from_slice(&wrapped.master[..length]);
        rest[..HMAC_SIZE].copy_from_slice(&wrapped.hmac);
        let (aad, aad_length) = wrapped.aad();
        wrapping.cipher(wrapped.suite).open(
            &wrapped.iv,
            &aad[..aad_length],
            &mut message[..length + HMAC_SIZE],
            &wrapped.mac,
            CryptoError::WrongKey,
        )?;
        let mut key = Self::empty(wrapped.suite, wrapped.version);
        key.master[..length].copy_from_slice(&message[..length]);
        key.hmac.copy_from_slice(&message[length..length + HMAC_SIZE]);
        Ok(key)
    }

    /// Keys from random bytes, for a new dataset. Of the master key, the suite's length is used.
    #[must_use]
    pub fn from_random(
        suite: EncryptionSuite,
        master: &[u8; MASTER_SIZE],
        hmac: &[u8; HMAC_SIZE],
    ) -> Self {
        let mut key = Self::empty(suite, CryptoVersion::One);
        let length = suite.key_len();
        key.master[..length].copy_from_slice(&master[..length]);
        key.hmac.copy_from_slice(hmac);
        key
    }

    /// New keys that nobody can guess.
    ///
    /// # Errors
    /// [`CryptoError::NoRandomNumbers`].
    pub fn generate(suite: EncryptionSuite) -> Result<Self, CryptoError> {
        let mut master = key_bytes::<MASTER_SIZE>();
        let mut hmac = key_bytes::<HMAC_SIZE>();
        nonce::fill(master.as_mut_slice())?;
        nonce::fill(hmac.as_mut_slice())?;
        Ok(Self::from_random(suite, &master, &hmac))
    }

    fn empty(suite: EncryptionSuite, version: CryptoVersion) -> Self {
        Self {
            suite,
            version,
            master: key_bytes(),
            hmac: key_bytes(),
            block_keys: RwLock::default(),
            nonces: Nonces::default(),
        }
    }

    /// The keys as they are stored, wrapped under a new random IV.
    ///
    /// # Errors
    /// [`CryptoError::NoRandomNumbers`].
    pub fn wrap_anew(
        &self,
        wrapping: &WrappingKey,
        guid: Guid,
    ) -> Result<WrappedKeys, CryptoError> {
        self.wrap(wrapping, guid, nonce::random()?)
    }

    /// The keys as they are stored, wrapped under an IV that was not used with this wrapping key
    /// before.
    ///
    /// # Errors
    /// Never in practice: the message has at most 96 bytes.
    pub fn wrap(
        &self,
        wrapping: &WrappingKey,
        guid: Guid,
        iv: [u8; 12],
    ) -> Result<WrappedKeys, CryptoError> {
        let length = self.suite.key_len();
        let mut wrapped = WrappedKeys {
            suite: self.suite,
            version: self.version,
            guid,
            iv,
            mac: [0; MAC_SIZE],
            master: [0; MASTER_SIZE],
            hmac: [0; HMAC_SIZE],
        };
        let mut message = Zeroizing::new([0; MASTER_SIZE + HMAC_SIZE]);
        message[..length].copy_from_slice(&self.master[..length]);
        message[length..length + HMAC_SIZE].copy_from_slice(self.hmac.as_slice());
        let (aad, aad_length) = wrapped.aad();
        let text = &mut message[..length + HMAC_SIZE];
        wrapped.mac = wrapping.cipher(self.suite).seal(&iv, &aad[..aad_length], text)?;
        wrapped.master[..length].copy_from_slice(&text[..length]);
        wrapped.hmac.copy_from_slice(&text[length..]);
        Ok(wrapped)
    }

    /// Cipher and key size.
    #[must_use]
    pub const fn suite(&self) -> EncryptionSuite {
        self.suite
    }

    /// Version of the MACs.
    #[must_use]
    pub const fn version(&self) -> CryptoVersion {
        self.version
    }

    /// Decrypts the stored bytes of an encrypted block in place: everything, or of dnode blocks
    /// and log blocks what is encrypted there.
    ///
    /// # Errors
    /// [`CryptoError::BadMac`]: key, pointer and bytes do not belong together; what was to be
    /// decrypted holds nothing of use then. [`CryptoError::Protection`] when the pointer does not
    /// say that the block is encrypted. [`CryptoError::Format`] when a dnode or log block has no
    /// valid structure, [`CryptoError::TooLong`] for what CCM could not have encrypted.
    pub fn decrypt_block(
        &self,
        pointer: &BlockPointer,
        block: &mut [u8],
    ) -> Result<(), CryptoError> {
        if pointer.protection() != Protection::Encrypted {
            return Err(CryptoError::Protection { wanted: "encrypted" });
        }
        let object_type = pointer.object_type()?;
        let mut params = pointer.crypt_params();
        let layout = Layout::of(object_type);
        if layout == Layout::LogBlock {
            let stored = block.get(LOG_MAC).and_then(|bytes| bytes.first_chunk());
            params.mac = *stored.ok_or(FormatError::Truncated {
                what: "log block",
                need: LOG_MAC.end,
                have: block.len(),
            })?;
        }
        self.open(layout, pointer.order(), &params, block)
    }

    fn open(
        &self,
        layout: Layout,
        order: ByteOrder,
        params: &BlockCryptParams,
        block: &mut [u8],
    ) -> Result<(), CryptoError> {
        let key = self.block_key(params.salt);
        let failure = CryptoError::BadMac { what: "encrypted block" };
        layout.process(self.version, order, block, |aad, message| {
            key.open(&params.iv, aad, message, &params.mac, failure)
        })
    }

    /// Encrypts a block in place, and gives its MAC for the pointer. Of a log block the MAC also
    /// goes to its place in the block's trailer.
    ///
    /// The IV must not have been used with this salt before.
    ///
    /// # Errors
    /// [`CryptoError::Format`] when a dnode or log block has no valid structure,
    /// [`CryptoError::TooLong`] from 16 MiB on with CCM.
    pub fn encrypt_block(
        &self,
        object_type: ObjectType,
        order: ByteOrder,
        salt: [u8; 8],
        iv: [u8; 12],
        block: &mut [u8],
    ) -> Result<[u8; MAC_SIZE], CryptoError> {
        let key = self.block_key(salt);
        let layout = Layout::of(object_type);
        let mac = layout
            .process(self.version, order, block, |aad, message| key.seal(&iv, aad, message))?;
        if layout == Layout::LogBlock
            && let Some(place) = block.get_mut(LOG_MAC)
        {
            place.copy_from_slice(&mac);
        }
        Ok(mac)
    }

    /// Salt and IV of a block that is written now: the IV is random and the salt is changed after
    /// many blocks, so that no pair comes twice.
    ///
    /// # Errors
    /// [`CryptoError::NoRandomNumbers`].
    pub fn next_salt_and_iv(&self) -> Result<([u8; 8], [u8; 12]), CryptoError> {
        self.nonces.next()
    }

    /// Whether the same keys encrypt the blocks of both, so that they can have blocks in common.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.suite == other.suite
            && self.version == other.version
            && verify_slices_are_equal(self.master.as_slice(), other.master.as_slice()).is_ok()
            && verify_slices_are_equal(self.hmac.as_slice(), other.hmac.as_slice()).is_ok()
    }

    /// Salt and IV of a block that may be deduplicated: equal blocks get equal ones.
    #[must_use]
    pub fn dedup_salt_and_iv(&self, block: &[u8]) -> ([u8; 8], [u8; 12]) {
        let digest = self.hmac_of(block);
        let (mut salt, mut iv) = ([0; 8], [0; 12]);
        salt.copy_from_slice(&digest[..8]);
        iv.copy_from_slice(&digest[8..20]);
        (salt, iv)
    }

    /// The MAC of a block that stays readable, over its stored bytes.
    #[must_use]
    pub fn authentication_mac(&self, block: &[u8]) -> [u8; MAC_SIZE] {
        let mut mac = [0; MAC_SIZE];
        mac.copy_from_slice(&self.hmac_of(block)[..MAC_SIZE]);
        mac
    }

    /// Verifies the stored bytes of a block that stays readable.
    ///
    /// # Errors
    /// [`CryptoError::BadMac`], or [`CryptoError::Protection`] when the pointer does not say that
    /// the block is authenticated.
    pub fn authenticate_block(
        &self,
        pointer: &BlockPointer,
        block: &[u8],
    ) -> Result<(), CryptoError> {
        if pointer.protection() != Protection::Authenticated {
            return Err(CryptoError::Protection { wanted: "authenticated" });
        }
        let mac = self.authentication_mac(block);
        verify_slices_are_equal(&mac, &pointer.crypt_params().mac)
            .map_err(|_| CryptoError::BadMac { what: "authenticated block" })
    }

    pub(super) fn hmac(&self) -> HmacSha512 {
        HmacSha512::new_from_slice(self.hmac.as_slice()).expect("HMAC takes keys of any length")
    }

    fn hmac_of(&self, block: &[u8]) -> [u8; 64] {
        let mut hmac = self.hmac();
        hmac.update(block);
        hmac.finalize().into_bytes().into()
    }

    /// The key of the blocks with this salt.
    fn block_key(&self, salt: [u8; 8]) -> Arc<Aead> {
        if let Some(key) = self.block_keys.read().get(salt) {
            return key;
        }
        let key = Arc::new(Aead::new(self.suite, &self.derive_block_key(salt)));
        self.block_keys.write().insert(salt, Arc::clone(&key));
        key
    }

    pub(super) fn derive_block_key(&self, salt: [u8; 8]) -> KeyBytes<MASTER_SIZE> {
        let length = self.suite.key_len();
        let mut key = key_bytes::<MASTER_SIZE>();
        Hkdf::<Sha512>::new(None, &self.master[..length])
            .expand(&salt, &mut key[..length])
            .expect("HKDF gives up to 255 digests");
        key
    }
}

impl fmt::Debug for DatasetKey {
    /// Does not show the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetKey")
            .field("suite", &self.suite.name())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl DatasetKey {
    pub(super) fn master(&self) -> &[u8] {
        &self.master[..self.suite.key_len()]
    }

    pub(super) fn hmac_key(&self) -> &[u8; HMAC_SIZE] {
        &self.hmac
    }

    pub(super) fn cached_block_keys(&self) -> usize {
        self.block_keys.read().entries.len()
    }
}
