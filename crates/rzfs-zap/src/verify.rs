//! Holds the blocks of a ZAP against every rule of the format (spec 03, section 12.10).

mod fat;

use rzfs_format::zap::micro::{ENTRY_SIZE, MicroBlock};
use rzfs_format::zap::{HashBits, ZapForm, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::{ZapBlocks, ZapError};

/// Most violations that are listed.
const MOST: usize = 100;

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

/// What a ZAP's blocks break; empty when they are sound. After a hundred violations no more are
/// looked for.
///
/// # Errors
/// When a block cannot be read.
pub fn verify<B: ZapBlocks>(blocks: &B) -> Result<Vec<Violation>, B::Error> {
    let mut found = Vec::new();
    let (bytes, order) = blocks.read_block(BlockId(0))?;
    match ZapForm::of_block(&bytes, order) {
        Ok(ZapForm::Micro) => {
            if blocks.block_count() != 1 {
                let source = FormatError::field("microzap", "blocks", blocks.block_count());
                found.push(Violation::Structure { block: BlockId(0), source });
            }
            micro(&bytes, order, &mut found)
                .unwrap_or_else(|source| found.push(Violation::in_first_block(source)));
        }
        Ok(ZapForm::Fat) => fat::verify(blocks, bytes, order, &mut found)?,
        Err(source) => found.push(Violation::in_first_block(source)),
    }
    found.truncate(MOST);
    Ok(found)
}

impl Violation {
    const fn in_first_block(source: FormatError) -> Self {
        Self::Structure { block: BlockId(0), source }
    }

    /// The violation that made an operation fail, unless the blocks failed it.
    fn of<E>(error: ZapError<E>, block: BlockId) -> Result<Self, E> {
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

/// An entry's place in the order of cookies, and its key as it is stored.
type Placed = (ZapHash, u32, Vec<u8>);

/// Looks for entries of one block that share a position or a key.
fn check_distinct(block: BlockId, mut entries: Vec<Placed>, found: &mut Vec<Violation>) {
    entries.sort_unstable();
    for pair in entries.windows(2) {
        let [(hash, cd, _), (next, next_cd, _)] = pair else { continue };
        if (hash, cd) == (next, next_cd) {
            found.push(Violation::Position { block, hash: *hash, cd: *cd });
        }
    }
    entries.sort_unstable_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
    for pair in entries.windows(2) {
        let [(hash, _, key), (next, _, next_key)] = pair else { continue };
        if (hash, key) == (next, next_key) {
            found.push(Violation::Key { block, hash: *hash });
        }
    }
}

fn micro(bytes: &[u8], order: ByteOrder, found: &mut Vec<Violation>) -> Result<(), FormatError> {
    let view = MicroBlock::decode(bytes, order)?;
    let mut entries = Vec::new();
    for (slot, raw) in bytes.chunks_exact(ENTRY_SIZE).skip(1).enumerate() {
        match view.entry(slot) {
            Ok(Some(entry)) => {
                let normalized = view.normalization().normalize(entry.name);
                let hash = ZapHash::of_name(view.salt(), &normalized, HashBits::Bits28);
                entries.push((hash, entry.cd, entry.name.to_vec()));
            }
            Ok(None) if raw.iter().any(|&byte| byte != 0) => {
                let source = FormatError::field("microzap", "remains of a free entry", slot as u64);
                found.push(Violation::in_first_block(source));
            }
            Ok(None) => {}
            Err(source) => found.push(Violation::in_first_block(source)),
        }
    }
    check_distinct(BlockId(0), entries, found);
    Ok(())
}
