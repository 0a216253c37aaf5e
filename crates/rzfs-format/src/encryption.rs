//! Encryption suites (spec 04, section 19.1).

use crate::FormatError;
use crate::units::MAX_BLOCK_SIZE;

/// An authenticated cipher and its key size, by on-disk number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EncryptionSuite {
    /// AES-CCM with a 128-bit key.
    Aes128Ccm,
    /// AES-CCM with a 192-bit key.
    Aes192Ccm,
    /// AES-CCM with a 256-bit key.
    Aes256Ccm,
    /// AES-GCM with a 128-bit key.
    Aes128Gcm,
    /// AES-GCM with a 192-bit key.
    Aes192Gcm,
    /// AES-GCM with a 256-bit key.
    Aes256Gcm,
}

impl EncryptionSuite {
    /// All of them, by number.
    pub const ALL: [Self; 6] = [
        Self::Aes128Ccm,
        Self::Aes192Ccm,
        Self::Aes256Ccm,
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
    ];

    /// The suite with this on-disk number, 3 to 8.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        Ok(match number {
            3 => Self::Aes128Ccm,
            4 => Self::Aes192Ccm,
            5 => Self::Aes256Ccm,
            6 => Self::Aes128Gcm,
            7 => Self::Aes192Gcm,
            8 => Self::Aes256Gcm,
            _ => return Err(FormatError::field("crypto key", "suite", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Aes128Ccm => 3,
            Self::Aes192Ccm => 4,
            Self::Aes256Ccm => 5,
            Self::Aes128Gcm => 6,
            Self::Aes192Gcm => 7,
            Self::Aes256Gcm => 8,
        }
    }

    /// Bytes of a block key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes192Ccm | Self::Aes192Gcm => 24,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// The largest block that files get, in bytes: messages of CCM are shorter than 16 MiB.
    #[must_use]
    pub const fn max_block_size(self) -> u64 {
        match self {
            Self::Aes128Ccm | Self::Aes192Ccm | Self::Aes256Ccm => MAX_BLOCK_SIZE / 2,
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => MAX_BLOCK_SIZE,
        }
    }

    /// Whether it can encrypt so many bytes of a block.
    #[must_use]
    pub const fn can_encrypt(self, bytes: u64) -> bool {
        match self {
            Self::Aes128Ccm | Self::Aes192Ccm | Self::Aes256Ccm => bytes < MAX_BLOCK_SIZE,
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => bytes <= MAX_BLOCK_SIZE,
        }
    }

    /// The name as the `encryption` property spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Ccm => "aes-128-ccm",
            Self::Aes192Ccm => "aes-192-ccm",
            Self::Aes256Ccm => "aes-256-ccm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
        }
    }
}

/// Salt, IV and MAC of an encrypted block (spec 02, section 2.9), as the byte strings that the
/// cipher takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCryptParams {
    /// Salt that derives the block key from the master key.
    pub salt: [u8; 8],
    /// Initialisation vector.
    pub iv: [u8; 12],
    /// Authentication tag.
    pub mac: [u8; 16],
}
