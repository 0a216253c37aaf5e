//! The block cache and prefetching into it.
//!
//! * [`AdaptiveCache`] holds blocks by *identity* ([`BlockKey`]): clones and snapshots share them.
//! * [`PrefetchStreams`] predict the blocks an object's reader will need next.
#![forbid(unsafe_code)]

mod adaptive;
mod block;
mod hashed;
mod prefetch;
mod slab;

pub use adaptive::{
    AdaptiveCache, ArcOptions, ArcStats, ArcTunables, Arrival, Lookup, Purpose, Retention, Ticket,
};
pub use block::{BlockKey, BlockKind, Weighted};
pub use prefetch::{
    AccessOutcome, ActivePrefetch, ObjectShape, Prefetch, PrefetchActivity, PrefetchStreams,
    PrefetchTunables, ZfetchStats,
};
