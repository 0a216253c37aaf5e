//! Why a ZAP cannot be read.

use rzfs_format::{BlockId, FormatError};

/// Why a ZAP cannot be read; `E` is the error of its blocks.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ZapError<E> {
    /// A block cannot be read.
    #[error(transparent)]
    Blocks(E),
    /// A block is damaged.
    #[error("ZAP block {}: {source}", block.0)]
    Corrupt {
        /// The block.
        block: BlockId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A name was looked up in a ZAP whose keys are words, or the reverse.
    #[error("the ZAP has keys of another kind")]
    KeyKind,
    /// A value was wanted as a single 64-bit integer and is something else.
    #[error("the value is not a 64-bit integer")]
    ValueKind,
    /// Names were to be matched by their normalised forms in a ZAP that has none.
    #[error("the ZAP does not normalise names")]
    NotNormalizing,
}

impl<E> ZapError<E> {
    pub(crate) const fn corrupt(block: BlockId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { block, source }
    }
}
