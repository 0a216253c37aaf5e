//! The ZFS attribute processor: maps from names to numbers over any array of blocks (spec 03,
//! section 12).
//!
//! Directories, properties, the pool's object directory, dedup tables: what ZFS looks up by name
//! is in a ZAP. A [`Zap`] opens one over anything that hands out its blocks ([`ZapBlocks`]) and
//! looks names up, with or without regard to case and Unicode form, or lists the entries in the
//! order that OpenZFS's directory cookies follow.
//!
//! ```
//! use rzfs_zap::{MemoryBlocks, NewZap, Normalization, Zap};
//!
//! let new = NewZap::new(0x1234_5678_9abc_def1).normalization(Normalization::FOLD_CASE);
//! let mut zap = Zap::create(MemoryBlocks::empty(), &new)?;
//! zap.edit().insert("README.md", 131)?;
//! zap.edit().insert("src", 3)?;
//! assert_eq!(zap.lookup_u64("README.md")?, Some(131));
//! assert!(zap.edit().remove("src")?);
//! assert_eq!(zap.entries().count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`ZapWriter`] changes an open ZAP through the blocks of a transaction ([`ZapBlocksMut`]); the
//! blocks that it makes are those that OpenZFS makes of the same changes. [`verify`] holds blocks
//! against every rule of the format.
//!
//! A microzap's block has no order, so opening one builds an index of 8 bytes an entry in a
//! [`btree`], which changes keep up to date. A `Zap` is meant to be kept and shared as long as the
//! object is in use.
#![forbid(unsafe_code)]

mod blocks;
pub mod btree;
mod builder;
mod cookie;
mod cost;
mod create;
mod entries;
mod entry;
mod error;
mod fat;
mod first_block;
mod form;
mod matching;
mod micro;
mod statistics;
mod verify;
mod writer;
mod zap;

pub use blocks::{BlockMut, MemoryBlocks, ZapBlocks, ZapBlocksMut};
pub use builder::{BuildError, ZapBuilder};
pub use cookie::Cookie;
pub use cost::InsertCost;
pub use create::NewZap;
pub use entries::Entries;
pub use entry::{KeyRef, ZapEntry, ZapKey, ZapValue};
pub use error::ZapError;
pub use matching::Matching;
pub use rzfs_format::zap::fat::ZapFlags;
pub use rzfs_format::zap::{HashBits, IntegerSize, Normalization, ZapForm, ZapHash};
pub use statistics::{FatStatistics, Histogram, MicroStatistics, ZapStatistics};
pub use verify::{Violation, verify};
pub use writer::{Tunables, ZapWriter};
pub use zap::Zap;
