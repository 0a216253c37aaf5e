//! The cache of blocks, and what to read into it before it is asked for.
//!
//! * [`AdaptiveCache`] holds blocks by *identity* ([`BlockKey`]): clones and snapshots share them.
//! * [`PrefetchStreams`] says which blocks an object's reader will want next.
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
