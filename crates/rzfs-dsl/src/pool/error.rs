//! Why something of an open pool cannot be read.

use crate::mos::error::MosError;
use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_metaslab::MetaslabError;

const EIO: i32 = 5;

/// Why something of an open pool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Something of the MOS cannot be read.
    #[error(transparent)]
    Mos(#[from] MosError),
    /// The pool is called what no pool can be called.
    #[error("the pool is called {name:?}, which is no pool's name")]
    ImpossibleName {
        /// What it is called.
        name: String,
    },
    /// Space accounting is damaged.
    #[error(transparent)]
    Space(#[from] MetaslabError),
}

impl From<DmuError> for PoolError {
    fn from(error: DmuError) -> Self {
        Self::Mos(error.into())
    }
}

impl PoolError {
    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Mos(source) => source.errno(),
            Self::ImpossibleName { .. } | Self::Space(_) => EIO,
        }
    }

    /// Whether something of the pool is damaged for good: waiting for devices is of no use.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Mos(error) if error.is_damage())
    }

    /// Wraps an error of the format with its place.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| MosError::Corrupt { object, source }.into()
    }
}
