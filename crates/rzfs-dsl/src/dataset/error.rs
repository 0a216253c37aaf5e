//! Why a dataset cannot be found or opened.

use rzfs_codec::crypto::CryptoError;
use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId};

/// Why a dataset cannot be found or opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatasetError {
    /// An object of the MOS cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// No dataset has this name.
    #[error("dataset '{name}' does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// An object of the MOS contradicts another one.
    #[error("object {object} of the MOS: {source}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A directory or snapshot is called what no dataset can be called.
    #[error("object {object} of the MOS is called {name:?}, which is no dataset's name")]
    ImpossibleName {
        /// What it is called.
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
    /// The dataset was encrypted by a development version, whose MACs nobody writes any more.
    #[error("'{name}' has an encryption that can only be read")]
    OldEncryption {
        /// The dataset.
        name: String,
    },
    /// A key was offered for a dataset that is not encrypted.
    #[error("'{name}' is not encrypted")]
    NotEncrypted {
        /// The dataset.
        name: String,
    },
    /// The key is not the one of this dataset.
    #[error("the key offered for '{root}' is not right: {source}")]
    WrongKey {
        /// The encryption root.
        root: String,
        /// What the cipher says.
        source: CryptoError,
    },
    /// A key object lacks one of its fields.
    #[error("object {object} of the MOS: the wrapped key is incomplete")]
    IncompleteKey {
        /// The key object.
        object: ObjectId,
    },
}

impl DatasetError {
    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const EACCES: i32 = 13;
        const EINVAL: i32 = 22;
        const EROFS: i32 = 30;
        match self {
            Self::Dmu(source) => source.errno(),
            Self::NotFound { .. } => ENOENT,
            Self::Corrupt { .. } | Self::ImpossibleName { .. } | Self::IncompleteKey { .. } => EIO,
            Self::KeyNotLoaded { .. } | Self::WrongKey { .. } => EACCES,
            Self::NotEncrypted { .. } => EINVAL,
            Self::OldEncryption { .. } => EROFS,
        }
    }
}
