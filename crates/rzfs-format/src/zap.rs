//! Blocks of the ZFS attribute processor: the on-disk maps from names to numbers (spec 03,
//! section 12).
//!
//! A ZAP is an object. Its first block says which form it has: a [`micro`] ZAP is one block of
//! 64-byte entries; a fat ZAP is a [`fat`] header with a table of pointers to [`leaf`] blocks, a
//! hash table on disk.

pub mod fat;
pub mod hash;
pub mod leaf;
pub mod micro;
pub mod name;
mod swap;

pub use hash::{HashBits, ZapHash};
pub use name::Normalization;
pub use swap::swap_block;

use crate::endian::Fields;
use crate::{ByteOrder, FormatError};

/// First word of a fat ZAP's leaf.
pub const BLOCK_TYPE_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's header.
pub const BLOCK_TYPE_HEADER: u64 = (1 << 63) + 1;
/// First word of a microzap.
pub const BLOCK_TYPE_MICRO: u64 = (1 << 63) + 3;

/// Most bytes of a name, the closing NUL included, when `longname` is in use; 256 otherwise.
pub const MAX_NAME_SIZE: usize = 1024;
/// Most bytes of a value.
pub const MAX_VALUE_SIZE: usize = 8192;

/// The form of a ZAP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZapForm {
    /// One block of fixed-size entries.
    Micro,
    /// A hash table over many blocks.
    Fat,
}

impl ZapForm {
    /// The form that the first block of an object announces.
    pub fn of_block(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        match Fields::new("ZAP", bytes, order).u64(0)? {
            BLOCK_TYPE_MICRO => Ok(Self::Micro),
            BLOCK_TYPE_HEADER => Ok(Self::Fat),
            other => Err(FormatError::field("ZAP", "block type", other)),
        }
    }
}

/// Size of the integers of a value or of a binary key, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IntegerSize {
    /// Bytes.
    One = 1,
    /// 16-bit numbers.
    Two = 2,
    /// 32-bit numbers.
    Four = 4,
    /// 64-bit numbers.
    Eight = 8,
}

impl IntegerSize {
    /// The size with this number of bytes.
    pub fn from_bytes(bytes: u8) -> Result<Self, FormatError> {
        Ok(match bytes {
            1 => Self::One,
            2 => Self::Two,
            4 => Self::Four,
            8 => Self::Eight,
            _ => return Err(FormatError::field("ZAP entry", "integer size", bytes)),
        })
    }

    /// Bytes of one integer.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self as usize
    }
}
