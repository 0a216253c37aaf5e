//! Why a dataset cannot be found or opened.

use crate::mos::error::MosError;
use rzfs_codec::crypto::CryptoError;
use rzfs_dmu::DmuError;
use rzfs_format::ObjectId;

/// Why a dataset cannot be found or opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatasetError {
    /// The MOS, or one of the dataset's own objects, cannot be read.
    #[error(transparent)]
    Mos(#[from] MosError),
    /// No dataset has this name.
    #[error("dataset '{name}' does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// A directory or snapshot has a name that no dataset can have.
    #[error("object {object} of the MOS is called {name:?}, which is no dataset's name")]
    ImpossibleName {
        /// The name.
        name: String,
        /// The object with that name.
        object: ObjectId,
    },
    /// The dataset is encrypted and its key is not loaded.
    #[error("the key of '{root}' is not loaded")]
    KeyNotLoaded {
        /// The encryption root.
        root: String,
    },
    /// The dataset was encrypted by a development version, whose MAC format is obsolete.
    #[error("'{name}' has an encryption that can only be read")]
    OldEncryption {
        /// The dataset.
        name: String,
    },
    /// The dataset is being received, or a receive of it did not finish.
    #[error("'{name}' was not received to its end")]
    Inconsistent {
        /// The dataset.
        name: String,
    },
    /// A key was offered for a dataset that is not encrypted.
    #[error("'{name}' is not encrypted")]
    NotEncrypted {
        /// The dataset.
        name: String,
    },
    /// The key does not match this dataset.
    #[error("the key offered for '{root}' is not right: {source}")]
    WrongKey {
        /// The encryption root.
        root: String,
        /// The error of the cipher.
        source: CryptoError,
    },
}

impl From<DmuError> for DatasetError {
    fn from(error: DmuError) -> Self {
        Self::Mos(error.into())
    }
}

impl DatasetError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const EACCES: i32 = 13;
        const EBUSY: i32 = 16;
        const EINVAL: i32 = 22;
        const EROFS: i32 = 30;
        match self {
            Self::Mos(source) => source.errno(),
            Self::NotFound { .. } => ENOENT,
            Self::ImpossibleName { .. } => EIO,
            Self::KeyNotLoaded { .. } | Self::WrongKey { .. } => EACCES,
            Self::Inconsistent { .. } => EBUSY,
            Self::NotEncrypted { .. } => EINVAL,
            Self::OldEncryption { .. } => EROFS,
        }
    }
}
