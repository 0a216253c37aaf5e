//! Freeing space, and claiming what was allocated before the pool was opened (spec 06, sections 7.3
//! and 20.3).

use super::Allocator;
use super::metaslab::{FreeTree, LiveMetaslab};
use super::topology::Topology;
use crate::MetaslabError;
use rzfs_format::{Dva, Txg, VdevId};
use std::ops::Range;

/// Who still needs a range that is being freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// None.
    Nobody,
    /// The checkpoint: it stays allocated.
    Checkpoint,
}

impl Allocator {
    /// Allocates a block of an intent log on disk, before anything else is allocated in the first
    /// txg of an imported pool.
    ///
    /// # Errors
    /// [`MetaslabError::Range`] if it is allocated, [`MetaslabError::NoMetaslab`].
    pub fn claim(&self, dva: Dva, txg: Txg) -> Result<(), MetaslabError> {
        let topology = self.topology();
        let range = self.range_of(dva, txg)?;
        let metaslab = metaslab_of(&topology, dva.vdev(), &range)?;
        let mut state = metaslab.state.lock();
        if !metaslab.load(&mut state, &self.context) {
            return Err(no_metaslab(dva.vdev(), &range));
        }
        if let FreeTree::Loaded(free) = &mut state.free {
            free.claim(range.clone()).map_err(metaslab.conflict())?;
        }
        metaslab.note_allocation(&mut state, &self.context, range, txg);
        metaslab.reweigh(&mut state, &self.context.features());
        Ok(())
    }

    /// The range of an address: for a gang only its header.
    fn range_of(&self, dva: Dva, txg: Txg) -> Result<Range<u64>, MetaslabError> {
        let size = if dva.is_gang() {
            self.context.devices.gang_header_size(dva.vdev(), txg).unwrap_or(dva.asize())
        } else {
            dva.asize()
        };
        let range = dva.offset()..dva.offset().saturating_add(size);
        if range.is_empty() { Err(no_metaslab(dva.vdev(), &range)) } else { Ok(range) }
    }

    pub(crate) fn free_dva(&self, dva: Dva, txg: Txg, need: Need) -> Result<(), MetaslabError> {
        let topology = self.topology();
        let range = self.range_of(dva, txg)?;
        // Each copy of a piece is on a vdev that was removed later.
        let depth = topology.removed.len() + topology.vdevs.len() + 1;
        self.free_range(&topology, dva.vdev(), range, txg, need, depth)
    }

    fn free_range(
        &self,
        topology: &Topology,
        vdev: VdevId,
        range: Range<u64>,
        txg: Txg,
        need: Need,
        depth: usize,
    ) -> Result<(), MetaslabError> {
        let Some(depth) = depth.checked_sub(1) else { return Err(no_metaslab(vdev, &range)) };
        let copies = self
            .context
            .devices
            .copies(vdev, range.clone())
            .map_err(|source| MetaslabError::Mapping { vdev, offset: range.start, source })?;
        if topology.removed.contains_key(&vdev) {
            let moved: u64 = copies.iter().map(|piece| piece.range.end - piece.range.start).sum();
            if moved != range.end - range.start {
                return Err(no_metaslab(vdev, &range));
            }
            self.mark_obsolete(vdev, range)?;
        } else {
            let metaslab = metaslab_of(topology, vdev, &range)?;
            metaslab.free(range, need)?;
            self.context.mark_dirty(txg, metaslab.id);
        }
        for piece in copies {
            self.free_range(topology, piece.vdev, piece.range, txg, need, depth)?;
        }
        Ok(())
    }
}

fn metaslab_of<'a>(
    topology: &'a Topology,
    vdev: VdevId,
    range: &Range<u64>,
) -> Result<&'a std::sync::Arc<LiveMetaslab>, MetaslabError> {
    let live = topology.vdevs.get(&vdev).ok_or_else(|| no_metaslab(vdev, range))?;
    live.metaslab_of(range).ok_or_else(|| no_metaslab(vdev, range))
}

const fn no_metaslab(vdev: VdevId, range: &Range<u64>) -> MetaslabError {
    let length = range.end.saturating_sub(range.start);
    MetaslabError::NoMetaslab { vdev, offset: range.start, length }
}

impl LiveMetaslab {
    /// Frees a range; this pass records it. A double free is an error as far as it is visible in
    /// memory.
    pub(crate) fn free(&self, range: Range<u64>, need: Need) -> Result<(), MetaslabError> {
        let conflict = self.conflict();
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut free_already = Vec::with_capacity(6);
        if let FreeTree::Loaded(free) = &state.free {
            free_already.push(free.segments());
        } else if let Some(unflushed) = &state.unflushed {
            free_already.push(&unflushed.freed);
        }
        if let Some(transient) = &state.transient {
            free_already.extend([&transient.freed, &transient.freeing, &transient.checkpointing]);
            free_already.extend(transient.deferred.iter().map(|deferred| &deferred.segments));
        }
        for tree in free_already {
            if let Some(there) = tree.first_overlap(range.clone()).map_err(conflict)? {
                return Err(conflict(crate::RangeError::Overlap { range, there }));
            }
        }
        let transient = self.transient(state);
        match need {
            Need::Nobody => transient.freeing.add(range),
            Need::Checkpoint => transient.checkpointing.add(range),
        }
        .map_err(conflict)
    }
}
