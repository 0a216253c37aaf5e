//! Encryption and authentication of blocks (spec 04, section 19).
//!
//! ```text
//! what the user knows ── WrappingKey ── unwraps ── DatasetKey: master key, HMAC key
//!                                                    │             │
//!                            salt of a block ── block key       authenticates what stays
//!                                                    │          readable: [`ObjsetMacs`],
//!                                     encrypts the block        blocks of plain types
//! ```
//!
//! How a block is protected follows from its pointer ([`Protection`]): file contents and the
//! like are ciphertext ([`DatasetKey::decrypt_block`]), other level-0 blocks carry a MAC
//! ([`DatasetKey::authenticate_block`]), indirect blocks a digest of their children's MACs that
//! needs no key ([`verify_indirect`]), and the objset block has two MACs inside
//! ([`DatasetKey::verify_objset`]).
//!
//! [`Protection`]: rzfs_format::block_pointer::Protection

mod aead;
mod ccm;
mod dataset_key;
mod layout;
mod nonce;
mod objset;
mod record;
mod wrapping_key;

pub use dataset_key::{DatasetKey, WrappedKeys};
pub use objset::ObjsetMacs;
pub use record::{CryptoVersion, indirect_mac, verify_indirect};
pub use wrapping_key::{KeyFormat, Pbkdf2, WrappingKey};

use rzfs_format::FormatError;
use zeroize::Zeroizing;

/// A key in a place of its own: whoever has it is moved without it, so that no copy is left where
/// nobody wipes it.
type KeyBytes<const N: usize> = Box<Zeroizing<[u8; N]>>;

/// A place for a key.
fn key_bytes<const N: usize>() -> KeyBytes<N> {
    Box::new(Zeroizing::new([0; N]))
}

/// Bytes of a MAC in a block pointer.
pub const MAC_SIZE: usize = 16;

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

#[cfg(test)]
mod tests;
