//! The ZFS attribute processor over any array of blocks.
//!
//! A [`Zap`] maps names, or arrays of words, to arrays of integers. Directories, properties, and
//! most tables of a pool are ZAPs. It reads blocks through the trait [`ZapBlocks`], so it knows
//! nothing of objects:
//!
//! ```
//! use bytes::Bytes;
//! use rzfs_format::zap::micro::{self, MicroEntry, MicroHeader};
//! use rzfs_format::zap::name::Normalization;
//! use rzfs_format::{BlockId, ByteOrder};
//! use rzfs_zap::{Zap, ZapBlocks};
//!
//! struct OneBlock(Bytes);
//!
//! impl ZapBlocks for OneBlock {
//!     type Error = std::convert::Infallible;
//!     fn block_size(&self) -> usize { self.0.len() }
//!     fn block_count(&self) -> u64 { 1 }
//!     fn read_block(&self, _: BlockId) -> Result<(Bytes, ByteOrder), Self::Error> {
//!         Ok((self.0.clone(), ByteOrder::Little))
//!     }
//! }
//!
//! let mut block = vec![0; 512];
//! let header = MicroHeader { salt: 1, normalization: Normalization::NONE };
//! micro::encode_header(&mut block, ByteOrder::Little, &header);
//! let entry = MicroEntry { name: b"ROOT", value: 34, differentiator: 0 };
//! micro::encode_entry(&mut block, ByteOrder::Little, 0, &entry);
//!
//! let zap = Zap::open(OneBlock(block.into()))?;
//! assert_eq!(zap.lookup_u64(b"ROOT")?, Some(34));
//! # Ok::<(), rzfs_zap::ZapError<std::convert::Infallible>>(())
//! ```
#![forbid(unsafe_code)]

mod entry;
mod error;
mod fat;
mod micro;
mod zap;

pub use entry::{Cookie, ZapEntry, ZapKey, ZapValue};
pub use error::ZapError;
pub use zap::{Entries, Matching, Zap, ZapBlocks, ZapStatistics};
