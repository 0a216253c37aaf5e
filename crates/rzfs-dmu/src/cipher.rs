//! What reading needs of the key of an encrypted dataset.

use rzfs_format::{BlockPointer, ByteOrder};
use std::fmt;
use std::sync::Arc;

/// Why a block cannot be decrypted or authenticated.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct CipherError(pub Arc<dyn std::error::Error + Send + Sync>);

/// Decrypts and authenticates the blocks of one dataset.
pub trait BlockCipher: Send + Sync + fmt::Debug {
    /// Decrypts the stored bytes of an encrypted block in place and verifies their MAC.
    fn decrypt_block(&self, pointer: &BlockPointer, data: &mut [u8]) -> Result<(), CipherError>;

    /// Verifies the MAC over the stored bytes of a block that is not encrypted.
    fn authenticate(&self, pointer: &BlockPointer, stored: &[u8]) -> Result<(), CipherError>;

    /// Verifies the digest of the MACs in an indirect block.
    fn verify_indirect(&self, pointer: &BlockPointer, data: &[u8]) -> Result<(), CipherError>;

    /// Verifies the MACs in an objset block.
    fn verify_objset(&self, data: &[u8], order: ByteOrder) -> Result<(), CipherError>;
}

/// The key of an encrypted dataset.
pub type DatasetKey = dyn BlockCipher;
