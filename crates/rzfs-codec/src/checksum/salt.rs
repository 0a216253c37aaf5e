//! The pool's salt: the key of skein, edonr and blake3 (spec 02, sections 4.6 to 4.9).

use super::{edonr, skein};
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// 32 secret bytes of the pool, with what each salted function makes of them before the first
/// byte of a block: hashing a block starts from there.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Salt {
    key: [u8; Self::SIZE],
    skein: skein::State,
    edonr: edonr::State,
}

impl Salt {
    /// Bytes of a salt.
    pub const SIZE: usize = 32;

    /// The salt stored in the pool's object directory.
    #[must_use]
    pub fn new(key: [u8; Self::SIZE]) -> Self {
        Self { skein: skein::State::keyed(&key), edonr: edonr::State::keyed(&key), key }
    }

    /// The bytes, to store them in a new pool.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.key
    }

    pub(super) fn skein(&self, data: &[u8]) -> [u8; 32] {
        self.skein.digest(data)
    }

    pub(super) fn edonr(&self, data: &[u8]) -> [u8; 64] {
        self.edonr.digest(data)
    }

    pub(super) fn blake3(&self, data: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, data).as_bytes()
    }
}

impl Default for Salt {
    /// The salt of a pool that has none, and so no block with a salted checksum.
    fn default() -> Self {
        Self::new([0; Self::SIZE])
    }
}

impl From<[u8; Salt::SIZE]> for Salt {
    fn from(key: [u8; Salt::SIZE]) -> Self {
        Self::new(key)
    }
}

impl fmt::Debug for Salt {
    /// Does not show the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}
