//! Blocks of the ZFS attribute processor (spec 03, section 12).
//!
//! A ZAP maps names (or arrays of 64-bit words) to arrays of integers. A *micro* ZAP is one block
//! of 64-byte entries; a *fat* one has a header with a table of pointers, by the leading bits of a
//! key's hash, to leaves with the entries.

pub mod fat;
mod hash;
pub mod leaf;
pub mod micro;
pub mod name;

pub use hash::{HashBits, hash_name, hash_words};

use crate::FormatError;
use crate::endian::{ByteOrder, Fields};

/// Most bytes of a value.
pub const MAX_VALUE_SIZE: usize = 8192;

const LEAF: u64 = 1 << 63;
const HEADER: u64 = (1 << 63) + 1;
const MICRO: u64 = (1 << 63) + 3;

/// What a block of a ZAP says that it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockKind {
    /// The one block of a micro ZAP.
    Micro,
    /// The first block of a fat ZAP.
    Header,
    /// A leaf of a fat ZAP.
    Leaf,
}

impl BlockKind {
    /// Reads the first word of a block.
    pub fn of(block: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        match Fields::new("ZAP", block, order).u64(0)? {
            MICRO => Ok(Self::Micro),
            HEADER => Ok(Self::Header),
            LEAF => Ok(Self::Leaf),
            other => Err(FormatError::field("ZAP", "block type", other)),
        }
    }
}
