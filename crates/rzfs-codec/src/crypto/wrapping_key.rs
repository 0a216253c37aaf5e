//! The key that the user supplies, and that the dataset's keys are encrypted with
//! (spec 04, section 19.2).

use super::aead::Aead;
use super::error::CryptoError;
use super::key_format::KeyFormat;
use super::{KeyBytes, key_bytes};
use rzfs_format::encryption::EncryptionSuite;
use sha1::Sha1;
use std::fmt;
use zeroize::Zeroize;

/// Bytes of a wrapping key, whatever the suite.
pub(super) const SIZE: usize = 32;
const MIN_PASSPHRASE: usize = 8;
const MAX_PASSPHRASE: usize = 512;
/// More of the stack than deriving a key takes, in bytes.
const STACK: usize = 16 << 10;

/// HMAC puts a passphrase that fits into a block on the stack, where it would stay.
#[inline(never)]
fn derive(passphrase: &[u8], salt: [u8; 8], iterations: u32, key: &mut KeyBytes<SIZE>) {
    pbkdf2::pbkdf2_hmac::<Sha1>(passphrase, &salt, iterations, key.as_mut_slice());
}

/// Overwrites what functions that have returned have left on the stack.
#[inline(never)]
fn wipe_stack() {
    let mut frame = [0_u8; STACK];
    frame.zeroize();
    std::hint::black_box(&frame);
}

/// Parameters of the derivation from a passphrase, from the key object; zeros for other formats.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pbkdf2 {
    /// Salt (`pbkdf2salt`).
    pub salt: u64,
    /// Iterations (`pbkdf2iters`).
    pub iterations: u64,
}

/// 32 bytes that wrap the keys of all datasets below an encryption root; wiped when dropped.
#[derive(Clone)]
pub struct WrappingKey(KeyBytes<SIZE>);

impl WrappingKey {
    /// The key from what the user typed or what the key file holds: of a hex key or a passphrase the
    /// first line.
    ///
    /// A passphrase takes time in proportion to the iterations, which an attacker who can write
    /// to the pool chooses; more than 2^32 - 1 are refused.
    ///
    /// # Errors
    /// [`CryptoError::KeyInput`].
    pub fn from_input(
        format: KeyFormat,
        input: &[u8],
        derivation: Pbkdf2,
    ) -> Result<Self, CryptoError> {
        let key = format.key_in(input);
        match format {
            KeyFormat::Raw => Self::from_raw(key),
            KeyFormat::Hex => Self::from_hex(key),
            KeyFormat::Passphrase => Self::from_passphrase(key, derivation),
        }
    }

    /// The key of exactly these 32 bytes.
    ///
    /// # Errors
    /// [`CryptoError::KeyInput`]: another number of bytes.
    pub fn from_raw(bytes: &[u8]) -> Result<Self, CryptoError> {
        if bytes.len() != SIZE {
            return Err(invalid(KeyFormat::Raw, "has 32 bytes"));
        }
        let mut key = key_bytes::<SIZE>();
        key.copy_from_slice(bytes);
        Ok(Self(key))
    }

    /// The key of exactly these 64 digits.
    ///
    /// # Errors
    /// [`CryptoError::KeyInput`]: another number of bytes, or another character.
    pub fn from_hex(digits: &[u8]) -> Result<Self, CryptoError> {
        let problem = "has 64 hexadecimal digits";
        let (pairs, []) = digits.as_chunks::<2>() else {
            return Err(invalid(KeyFormat::Hex, problem));
        };
        if pairs.len() != SIZE {
            return Err(invalid(KeyFormat::Hex, problem));
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut key = key_bytes::<SIZE>();
        for (byte, [high, low]) in key.iter_mut().zip(pairs) {
            let (high, low) =
                digit(*high).zip(digit(*low)).ok_or(invalid(KeyFormat::Hex, problem))?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(key))
    }

    /// The key that PBKDF2-HMAC-SHA1 derives.
    ///
    /// # Errors
    /// [`CryptoError::KeyInput`]: shorter than 8 or longer than 512 bytes; no iterations, or more
    /// than 2^32 - 1.
    pub fn from_passphrase(passphrase: &[u8], derivation: Pbkdf2) -> Result<Self, CryptoError> {
        if !(MIN_PASSPHRASE..=MAX_PASSPHRASE).contains(&passphrase.len()) {
            return Err(invalid(KeyFormat::Passphrase, "has 8 to 512 bytes"));
        }
        let iterations = u32::try_from(derivation.iterations).unwrap_or(0);
        if iterations == 0 {
            let problem = "is derived in 1 to 4294967295 iterations";
            return Err(invalid(KeyFormat::Passphrase, problem));
        }
        let mut key = key_bytes::<SIZE>();
        let salt = derivation.salt.to_le_bytes();
        derive(passphrase, salt, iterations, &mut key);
        wipe_stack();
        Ok(Self(key))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SIZE] {
        &self.0
    }

    /// The cipher that wraps keys of datasets of this suite: its mode, always with 256 bits.
    pub(super) fn cipher(&self, suite: EncryptionSuite) -> Aead {
        match suite {
            EncryptionSuite::Aes128Ccm
            | EncryptionSuite::Aes192Ccm
            | EncryptionSuite::Aes256Ccm => Aead::ccm256(&self.0),
            EncryptionSuite::Aes128Gcm
            | EncryptionSuite::Aes192Gcm
            | EncryptionSuite::Aes256Gcm => Aead::gcm256(&self.0),
        }
    }
}

impl fmt::Debug for WrappingKey {
    /// Does not show the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(..)")
    }
}

const fn invalid(format: KeyFormat, problem: &'static str) -> CryptoError {
    CryptoError::KeyInput { format, problem }
}
