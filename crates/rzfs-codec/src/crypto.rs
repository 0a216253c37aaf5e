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
mod error;
mod key_format;
mod layout;
mod nonce;
mod objset;
mod record;
mod wrapping_key;

pub use dataset_key::{DatasetKey, WrappedKeys};
pub use error::CryptoError;
pub use key_format::KeyFormat;
pub use objset::ObjsetMacs;
pub use record::{CryptoVersion, indirect_mac, verify_indirect};
pub use wrapping_key::{Pbkdf2, WrappingKey};

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

#[cfg(test)]
mod tests;
