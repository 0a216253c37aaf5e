//! Replacing object sets: a file system is rolled back, or receives, while it is in use.
//!
//! ```text
//! txg        7 synced         8 is being synced                      9 open
//! old set    versions of 7    versions of 8: written ── superseded   versions of 9: dropped
//! new set                                            └─ opened ───── versions of 9, 10, ...
//! ```
//! The syncing thread exchanges the sets after it has written the txg's changes. So all changes of
//! this txg and of older ones have happened, and none of younger ones has, or ever will: a
//! half-done transaction leaves no traces. Handles to the old set and its objects stay valid; all
//! operations on them fail with [`DmuError::Superseded`].

use super::objset::LiveObjset;
use super::state::ObjectCore;
use crate::DmuError;
use rzfs_format::objset::ZIL_HEADER_SIZE;
use rzfs_format::{BlockPointer, Txg};
use std::sync::Weak;
use std::sync::atomic::Ordering;

impl LiveObjset {
    /// Ends the set: none of its objects exists any more for holders of a handle. Only the syncing
    /// thread may call this, after it has written the txg's changes of the set.
    ///
    /// Transactions of the open txg may have allocated blocks, or still do: see
    /// [`LiveObjset::take_orphans`].
    pub fn supersede(&self) {
        let inner = &*self.inner;
        let objects = {
            let mut objects = inner.objects.lock();
            // Objects adopted or created from now on see it, under this lock.
            inner.is_superseded.store(true, Ordering::Release);
            self.replace_synced(|synced| {
                let mut block = synced.block().clone();
                block.meta_dnode = None;
                block.accounting = [None, None, None];
                block.zil_header = [0; ZIL_HEADER_SIZE];
                synced.rewritten(BlockPointer::HOLE, block)
            });
            std::mem::take(&mut *objects)
        };
        inner.headers.clear();
        let dirty = inner.dirty.iter().flat_map(|dirty| std::mem::take(&mut *dirty.lock()));
        let dirty = dirty.map(|(_, core)| core).collect::<Vec<_>>();
        let in_memory = objects.values().filter_map(Weak::upgrade);
        for core in in_memory.chain(dirty) {
            inner.orphans.add(placed_blocks(&core));
        }
    }

    /// Whether another set has replaced it.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.inner.is_superseded.load(Ordering::Acquire)
    }

    /// Fails when another set has replaced it.
    ///
    /// # Errors
    /// [`DmuError::Superseded`].
    pub fn require_current(&self) -> Result<(), DmuError> {
        if self.is_superseded() {
            return Err(DmuError::Superseded { objset: self.id() });
        }
        Ok(())
    }

    /// Whether there are such blocks.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        !self.inner.orphans.is_empty()
    }

    /// Blocks of a superseded set that were allocated up to `txg` and have no owner: the sync of
    /// that txg frees them. There may be more while other handles exist.
    #[must_use]
    pub fn take_orphans(&self, txg: Txg) -> Vec<BlockPointer> {
        self.inner.orphans.take(txg)
    }
}

/// Ends an object; returns the blocks that were placed for it.
fn placed_blocks(core: &ObjectCore) -> Vec<BlockPointer> {
    let was = core.state.write().clear();
    was.versions.iter().flat_map(|version| version.placements.all()).collect()
}
