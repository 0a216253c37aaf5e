//! Why a key or a block cannot be used.

use super::key_format::KeyFormat;
use rzfs_format::FormatError;

/// Why a key or a block cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// What the user gave is not a key of this format.
    #[error("a {} key {problem}", format.name())]
    KeyInput {
        /// The format asked for.
        format: KeyFormat,
        /// What is wrong.
        problem: &'static str,
    },
    /// The wrapping key does not unwrap the dataset's keys.
    #[error("incorrect key")]
    WrongKey,
    /// The block is not what was written with this key.
    #[error("{what}: authentication failed")]
    BadMac {
        /// What was checked.
        what: &'static str,
    },
    /// The block's pointer asks for another treatment.
    #[error("the block is not {wanted}")]
    Protection {
        /// What the operation is for.
        wanted: &'static str,
    },
    /// The cipher cannot take so many bytes at once.
    #[error("{length} bytes are too many for the cipher")]
    TooLong {
        /// Bytes of the message.
        length: usize,
    },
    /// The system has no random numbers for a salt or an IV.
    #[error("no random numbers")]
    NoRandomNumbers,
    /// The block's structure does not tell which parts are encrypted.
    #[error(transparent)]
    Format(#[from] FormatError),
}
