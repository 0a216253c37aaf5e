//! Freed ranges worth a TRIM (spec 06, section 16).
//!
//! A range gets here when it can be allocated again, so no uberblock that could still be used
//! refers to it, and leaves when it is allocated. While somebody trims, the metaslab gives no
//! space away.

use super::Allocator;
use super::metaslab::LiveMetaslab;
use crate::RangeTree;
use crate::log::book::MetaslabId;
use std::ops::Range;
use std::sync::Arc;

/// Free ranges of one metaslab, which nobody allocates until this is dropped.
///
/// Blocks that are allocated afterwards may be written at once: the TRIM of their space has
/// ended.
#[derive(Debug)]
pub struct TrimBatch {
    metaslab: Arc<LiveMetaslab>,
    ranges: Vec<Range<u64>>,
}

impl TrimBatch {
    /// The metaslab.
    #[must_use]
    pub fn metaslab(&self) -> MetaslabId {
        self.metaslab.id
    }

    /// The bytes on the vdev, in order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }
}

impl Drop for TrimBatch {
    fn drop(&mut self) {
        let mut state = self.metaslab.state.lock();
        state.disabled = state.disabled.saturating_sub(1);
    }
}

impl Allocator {
    /// All metaslabs.
    #[must_use]
    pub fn metaslabs(&self) -> Vec<MetaslabId> {
        let topology = self.topology();
        let metaslabs = topology.vdevs.values().flat_map(|vdev| &vdev.metaslabs);
        metaslabs.map(|metaslab| metaslab.id).collect()
    }

    /// The metaslabs that have ranges to trim (the property `autotrim` is on).
    #[must_use]
    pub fn trim_candidates(&self) -> Vec<MetaslabId> {
        let topology = self.topology();
        let metaslabs = topology.vdevs.values().flat_map(|vdev| &vdev.metaslabs);
        let with_ranges = metaslabs.filter(|metaslab| metaslab.state.lock().trim.is_some());
        with_ranges.map(|metaslab| metaslab.id).collect()
    }

    /// Takes the ranges of at least `smallest` bytes that are to be trimmed in a metaslab; the
    /// others are forgotten. `None` if there are none.
    #[must_use]
    pub fn take_trims(&self, metaslab: MetaslabId, smallest: u64) -> Option<TrimBatch> {
        let topology = self.topology();
        let metaslab = topology.metaslab(metaslab)?;
        let mut state = metaslab.state.lock();
        let trim = state.trim.take()?;
        let ranges = worth_it(&trim, smallest);
        if ranges.is_empty() {
            return None;
        }
        state.disabled += 1;
        drop(state);
        Some(TrimBatch { metaslab: Arc::clone(metaslab), ranges })
    }

    /// All that can be allocated in a metaslab, in ranges of at least `smallest` bytes, for a
    /// TRIM or an initialization that was asked for. `None` if there is nothing, or if the
    /// metaslab cannot be loaded.
    #[must_use]
    pub fn take_free(&self, metaslab: MetaslabId, smallest: u64) -> Option<TrimBatch> {
        let topology = self.topology();
        let metaslab = topology.metaslab(metaslab)?;
        let mut state = metaslab.state.lock();
        state.disabled += 1;
        let loaded = metaslab.load(&mut state, &self.context);
        let ranges = match &state.free {
            super::metaslab::FreeTree::Loaded(free) if loaded => {
                worth_it(free.segments(), smallest)
            }
            _ => Vec::new(),
        };
        drop(state);
        let batch = TrimBatch { metaslab: Arc::clone(metaslab), ranges };
        (!batch.ranges.is_empty()).then_some(batch)
    }
}

fn worth_it(tree: &RangeTree, smallest: u64) -> Vec<Range<u64>> {
    tree.iter().filter(|range| range.end - range.start >= smallest).collect()
}
