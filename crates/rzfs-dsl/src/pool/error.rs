//! Why part of an open pool cannot be read.

use crate::mos::error::MosError;
use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_metaslab::MetaslabError;

const EIO: i32 = 5;

/// Why part of an open pool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The MOS cannot be read.
    #[error(transparent)]
    Mos(#[from] MosError),
    /// The pool has an invalid name.
    #[error("the pool is called {name:?}, which is no pool's name")]
    ImpossibleName {
        /// The name.
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
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Mos(source) => source.errno(),
            Self::ImpossibleName { .. } | Self::Space(_) => EIO,
        }
    }

    /// Whether the pool is permanently damaged: waiting for devices is useless.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Mos(error) if error.is_damage())
    }

    /// Adds the location to a format error.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| MosError::Corrupt { object, source }.into()
    }
}
