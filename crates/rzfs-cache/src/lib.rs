//! Caches of blocks: the adaptive replacement cache and the caches above it.
//!
//! * [`AdaptiveCache`] holds blocks by *identity* ([`BlockKey`]): clones and snapshots share them.
//! * [`PositionCache`] holds blocks by *position* in an object: found without a block pointer.
//! * [`PrefetchStreams`] says which blocks an object's reader will want next.
#![forbid(unsafe_code)]

mod adaptive;
mod block;
mod clock;
mod counters;
mod hashed;
mod position;
mod prefetch;
mod slab;

pub use adaptive::{
    AdaptiveCache, ArcOptions, ArcStats, Arrival, Lookup, Purpose, Retention, Ticket,
};
pub use block::{BlockKey, BlockKind, Weighted};
pub use clock::Clock;
pub use position::{DbufStats, PositionCache, PositionOptions, Stay};
pub use prefetch::{
    AccessOutcome, ActivePrefetch, ObjectShape, Prefetch, PrefetchActivity, PrefetchStreams,
    PrefetchTunables, ZfetchStats,
};
