//! Why part of the MOS cannot be read.

use rzfs_dmu::DmuError;
use rzfs_format::{FormatError, ObjectId, ObjsetId};
use rzfs_zap::ZapError;

/// Whether a ZAP is of another kind than those of the pool's own are.
const fn is_other_zap(error: &ZapError<DmuError>) -> bool {
    matches!(error, ZapError::KeyKind | ZapError::ValueKind | ZapError::UnknownFlags(_))
}

const EIO: i32 = 5;

/// Why part of the MOS cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MosError {
    /// An object cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// An object violates the format, or contradicts another one.
    #[error("object {object} of the MOS: {source}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// The error.
        source: FormatError,
    },
    /// The object directory lacks an entry that every pool of this kind has.
    #[error("the object directory has no {name}")]
    NoEntry {
        /// The entry.
        name: &'static str,
    },
    /// An entry of a ZAP is invalid.
    #[error("{name} in object {object} of the MOS: {problem}")]
    Entry {
        /// The object.
        object: ObjectId,
        /// The entry.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// A list is longer than in any real pool, and too long to be read into memory.
    #[error("object {object} of the MOS has more than {limit} {what}")]
    TooMany {
        /// The object.
        object: ObjectId,
        /// The kind of element.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl MosError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Dmu(source) => source.errno(),
            _ => EIO,
        }
    }

    /// Whether the pool is permanently damaged: waiting for devices is useless.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            // The pool's own structures refer to a missing or wrong object.
            Self::Dmu(
                DmuError::NotAllocated { .. }
                | DmuError::InvalidObject { .. }
                | DmuError::WrongType { .. },
            ) => true,
            Self::Dmu(DmuError::Zap { source, .. }) if is_other_zap(source) => true,
            Self::Dmu(error) => error.is_damage(),
            Self::Corrupt { .. } | Self::Entry { .. } => true,
            Self::NoEntry { .. } | Self::TooMany { .. } => false,
        }
    }

    /// Whether a ZAP has no place for an entry, as others have the same hash: real ones have.
    pub(crate) fn is_of_full_zap(&self) -> bool {
        let Self::Dmu(DmuError::Zap { source, .. }) = self else { return false };
        matches!(&**source, ZapError::Full | ZapError::TooBig)
    }

    /// Adds the location to a format error.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { object, source }
    }

    /// Adds the location to a ZAP error.
    pub(crate) fn zap(object: ObjectId) -> impl Fn(ZapError<DmuError>) -> Self {
        move |source| {
            DmuError::Zap { objset: ObjsetId::MOS, object, source: Box::new(source) }.into()
        }
    }
}
