//! The allocator of a pool that is open for writing: where blocks go, what is free, and its books.
//!
//! ```text
//! Allocator
//!   ├ Topology     vdevs ── metaslabs         classes ── groups (one vdev, one class)
//!   ├ rotors       whose turn it is, for each class and allocator
//!   └ books        which log each metaslab needs; only the thread that syncs has them
//! ```
//! Any thread allocates, in open and in syncing context: [`Allocator::allocate`]. Freeing and
//! recording are done by the syncing thread. It holds a token for each step, so that steps cannot
//! be mixed up:
//!
//! ```text
//! begin_sync(txg) ─> SyncPass ── free, sync ──> SyncPass ── ... ── finish ──> FinishedTxg
//!                                                    (uberblock is durable)  committed ─┘
//! ```
//! Every txg goes through all of them, even one that changes nothing, since they count how long
//! freed space has to wait. A dropped token means that the txg failed: no other begins until the
//! pool is reopened.
//!
//! # Objects
//! Objects of the MOS that the [`SyncStore`](crate::SyncStore) is asked to create:
//!
//! | object | type | block, indirect | bonus | linked by |
//! |---|---|---|---|---|
//! | metaslab array | 2 object array | 512, 2^17 | none | `metaslab_array` of the vdev's configuration |
//! | space map of a metaslab | 8 space map | 128 KiB with logs, else 16 KiB; 2^14 | type 7, 320 bytes, or 24 without `spacemap_histogram` | the metaslab array |
//! | array of unflushed txgs | 0xc3 uint64 metadata | 128 KiB, 2^17 | none | `com.delphix:ms_unflushed_phys_txgs` of the vdev's ZAP |
//! | log space map | 8 | 128 KiB, 2^14 | type 7, 320 or 24 bytes | ZAP of logs: key is the txg in lower-case hex |
//! | checkpoint space map | 8 | 128 KiB, 2^14 | type 7, 320 or 24 bytes | `com.delphix:pool_checkpoint_sm` of the vdev's ZAP |
//! | obsolete space map | 8 | 128 KiB, 2^14 | type 7, 320 or 24 bytes | `com.delphix:indirect_obsolete_sm` of the vdev's ZAP |
//!
//! The ZAP of logs (type 0xc4, linked by `com.delphix:log_spacemap_zap` of the object directory) is
//! made by the store with its first log. All counts of features are changed through
//! [`SpaceDirectory::count_feature`](crate::SpaceDirectory::count_feature), never by the store
//! itself.

mod booking;
mod books;
mod checkpoint;
mod class;
mod condense;
mod context;
mod devices;
mod flush;
mod free;
mod group;
mod hold;
mod load;
mod metaslab;
mod place;
mod record;
mod removal;
mod request;
mod rest;
mod rotor;
mod space;
mod sync;
mod topology;
mod trim;
mod tunables;
mod usage;
mod vdevs;

pub use checkpoint::Discard;
pub use context::SpaceReader;
pub use devices::{Devices, SpacePiece, Writability};
pub use group::SpaceTotals;
pub use hold::TxgHold;
pub use record::Autotrim;
pub use request::{AllocationRequest, ClassKind, Content, NoSpace, Placement};
pub use sync::{Activity, FinishedTxg, SyncPass};
pub use topology::Allocating;
pub use trim::{FreePart, FreeStep, TrimBatch};
pub use tunables::{LogFeature, ObsoleteFeature, SpaceFeatures, SpaceTunables};
pub use usage::{DedupRoom, LogStatus, PoolUsage, VdevUsage};
pub use vdevs::{Availability, Bias, VdevRole};

use crate::layout::LayoutLimits;
use crate::log::book::{LogBook, MetaslabId};
use crate::{MetaslabError, RangeTree};
use books::SyncBooks;
use context::Context;
use hold::Holds;
use parking_lot::{Mutex, RwLock};
use rotor::Rotor;
use rzfs_format::{Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use topology::Topology;

/// The parts of an allocator.
pub struct AllocatorOptions {
    /// Parameters.
    pub tunables: SpaceTunables,
    /// What may be written.
    pub features: SpaceFeatures,
    /// The vdevs.
    pub devices: Arc<dyn Devices>,
    /// Reads space maps when metaslabs are loaded, from any thread.
    pub reader: SpaceReader,
}

impl std::fmt::Debug for AllocatorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocatorOptions")
            .field("tunables", &self.tunables)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

/// A request to flush more than is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlushRequest {
    /// Everything, in the next txg that is synced: the pool is exported.
    All,
}

