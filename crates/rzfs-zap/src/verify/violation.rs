//! The rules of the format that blocks can break.

use rzfs_format::zap::ZapHash;
use rzfs_format::{BlockId, FormatError};

use crate::ZapError;

/// Most violations that are listed.
pub(super) const MOST: usize = 100;

/// A rule of the format that a ZAP's blocks break.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A block, or a part of it, is not what it has to be.
    #[error("block {block}: {source}")]
    Structure {
        /// The block.
        block: BlockId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// An entry is stored with a hash that its key does not have.
    #[error("block {block}: a key with the hash {} is stored under {}", wanted.0, stored.0)]
    Hash {
        /// The block.
        block: BlockId,
        /// The hash that the entry has.
        stored: ZapHash,
        /// The hash of its key.
        wanted: ZapHash,
    },
    /// Two entries have one hash and one collision differentiator.
    #[error("block {block}: two entries have the hash {:#x} and the cd {cd}", hash.0)]
    Position {
        /// The block.
        block: BlockId,
        /// The hash.
        hash: ZapHash,
        /// The collision differentiator.
        cd: u32,
    },
    /// Two entries have one key.
    #[error("block {block}: two entries with the hash {:#x} have one key", hash.0)]
    Key {
        /// The block.
        block: BlockId,
        /// The hash.
        hash: ZapHash,
    },
    /// A pointer of the table refers to a block that is not the leaf for it.
    #[error("pointer {index} refers to block {leaf}, which is not its leaf")]
    Pointer {
        /// Its number in the table.
        index: u64,
        /// The block.
        leaf: BlockId,
    },
    /// A block of the pointer table and its copies in the next table differ.
    #[error("block {copied} of the pointer table was copied otherwise")]
    Copy {
        /// Its number in the table.
        copied: u64,
    },
    /// The header counts other leaves than there are.
    #[error("{found} leaves are there, {recorded} recorded")]
    Leaves {
        /// What the header says.
        recorded: u64,
        /// What there is.
        found: u64,
    },
    /// The header counts other entries than there are.
    #[error("{found} entries are there, {recorded} recorded")]
    Entries {
        /// What the header says.
        recorded: u64,
        /// What there is.
        found: u64,
    },
}

impl Violation {
    pub(super) const fn in_first_block(source: FormatError) -> Self {
        Self::Structure { block: BlockId(0), source }
    }

    /// The violation that made an operation fail, unless the blocks failed it.
    pub(super) fn of<E>(error: ZapError<E>, block: BlockId) -> Result<Self, E> {
        match error {
            ZapError::Blocks(error) => Err(error),
            ZapError::Corrupt { block, source } => Ok(Self::Structure { block, source }),
            _ => Ok(Self::Structure {
                block,
                source: FormatError::invalid("ZAP", "its flags are unknown"),
            }),
        }
    }
}
