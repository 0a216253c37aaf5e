//! The view of shared blocks for threads that change files.

use crate::live::LiveError;
use crate::live::space::clone_table::{CloneTables, key_of};
use crate::live::space::dedup::DedupTables;
use crate::mos::MosSource;
use crate::mos::features::Features;
use crate::mos::live::LiveMos;
use parking_lot::RwLock;
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, ObjectId, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether blocks can be shared, and the space saved, as of the last txg on disk.
#[derive(Debug)]
pub(crate) struct Sharing {
    mos: Arc<LiveMos>,
    dedup: Arc<DedupTables>,
    /// The entries of the clone tables.
    entries: RwLock<BTreeMap<VdevId, ObjectId>>,
    saved: AtomicU64,
    can_clone: AtomicBool,
}

impl Sharing {
    /// For a pool whose shared blocks are not loaded yet: [`Sharing::follow`].
    pub(crate) fn new(mos: &Arc<LiveMos>, dedup: &Arc<DedupTables>) -> Self {
        Self {
            mos: Arc::clone(mos),
            dedup: Arc::clone(dedup),
            entries: RwLock::default(),
            saved: AtomicU64::new(0),
            can_clone: AtomicBool::new(false),
        }
    }

    /// Updates the state from a txg.
    pub(crate) fn follow(&self, clones: &CloneTables, features: &Features) {
        let saved = clones.saved().saturating_add(self.dedup.saved());
        self.saved.store(saved, Ordering::Relaxed);
        self.dedup.follow(features);
        self.can_clone.store(features.is_enabled(Feature::BlockCloning), Ordering::Relaxed);
        let entries = clones.entries();
        if *self.entries.read() != entries {
            *self.entries.write() = entries;
        }
    }

    /// Looks up where another reference to a block is to be counted. A reference that damage keeps
    /// from being counted leaks the block, but only as long as the damage lasts: once the table is
    /// readable again, the block is freed too early.
    ///
    /// # Errors
    /// It cannot be counted.
    pub(crate) fn look_up(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        if pointer.is_dedup() {
            self.dedup.look_up(pointer)?;
        }
        let Some(dva) = key_of(pointer) else { return Ok(()) };
        let entries = self.entries.read().get(&dva.vdev()).copied();
        if let Some(entries) = entries {
            self.mos.lookup(entries, [dva.offset()].as_slice())?;
        }
        Ok(())
    }

    /// Bytes saved by sharing.
    pub(crate) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Whether blocks can be cloned.
    pub(crate) fn can_clone(&self) -> bool {
        self.can_clone.load(Ordering::Relaxed)
    }
}
