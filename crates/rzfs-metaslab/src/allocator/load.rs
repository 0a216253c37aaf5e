//! Loading: building the tree of allocatable space from a metaslab's map, the logged changes and
//! the deferred frees (spec 06, sections 10.4 and 10.5).
//!
//! Reading takes place without a lock. Meanwhile the metaslab is not flushed, and a txg that ends
//! waits; its changes may be logged.

use super::Allocator;
use super::context::Context;
use super::metaslab::{FreeTree, LiveMetaslab, State};
use crate::free_space::FreeSpace;
use crate::{MetaslabError, RangeTree};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

impl Allocator {
    /// Retries maps that could not be loaded, when their space is needed: the devices may respond
    /// again.
    pub fn retry_maps(&self) {
        let topology = self.topology();
        for metaslab in topology.vdevs.values().flat_map(|live| &live.metaslabs) {
            let mut state = metaslab.state.lock();
            if matches!(state.free, FreeTree::Unusable) {
                state.free = FreeTree::Unloaded;
                metaslab.reweigh(&mut state, &self.context.features());
            }
        }
    }
}

impl LiveMetaslab {
    /// Loads the metaslab if needed; returns whether it is loaded. The lock is released meanwhile.
    pub(crate) fn load(&self, state: &mut MutexGuard<'_, State>, context: &Context) -> bool {
        loop {
            match state.free {
                FreeTree::Loaded(_) => return true,
                FreeTree::Unusable => return false,
                FreeTree::Loading => self.settled.wait(state),
                FreeTree::Unloaded if state.flushing => self.settled.wait(state),
                FreeTree::Unloaded => break,
            }
        }
        state.free = FreeTree::Loading;
        state.selected = state.selected.max(context.committed());
        let map = state.map.as_ref().map(|map| {
            let synced = state.synced;
            map.up_to(synced.length, synced.allocated)
        });
        let read = MutexGuard::unlocked(state, || match map {
            Some(map) => map.load_free(&context.reader),
            None => Ok(RangeTree::full(self.range.clone(), self.ashift)),
        });
        let merged = read.and_then(|tree| self.merge_pending(state, tree));
        state.free = match merged {
            Ok(tree) => {
                context.loaded_bytes.fetch_add(tree.memory() as u64, Ordering::Relaxed);
                context.loaded.lock().insert(self.id);
                FreeTree::Loaded(Box::new(FreeSpace::new(tree, context.tunables.fit)))
            }
            Err(error) => {
                tracing::error!(
                    vdev = %self.id.vdev, metaslab = self.id.index, %error,
                    "no space is allocated from a metaslab whose map cannot be loaded"
                );
                FreeTree::Unusable
            }
        };
        self.settled.notify_all();
        self.reweigh(state, &context.features());
        matches!(state.free, FreeTree::Loaded(_))
    }

    /// Turns the free space of the map into allocatable space.
    fn merge_pending(
        &self,
        state: &mut State,
        mut tree: RangeTree,
    ) -> Result<RangeTree, MetaslabError> {
        let conflict = self.conflict();
        if let Some(unflushed) = &state.unflushed {
            tree.remove_all(&unflushed.allocated).map_err(conflict)?;
            tree.add_all(&unflushed.freed).map_err(conflict)?;
        }
        if let Some(transient) = &state.transient {
            if state.frees_logged {
                tree.remove_all(&transient.freed).map_err(conflict)?;
            }
            for deferred in &transient.deferred {
                tree.remove_all(&deferred.segments).map_err(conflict)?;
            }
        }
        Ok(tree)
    }

    /// Drops the free tree if nothing needs it.
    pub(crate) fn unload(&self, context: &Context) -> bool {
        let mut state = self.state.lock();
        if !state.can_unload() {
            return false;
        }
        state.free = FreeTree::Unloaded;
        context.loaded.lock().remove(&self.id);
        self.reweigh(&mut state, &context.features());
        true
    }
}
