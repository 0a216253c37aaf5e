//! Space accounting of an OpenZFS pool: range trees, space maps, metaslabs, log space maps.
//!
//! Every top-level vdev is divided into metaslabs, and each metaslab's space map records what is
//! allocated. This crate reads them through [`SpaceMapStore`] and does not depend on object sets:
//!
//! ```text
//! PoolMetaslabs ── VdevMetaslabs ── Metaslab ── SpaceMap ── SpaceMapStore
//!      └ replay of the log space maps    └ RangeTree: what is allocated, what only the logs know
//! Allocator ── classes, groups, metaslabs that are loaded ── SpaceMap ── SyncStore
//! ```
//! For a pool open for writing they are handed to an [`Allocator`], which allocates and frees space
//! and keeps the maps up to date.
//!
//! Maps are written through [`SyncStore`], by the syncing thread: only [`space_map::append`] adds
//! words to a map. [`memory::MemoryStore`] is such a store in memory, for tests and benches.
//!
//! Maps are untrusted: their entries are replayed strictly, so that a double allocation, or an
//! entry outside its metaslab, is an error. Memory is bounded by the segments that an area can
//! have, 8 to 16 bytes each, and 1 MiB for reading.
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
