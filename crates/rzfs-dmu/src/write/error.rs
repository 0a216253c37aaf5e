//! Why blocks cannot be written.

use crate::BlockError;
use rzfs_codec::crypto::CryptoError;
use rzfs_format::units::Bookmark;
use std::io;
use std::sync::Arc;

/// There is no free segment of this size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no space for {size} bytes")]
pub struct NoSpace {
    /// The requested bytes.
    pub size: u64,
}

/// Why blocks cannot be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The pool is full.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// A gang header to be rewritten cannot be read.
    #[error("{bookmark}: {source}")]
    Gang {
        /// The block.
        bookmark: Bookmark,
        /// Why.
        source: BlockError,
    },
    /// The dedup tables cannot be read.
    #[error("dedup table: {0}")]
    Dedup(Arc<dyn std::error::Error + Send + Sync>),
    /// There is no memory for the stored form.
    #[error("no memory for a block: {0}")]
    Memory(Arc<io::Error>),
    /// The block cannot be encrypted or authenticated.
    #[error("{bookmark}: {source}")]
    Crypto {
        /// The block.
        bookmark: Bookmark,
        /// Why.
        source: CryptoError,
    },
    /// The block belongs to an encrypted set whose key is not loaded.
    #[error("{bookmark}: the key is not loaded")]
    Locked {
        /// The block.
        bookmark: Bookmark,
    },
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Memory(Arc::new(error))
    }
}

impl WriteError {
    pub(super) fn of_encoding(error: EncodeError, bookmark: Bookmark) -> Self {
        match error {
            EncodeError::Memory(error) => error.into(),
            EncodeError::Crypto(source) => Self::Crypto { bookmark, source },
            EncodeError::Locked => Self::Locked { bookmark },
        }
    }
}

/// Why a block has no stored form.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncodeError {
    #[error("no memory: {0}")]
    Memory(#[from] io::Error),
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    #[error("the key is not loaded")]
    Locked,
}