/// The space of a pool.
pub struct Allocator {
    context: Context,
    topology: RwLock<Arc<Topology>>,
    /// By allocator and class.
    rotors: Vec<[Mutex<Rotor>; 5]>,
    /// State of the syncing thread; taken out while a txg is synced.
    books: Mutex<Option<Box<SyncBooks>>>,
    /// Freed blocks born up to this txg are kept for the checkpoint; 0 for none.
    checkpoint: AtomicU64,
    /// Obsolete parts of removed vdevs that are not recorded yet.
    obsolete: Mutex<BTreeMap<VdevId, RangeTree>>,
    autotrim: Mutex<Autotrim>,
    /// Counts large allocations, some of which are made to fail for tests.
    forced: AtomicU64,
    log_status: Mutex<LogStatus>,
    flush_all: Mutex<Option<FlushRequest>>,
    holds: Arc<Holds>,
    /// Metaslabs of new vdevs, usable after the txg.
    arrivals: Mutex<BTreeSet<MetaslabId>>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("topology", &self.topology()).finish_non_exhaustive()
    }
}

impl Allocator {
    /// The allocator of a pool without vdevs.
    #[must_use]
    pub fn new(options: AllocatorOptions) -> Self {
        let AllocatorOptions { tunables, features, devices, reader } = options;
        let book = LogBook::new(tunables.logs);
        let context = Context::new(tunables, features, devices, reader);
        Self {
            rotors: (0..tunables.num_allocators.max(1)).map(|_| Default::default()).collect(),
            context,
            topology: RwLock::default(),
            books: Mutex::new(Some(Box::new(SyncBooks::new(book)))),
            checkpoint: AtomicU64::new(0),
            obsolete: Mutex::default(),
            autotrim: Mutex::new(Autotrim::Off),
            forced: AtomicU64::new(0),
            log_status: Mutex::default(),
            flush_all: Mutex::default(),
            holds: Arc::default(),
            arrivals: Mutex::default(),
        }
    }

    /// Whether an allocation or free in a txg is not recorded: it needs another pass.
    #[must_use]
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.context.is_dirty(txg) || self.has_obsolete()
    }

    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.read())
    }

    /// Sets the pool's features, effective from the next txg that begins to sync.
    pub fn set_features(&self, features: SpaceFeatures) {
        *self.context.features.write() = features;
    }

    /// How large the metaslabs of new vdevs are.
    #[must_use]
    pub const fn layout(&self) -> &LayoutLimits {
        &self.context.tunables.layout
    }

    /// The pool's features that matter here.
    #[must_use]
    pub fn features(&self) -> SpaceFeatures {
        self.context.features()
    }

    /// Whether freed ranges are remembered for TRIM (the property `autotrim`).
    pub fn set_autotrim(&self, autotrim: Autotrim) {
        *self.autotrim.lock() = autotrim;
    }

    /// Holds the blocks of a txg on disk. It must be the last one when this is called, or one that
    /// is already held.
    #[must_use]
    pub fn hold(&self, txg: Txg) -> TxgHold {
        self.holds.hold(txg)
    }

    /// Records that part of a removed vdev is obsolete.
    fn mark_obsolete(&self, vdev: VdevId, range: Range<u64>) -> Result<(), MetaslabError> {
        if self.features().obsolete == ObsoleteFeature::Disabled {
            return Ok(());
        }
        let mut obsolete = self.obsolete.lock();
        let tree = obsolete.entry(vdev).or_insert_with(|| RangeTree::new(0..u64::MAX, 0));
        let offset = range.start;
        tree.add(range).map_err(|source| MetaslabError::Mapping {
            vdev,
            offset,
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests;
