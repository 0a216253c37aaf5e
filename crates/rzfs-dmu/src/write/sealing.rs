//! Protecting the blocks of encrypted object sets (spec 04, section 19.6).
//!
//! ```text
//! contents ─> compressed, padded ─> ciphertext ─> checksum       encrypted types
//!                                └> MAC of it  ─> checksum       other types
//! pointers ─> MAC of theirs; compressed, padded ─> checksum      indirect blocks
//! MACs are inside already                       ─> checksum      the root
//! ```

use super::error::EncodeError;
use super::policy::BlockPolicy;
use crate::contents::Contents;
use bytes::Bytes;
use rzfs_codec::checksum::fold;
use rzfs_codec::crypto::{DatasetKey, indirect_mac};
use rzfs_format::block_pointer::Protection;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::{BlockPointer, ByteOrder};

/// How the blocks of an object set are protected.
#[derive(Clone, Copy, Default, Debug)]
pub enum Sealing<'a> {
    /// The set is not encrypted.
    #[default]
    Plain,
    /// It is encrypted with this key.
    Key(&'a DatasetKey),
    /// It is encrypted and the key is not loaded: only its root block can be written, and only
    /// parts not covered by a MAC may have changed.
    Locked,
}

/// The encryption parameters in a block's pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seal {
    /// It belongs to a set that is not encrypted.
    None,
    /// The MACs are inside.
    Objset,
    /// It can be read without the key.
    Mac([u8; 16]),
    /// It cannot.
    Encrypted { salt: [u8; 8], iv: [u8; 12], mac: [u8; 16] },
}

impl Sealing<'_> {
    /// Whether the set is not encrypted.
    pub(super) const fn is_plain(self) -> bool {
        matches!(self, Self::Plain)
    }

    /// The stored bytes of a block; `contents` if they are not compressed.
    pub(super) fn seal(
        self,
        policy: &BlockPolicy,
        contents: &Bytes,
        compressed: Option<Contents>,
    ) -> Result<(Bytes, Seal), EncodeError> {
        let readable = |compressed: Option<Contents>| match compressed {
            Some(buffer) => buffer.freeze(),
            None => contents.clone(),
        };
        if self.is_plain() {
            return Ok((readable(compressed), Seal::None));
        }
        let protection = Protection::in_encrypted_objset(Some(policy.object_type), policy.level);
        let key = match self {
            _ if protection == Protection::Objset => {
                return Ok((readable(compressed), Seal::Objset));
            }
            Self::Key(key) => key,
            Self::Plain | Self::Locked => return Err(EncodeError::Locked),
        };
        let order = ByteOrder::NATIVE;
        match protection {
            Protection::Encrypted => {
                let mut buffer = match compressed {
                    Some(buffer) => buffer,
                    None => Contents::padded(contents, contents.len())?,
                };
                let (salt, iv) = match policy.dedup {
                    Some(_) => key.dedup_salt_and_iv(&buffer),
                    None => key.next_salt_and_iv()?,
                };
                let mac = key.encrypt_block(policy.object_type, order, salt, iv, &mut buffer)?;
                Ok((buffer.freeze(), Seal::Encrypted { salt, iv, mac }))
            }
            Protection::IndirectMac => {
                let mac = indirect_mac(key.version(), contents, order);
                let mac = mac.map_err(rzfs_codec::crypto::CryptoError::from)?;
                Ok((readable(compressed), Seal::Mac(mac)))
            }
            Protection::Authenticated | Protection::Objset | Protection::None => {
                let data = readable(compressed);
                let mac = key.authentication_mac(&data);
                Ok((data, Seal::Mac(mac)))
            }
        }
    }
}

impl Seal {
    /// How a pointer to it is protected.
    pub(super) const fn protection(&self) -> Protection {
        match self {
            Self::None => Protection::None,
            Self::Objset => Protection::Objset,
            Self::Mac(_) => Protection::Authenticated,
            Self::Encrypted { .. } => Protection::Encrypted,
        }
    }

    /// The checksum in a pointer, besides the MAC.
    pub(super) fn checksum(
        &self,
        function: ChecksumFunction,
        checksum: ChecksumValue,
    ) -> ChecksumValue {
        match self {
            Self::None | Self::Objset => checksum,
            Self::Mac(_) | Self::Encrypted { .. } => {
                let [first, second] = fold(function, checksum);
                ChecksumValue([first, second, 0, 0])
            }
        }
    }

    /// Adds the encryption parameters to a pointer whose fill is set.
    pub(super) fn apply(&self, pointer: BlockPointer) -> BlockPointer {
        match *self {
            Self::None => pointer,
            Self::Objset => pointer.with_crypt_bit(),
            Self::Mac(mac) => pointer.with_crypt_bit().with_mac(mac),
            Self::Encrypted { salt, iv, mac } => {
                pointer.with_crypt_bit().with_salt_and_iv(salt, iv).with_mac(mac)
            }
        }
    }
}
