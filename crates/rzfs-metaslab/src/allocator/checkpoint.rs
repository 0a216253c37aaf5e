//! The pool's checkpoint: blocks needed only by it (spec 06, section 14).
//!
//! While a pool has a checkpoint, older blocks do not become free when they die: they stay
//! allocated in their metaslab's map, and are recorded in the vdev's checkpoint map. When the
//! checkpoint is discarded they are freed, a part in each txg.

use super::Allocator;
use super::free::Need;
use super::metaslab::LiveMetaslab;
use super::record::PassTrees;
use super::sync::SyncPass;
use super::topology::LiveVdev;
use super::tunables::LARGE_BLOCK_SIZE;
use crate::MetaslabError;
use crate::space_map::SpaceMap;
use crate::space_map::append::Part;
use crate::store::SyncStore;
use rzfs_format::space_map::{Action, Geometry};
use rzfs_format::{FormatError, Txg};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The progress of discarding a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Discard {
    /// There is more to free, in later txgs.
    More,
    /// Nothing is left: the feature's count can go down.
    Complete,
}

impl Allocator {
    /// Sets the pool's checkpoint to this txg, or to none. While there is one, blocks born up to it
    /// stay allocated when they are freed.
    pub fn set_checkpoint(&self, checkpoint: Option<Txg>) {
        self.checkpoint.store(checkpoint.unwrap_or_default().0, Ordering::Release);
    }

    /// Whether the checkpoint needs a block, born in `birth`, that dies in `txg`.
    pub(crate) fn need(&self, birth: Txg, txg: Txg) -> Need {
        let checkpoint = Txg(self.checkpoint.load(Ordering::Acquire));
        let kept = checkpoint != Txg(0) && birth <= checkpoint && txg > checkpoint;
        if kept { Need::Checkpoint } else { Need::Nobody }
    }
}

impl SyncPass<'_> {
    /// Frees about `most` of the ranges needed only by a checkpoint that is no longer set. OpenZFS
    /// takes 2^19 in a txg.
    ///
    /// # Errors
    /// A checkpoint map is damaged, or the store fails.
    pub fn discard_checkpoint(
        &mut self,
        store: &mut dyn SyncStore,
        most: u64,
    ) -> Result<Discard, MetaslabError> {
        let topology = self.allocator.topology();
        let mut rest = most;
        for (vdev, live) in &topology.vdevs {
            let there = live.objects.lock().checkpoint_map;
            let Some(object) = there else { continue };
            if rest == 0 {
                return Ok(Discard::More);
            }
            let mut map = SpaceMap::open(store, object, area(live))?;
            let taken = map.unwind(store, rest, |run, range| {
                let wrong = |what| {
                    MetaslabError::format(object)(FormatError::invalid("checkpoint map", what))
                };
                if run.action != Action::Free {
                    return Err(wrong("an allocation"));
                }
                let metaslab = live
                    .metaslab_of(&range)
                    .ok_or_else(|| wrong("a range that is in no metaslab"))?;
                metaslab.free(range, Need::Nobody)?;
                self.allocator.context.mark_dirty(self.stamp.txg, metaslab.id);
                Ok(())
            })?;
            rest = rest.saturating_sub(taken);
            if map.header().length > 0 {
                return Ok(Discard::More);
            }
            map.destroy(store)?;
            store.set_checkpoint_map(*vdev, None).map_err(MetaslabError::in_directory)?;
            live.objects.lock().checkpoint_map = None;
        }
        Ok(Discard::Complete)
    }

    /// Appends freed ranges needed by the checkpoint to the vdevs' checkpoint maps.
    pub(crate) fn record_checkpointed(
        &self,
        batch: &[(Arc<LiveMetaslab>, PassTrees)],
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        for (vdev, live) in &self.allocator.topology().vdevs {
            let of_vdev = batch.iter().filter(|(metaslab, _)| metaslab.id.vdev == *vdev);
            let mut parts = of_vdev
                .filter(|(_, trees)| !trees.checkpointed.is_empty())
                .map(|(_, trees)| {
                    (None, Part { action: Action::Free, segments: &trees.checkpointed })
                })
                .peekable();
            if parts.peek().is_none() {
                continue;
            }
            let there = live.objects.lock().checkpoint_map;
            let mut map = match there {
                Some(object) => SpaceMap::open(store, object, area(live))?,
                None => {
                    let header = self.features.maps.header;
                    let map = SpaceMap::create(store, area(live), LARGE_BLOCK_SIZE, header)?;
                    let object = Some(map.object());
                    store.set_checkpoint_map(*vdev, object).map_err(MetaslabError::in_directory)?;
                    live.objects.lock().checkpoint_map = object;
                    map
                }
            };
            map.append_all(store, self.stamp, self.features.maps.version, parts)?;
        }
        Ok(())
    }
}

const fn area(live: &LiveVdev) -> Geometry {
    Geometry::checkpoint(live.geometry.asize, live.geometry.ashift)
}
