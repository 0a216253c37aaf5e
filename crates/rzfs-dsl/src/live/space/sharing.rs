//! What the threads that change files know of shared blocks.

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

/// Whether blocks can be shared, and what that saves, as of the last txg on disk.
#[derive(Debug)]
pub(crate) struct Sharing {
    mos: Arc<LiveMos>,
    dedup: Arc<DedupTables>,
    /// The entries of the tables of clones.
    entries: RwLock<BTreeMap<VdevId, ObjectId>>,
    saved: AtomicU64,
    can_clone: AtomicBool,
}

impl Sharing {
    /// Of a pool whose shared blocks are not known yet: [`Sharing::follow`].
    pub(crate) fn new(mos: &Arc<LiveMos>, dedup: &Arc<DedupTables>) -> Self {
        Self {
            mos: Arc::clone(mos),
            dedup: Arc::clone(dedup),
            entries: RwLock::default(),
            saved: AtomicU64::new(0),
            can_clone: AtomicBool::new(false),
        }
    }

    /// Takes over what a txg has made of it.
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

    /// Looks where one reference more to a block is to be counted. A reference that damage keeps
    /// from being counted leaks the block, but only for as long as the damage lasts: whoever can
    /// read the table again frees the block too early.
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

    /// Bytes that datasets have more than the pool has allocated for them.
    pub(crate) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Whether blocks can be cloned.
    pub(crate) fn can_clone(&self) -> bool {
        self.can_clone.load(Ordering::Relaxed)
    }
}
