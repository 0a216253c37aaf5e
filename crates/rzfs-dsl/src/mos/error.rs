//! Why something of the MOS cannot be read.

use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId, ObjsetId};
use rzfs_zap::ZapError;

const EIO: i32 = 5;

/// Why something of the MOS cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MosError {
    /// An object cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// An object holds what the format does not allow, or contradicts another one.
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
    /// An entry of a ZAP is not what its name says.
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
}

impl MosError {
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
            // The pool's own structures name what is not there, or is something else.
            Self::Dmu(
                DmuError::NotAllocated { .. }
                | DmuError::InvalidObject { .. }
                | DmuError::WrongType { .. },
            ) => true,
            Self::Dmu(error) => error.is_damage(),
            Self::Corrupt { .. } | Self::Entry { .. } => true,
            Self::NoEntry { .. } | Self::TooMany { .. } => false,
        }
    }

    /// Wraps an error of the format with its place.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { object, source }
    }

    /// Wraps an error of a ZAP with its place.
    pub(crate) fn zap(object: ObjectId) -> impl Fn(ZapError<DmuError>) -> Self {
        move |source| {
            DmuError::Zap { objset: ObjsetId::MOS, object, source: Box::new(source) }.into()
        }
    }
}
