//! Free space for TRIM or initialization: spec 06, section 16.
//!
//! A freed range is added when it becomes allocatable, so no usable uberblock refers to it, and
//! removed when it is allocated. While free space is processed, its metaslab is disabled.

use super::Allocator;
use super::metaslab::{FreeTree, LiveMetaslab};
use super::rest::DisableGate;
use crate::RangeTree;
use crate::log::book::MetaslabId;
use std::ops::Range;
use std::sync::Arc;

/// Free ranges of one metaslab, which are not allocated until this is dropped. The holder waits for
/// devices only, never for a txg.
///
/// Blocks allocated afterwards may be written at once: the work on their space has ended.
#[derive(Debug)]
pub struct TrimBatch {
    metaslab: Arc<LiveMetaslab>,
    rests: Arc<DisableGate>,
    ranges: Vec<Range<u64>>,
}

/// Selects a part of a metaslab's free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreePart {
    /// Shorter ranges are left out.
    pub smallest: u64,
    /// Where it begins, in bytes on the vdev.
    pub from: u64,
    /// The approximate maximum.
    pub most: u64,
    /// Ranges are split at multiples of this from their start.
    pub unit: u64,
}

/// A part of the free space of a metaslab, and where the next one begins.
#[derive(Debug)]
pub struct FreeStep {
    /// The ranges.
    pub batch: TrimBatch,
    /// Where to continue; `None` if nothing remains.
    pub next: Option<u64>,
}

impl TrimBatch {
    /// For a metaslab that is already disabled.
    fn of(metaslab: &Arc<LiveMetaslab>, rests: &Arc<DisableGate>, ranges: Vec<Range<u64>>) -> Self {
        Self { metaslab: Arc::clone(metaslab), rests: Arc::clone(rests), ranges }
    }

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
        drop(state);
        self.rests.end();
    }
}

impl Allocator {
    /// All metaslabs, with where they lie on their vdevs.
    #[must_use]
    pub fn metaslabs(&self) -> Vec<(MetaslabId, Range<u64>)> {
        let topology = self.topology();
        let metaslabs = topology.vdevs.values().flat_map(|vdev| &vdev.metaslabs);
        metaslabs.map(|metaslab| (metaslab.id, metaslab.range.clone())).collect()
    }

    /// The metaslabs that have ranges to trim (the property `autotrim` is on).
    #[must_use]
    pub fn trim_candidates(&self) -> Vec<MetaslabId> {
        let topology = self.topology();
        let metaslabs = topology.vdevs.values().flat_map(|vdev| &vdev.metaslabs);
        let with_ranges = metaslabs.filter(|metaslab| metaslab.state.lock().trim.is_some());
        with_ranges.map(|metaslab| metaslab.id).collect()
    }

    /// Takes the ranges of at least `smallest` bytes to trim in a metaslab; the others are dropped.
    /// `None` if there are none.
    #[must_use]
    pub fn take_trims(&self, metaslab: MetaslabId, smallest: u64) -> Option<TrimBatch> {
        let topology = self.topology();
        let metaslab = topology.metaslab(metaslab)?;
        let rests = &self.context.rests;
        rests.begin();
        let mut state = metaslab.state.lock();
        state.disabled += 1;
        let ranges = state.trim.take().map_or_else(Vec::new, |trim| worth_it(&trim, smallest));
        drop(state);
        let batch = TrimBatch::of(metaslab, rests, ranges);
        (!batch.ranges.is_empty()).then_some(batch)
    }

    /// The allocatable space in a part of a metaslab, for a requested TRIM or initialization.
    /// `None` if there is none, or if the metaslab cannot be loaded.
    #[must_use]
    pub fn take_free(&self, metaslab: MetaslabId, part: FreePart) -> Option<FreeStep> {
        let topology = self.topology();
        let metaslab = topology.metaslab(metaslab)?;
        let rests = &self.context.rests;
        loop {
            let mut state = metaslab.state.lock();
            // Loading may wait for a txg, so it comes first.
            if !state.available || !metaslab.load(&mut state, &self.context) {
                return None;
            }
            let FreeTree::Loaded(free) = &state.free else { return None };
            if rests.try_begin() {
                let (ranges, next) = cut_out(free.segments(), part);
                state.disabled += 1;
                drop(state);
                let batch = TrimBatch::of(metaslab, rests, ranges);
                let is_worth_it = !batch.ranges.is_empty();
                return is_worth_it.then_some(FreeStep { batch, next });
            }
            drop(state);
            rests.wait();
        }
    }
}

fn worth_it(tree: &RangeTree, smallest: u64) -> Vec<Range<u64>> {
    tree.iter().filter(|range| range.end - range.start >= smallest).collect()
}

/// A part of a tree, and where the next one begins.
fn cut_out(tree: &RangeTree, part: FreePart) -> (Vec<Range<u64>>, Option<u64>) {
    let mut ranges = Vec::new();
    let mut room = part.most;
    for segment in tree.iter_from(part.from) {
        let range = segment.start.max(part.from)..segment.end;
        let len = range.end.saturating_sub(range.start);
        if len == 0 || segment.end - segment.start < part.smallest {
            continue;
        }
        if len <= room {
            room -= len;
            ranges.push(range);
            continue;
        }
        let unit = part.unit.max(1);
        let mut now = room - room % unit;
        if now == 0 && ranges.is_empty() {
            now = unit.min(len);
        }
        let cut = range.start + now;
        if now > 0 {
            ranges.push(range.start..cut);
        }
        return (ranges, Some(cut));
    }
    (ranges, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_comes_in_parts() {
        let mut tree = RangeTree::new(0..1 << 20, 12);
        for range in [0..0x3000, 0x8000..0x9000, 0x10000..0x20000] {
            tree.add(range).unwrap();
        }
        let part = FreePart { smallest: 0x2000, from: 0, most: 0x5000, unit: 0x2000 };
        let ends = |ranges: Vec<Range<u64>>| -> Vec<(u64, u64)> {
            ranges.into_iter().map(|range| (range.start, range.end)).collect()
        };
        let mut from = Some(0);
        let mut parts = Vec::new();
        while let Some(start) = from {
            let (ranges, next) = cut_out(&tree, FreePart { from: start, ..part });
            parts.push(ends(ranges));
            from = next;
        }
        let expected = [
            vec![(0, 0x3000), (0x10000, 0x12000)],
            vec![(0x12000, 0x16000)],
            vec![(0x16000, 0x1a000)],
            vec![(0x1a000, 0x1e000)],
            vec![(0x1e000, 0x20000)],
        ];
        assert_eq!(parts, expected);
        // Never empty: a unit at least.
        let (ranges, next) = cut_out(&tree, FreePart { most: 0, ..part });
        assert_eq!((ends(ranges), next), (vec![(0, 0x2000)], Some(0x2000)));
    }
}
