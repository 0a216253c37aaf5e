//! Space accounting of an OpenZFS pool: range trees, space maps, metaslabs, log space maps.
//!
//! Every top-level vdev is cut into metaslabs, and each metaslab's space map says what of it is
//! allocated. This crate reads them through [`SpaceMapStore`] and knows nothing of object sets:
//!
//! ```text
//! PoolMetaslabs ── VdevMetaslabs ── Metaslab ── SpaceMap ── SpaceMapStore
//!      └ replay of the log space maps    └ RangeTree: what is allocated, what only the logs know
//! Allocator ── classes, groups, metaslabs that are loaded ── SpaceMap ── SyncStore
//! ```
//! A pool that is open for writing hands what was read to an [`Allocator`], which gives space
//! away, takes it back and keeps the maps true.
//!
//! Maps are written through [`SyncStore`], by whoever syncs a txg: [`space_map::append`] is the one
//! place that adds words to a map. [`memory::MemoryStore`] is such a store in memory, for tests and
//! benches.
//!
//! Maps are hostile: their entries are replayed strictly, so that an entry which allocates what
//! is allocated, or lies outside of its metaslab, is an error. Memory is bounded by the segments
//! that an area can have, 8 to 16 bytes each, and 1 MiB for reading.
#![forbid(unsafe_code)]

pub mod allocator;
mod error;
pub mod fragmentation;
pub mod free_space;
pub mod layout;
pub mod log;
pub mod memory;
pub mod metaslab;
pub mod range_tree;
pub mod space_map;
pub mod store;
pub mod weight;

pub use allocator::{Allocator, AllocatorOptions};
pub use error::{MetaslabError, StoreError};
pub use free_space::FreeSpace;
pub use log::{LoggedVdev, PoolMetaslabs};
pub use metaslab::{Metaslab, VdevGeometry, VdevMetaslabs};
pub use range_tree::{RangeError, RangeTree};
pub use space_map::SpaceMap;
pub use store::{
    CountChange, CountedFeature, LogMap, NewObject, SpaceDirectory, SpaceMapStore,
    SpaceMapStoreMut, StoredObject, SyncStore, VdevObjects,
};
