//! Caches of blocks: the adaptive replacement cache and the caches above it.
//!
//! * [`AdaptiveCache`] holds blocks by *identity* ([`BlockKey`]): clones and snapshots share them.
#![forbid(unsafe_code)]

mod adaptive;
mod block;

pub use adaptive::AdaptiveCache;
pub use block::{BlockKey, BlockKind, Weighted};
