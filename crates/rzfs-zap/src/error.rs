//! The error of a ZAP.

use rzfs_format::{BlockId, FormatError};

/// Why a ZAP could not be opened or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ZapError<E> {
    /// A block could not be read.
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
}

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;

impl<E> ZapError<E> {
    pub(crate) const fn corrupt(block: BlockId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { block, source }
    }

    /// The errno that OpenZFS answers with; `of_blocks` knows those of the blocks' errors.
    pub fn errno(&self, of_blocks: impl FnOnce(&E) -> i32) -> i32 {
        match self {
            Self::Blocks(error) => of_blocks(error),
            Self::Corrupt { .. } => EIO,
            Self::KeyKind | Self::ValueKind => EINVAL,
            Self::NotNormalizing => ENOTSUP,
        }
    }
}
