//! The error of a ZAP.

use rzfs_format::{BlockId, FormatError};

/// Why a ZAP could not be opened, read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZapError<E> {
    /// A block could not be read or changed.
    #[error(transparent)]
    Blocks(E),
    /// A block is not what it has to be.
    #[error("block {block} of the ZAP: {source}")]
    Corrupt {
        /// The block.
        block: BlockId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The key looked up is a string and the ZAP's keys are numbers, or the other way round.
    #[error("the ZAP has keys of another kind")]
    KeyKind,
    /// A normalised match was asked of a ZAP that does not normalise names.
    #[error("the ZAP does not normalise names")]
    NotNormalizing,
    /// A value was wanted as a 64-bit integer and is something else.
    #[error("the value is not a 64-bit integer")]
    ValueKind,
    /// A key was to be added that is there already, or a name that matches one that is there.
    #[error("the key is there already")]
    Exists,
    /// The key is empty, contains NUL or is longer than keys may be.
    #[error("the key is not one that the ZAP can have")]
    BadKey,
    /// The value has more than 8192 bytes, or it and its key do not fit in a leaf.
    #[error("the entry is too big")]
    TooBig,
    /// More entries share a hash than fit in one leaf.
    #[error("too many keys have the same hash")]
    Full,
    /// The blocks of a new ZAP cannot have this size, or it cannot have these flags.
    #[error("the ZAP cannot be made: {0}")]
    BadShape(FormatError),
    /// The ZAP has flags that are unknown, so it must not be changed.
    #[error("the ZAP has the unknown flags {0:#x}")]
    UnknownFlags(u64),
}

const EIO: i32 = 5;
const E2BIG: i32 = 7;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOTSUP: i32 = 95;

impl<E> ZapError<E> {
    pub(crate) const fn corrupt(block: BlockId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { block, source }
    }

    /// The same with another error of the blocks.
    pub fn map_blocks<F>(self, map: impl FnOnce(E) -> F) -> ZapError<F> {
        match self {
            Self::Blocks(error) => ZapError::Blocks(map(error)),
            Self::Corrupt { block, source } => ZapError::Corrupt { block, source },
            Self::KeyKind => ZapError::KeyKind,
            Self::NotNormalizing => ZapError::NotNormalizing,
            Self::ValueKind => ZapError::ValueKind,
            Self::Exists => ZapError::Exists,
            Self::BadKey => ZapError::BadKey,
            Self::TooBig => ZapError::TooBig,
            Self::Full => ZapError::Full,
            Self::BadShape(source) => ZapError::BadShape(source),
            Self::UnknownFlags(flags) => ZapError::UnknownFlags(flags),
        }
    }

    /// The errno that OpenZFS returns; `of_blocks` knows those of the blocks' errors.
    pub fn errno(&self, of_blocks: impl FnOnce(&E) -> i32) -> i32 {
        match self {
            Self::Blocks(error) => of_blocks(error),
            Self::Corrupt { .. } => EIO,
            Self::KeyKind | Self::ValueKind | Self::BadKey | Self::BadShape(_) => EINVAL,
            Self::NotNormalizing | Self::UnknownFlags(_) => ENOTSUP,
            Self::Exists => EEXIST,
            Self::TooBig => E2BIG,
            Self::Full => ENOSPC,
        }
    }
}
