//! Why something of an open pool cannot be read.

use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_metaslab::MetaslabError;

const EIO: i32 = 5;

/// Why something of an open pool cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// An object of the MOS cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// An object of the MOS holds what the format does not allow.
    #[error("object {object} of the MOS: {source}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The object directory lacks an entry that every pool of this kind has.
    #[error("the object directory has no {name}")]
    NoEntry {
        /// The entry.
        name: &'static str,
    },
    /// The pool is called what no pool can be called.
    #[error("the pool is called {name:?}, which is no pool's name")]
    ImpossibleName {
        /// What it is called.
        name: String,
    },
    /// An entry of the object directory, or of a vdev's ZAP, is not what its name says.
    #[error("{name} in object {object} of the MOS: {problem}")]
    Entry {
        /// The object.
        object: ObjectId,
        /// The entry.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is more than any real pool has, and more than is read into memory.
    #[error("object {object} of the MOS has more than {limit} {what}")]
    TooMany {
        /// The object.
        object: ObjectId,
        /// Of what there is too much.
        what: &'static str,
        /// How much is accepted.
        limit: usize,
    },
    /// Space accounting is damaged.
    #[error(transparent)]
    Space(#[from] MetaslabError),
}

impl PoolError {
    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Dmu(source) => source.errno(),
            _ => EIO,
        }
    }

    /// Whether something of the pool is damaged for good: waiting for devices is of no use.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            // The pool's own structures name what is not there.
            Self::Dmu(DmuError::NotAllocated { .. } | DmuError::InvalidObject { .. }) => true,
            Self::Dmu(error) => error.is_damage(),
            Self::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// Wraps an error of the format with its place.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { object, source }
    }
}
