//! The ciphers: AES-GCM by aws-lc, AES-CCM with its 12-byte nonces by [`ccm`].

use super::error::CryptoError;
use super::{MAC_SIZE, ccm};
use aes::cipher::KeyInit;
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rzfs_format::encryption::EncryptionSuite;

/// A key made ready for its cipher. The ciphers' own types wipe it when dropped.
pub(super) struct Aead(Cipher);

enum Cipher {
    Gcm(LessSafeKey),
    Ccm128(Box<Aes128>),
    Ccm192(Box<Aes192>),
    Ccm256(Box<Aes256>),
}

impl Aead {
    /// The cipher of the suite. `key` has at least the suite's length; what is behind is not used.
    pub(super) fn new(suite: EncryptionSuite, key: &[u8; 32]) -> Self {
        let key = &key[..suite.key_len()];
        Self(match suite {
            EncryptionSuite::Aes128Gcm => gcm(&aead::AES_128_GCM, key),
            EncryptionSuite::Aes192Gcm => gcm(&aead::AES_192_GCM, key),
            EncryptionSuite::Aes256Gcm => gcm(&aead::AES_256_GCM, key),
            EncryptionSuite::Aes128Ccm => Cipher::Ccm128(Box::new(block_cipher(key))),
            EncryptionSuite::Aes192Ccm => Cipher::Ccm192(Box::new(block_cipher(key))),
            EncryptionSuite::Aes256Ccm => Cipher::Ccm256(Box::new(block_cipher(key))),
        })
    }

    pub(super) fn gcm256(key: &[u8; 32]) -> Self {
        Self::new(EncryptionSuite::Aes256Gcm, key)
    }

    pub(super) fn ccm256(key: &[u8; 32]) -> Self {
        Self::new(EncryptionSuite::Aes256Ccm, key)
    }

    /// Encrypts in place, and gives the tag.
    pub(super) fn seal(
        &self,
        iv: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; MAC_SIZE], CryptoError> {
        let too_long = CryptoError::TooLong { length: data.len() };
        if !matches!(self.0, Cipher::Gcm(_)) && data.len() >= ccm::LIMIT {
            return Err(too_long);
        }
        match &self.0 {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(aad), data)
                    .map_err(|_| too_long.clone())?;
                tag.as_ref().try_into().map_err(|_| too_long)
            }
            Cipher::Ccm128(cipher) => Ok(ccm::seal(&**cipher, iv, aad, data)),
            Cipher::Ccm192(cipher) => Ok(ccm::seal(&**cipher, iv, aad, data)),
            Cipher::Ccm256(cipher) => Ok(ccm::seal(&**cipher, iv, aad, data)),
        }
    }

    /// Decrypts in place. When the tag is wrong, `failure` is the error and `data` holds nothing
    /// of use.
    pub(super) fn open(
        &self,
        iv: &[u8; 12],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; MAC_SIZE],
        failure: CryptoError,
    ) -> Result<(), CryptoError> {
        if !matches!(self.0, Cipher::Gcm(_)) && data.len() >= ccm::LIMIT {
            return Err(CryptoError::TooLong { length: data.len() });
        }
        let expected = match &self.0 {
            Cipher::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(*iv);
                return key
                    .open_in_place_separate_tag(nonce, Aad::from(aad), tag, data)
                    .map(drop)
                    .map_err(|_| failure);
            }
            Cipher::Ccm128(cipher) => ccm::open(&**cipher, iv, aad, data),
            Cipher::Ccm192(cipher) => ccm::open(&**cipher, iv, aad, data),
            Cipher::Ccm256(cipher) => ccm::open(&**cipher, iv, aad, data),
        };
        verify_slices_are_equal(&expected, tag).map_err(|_| failure)
    }
}

/// # Panics
/// When the key does not have the algorithm's length, which only a wrong table above can cause.
fn gcm(algorithm: &'static aead::Algorithm, key: &[u8]) -> Cipher {
    let key = UnboundKey::new(algorithm, key).expect("the suite's key length is the algorithm's");
    Cipher::Gcm(LessSafeKey::new(key))
}

/// # Panics
/// When the key does not have the cipher's length, which only a wrong table above can cause.
fn block_cipher<C: KeyInit>(key: &[u8]) -> C {
    C::new_from_slice(key).expect("the suite's key length is the cipher's")
}

#[cfg(test)]
mod tests;
