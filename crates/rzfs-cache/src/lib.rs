//! Caches of blocks: the adaptive replacement cache and the caches above it.
//!
//! * [`AdaptiveCache`] holds blocks by *identity* ([`BlockKey`]): clones and snapshots share them.
#![forbid(unsafe_code)]

mod adaptive;
mod block;
mod clock;
mod counters;
mod hashed;
mod slab;

pub use adaptive::{
    AdaptiveCache, ArcOptions, ArcStats, Arrival, Lookup, Purpose, Retention, Ticket,
};
pub use block::{BlockKey, BlockKind, Weighted};
pub use clock::Clock;
