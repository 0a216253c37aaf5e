//! The free space of a loaded metaslab, and the choice of a segment for an allocation (spec 06,
//! sections 3.3 and 11).
//!
//! The policy is OpenZFS's "dynamic fit": while there are large segments and enough space, the
//! first fit from the end of the last allocation of that alignment, which keeps related writes
//! together; otherwise the best fit. The format does not prescribe placement.

use crate::range_tree::{RangeError, RangeTree, SearchLimit};
use rzfs_tunables::Tunables;
use std::ops::Range;

/// Parameters of dynamic fit; the names are those of OpenZFS's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FitLimits {
    /// `metaslab_df_alloc_threshold`: without a segment of that many bytes, best fit.
    pub alloc_threshold: u64,
    /// `metaslab_df_free_pct`: with less free space, best fit.
    pub free_percent: u64,
    /// `metaslab_df_max_search` and `metaslab_min_search_count`: how far first fit looks.
    pub search: SearchLimit,
    /// `metaslab_by_size_min_shift`: log2 of the smallest segment that is ordered by size, until
    /// there are none.
    pub by_size_min_shift: u32,
}

impl From<&Tunables> for FitLimits {
    fn from(tunables: &Tunables) -> Self {
        Self {
            alloc_threshold: tunables.metaslab_df_alloc_threshold,
            free_percent: tunables.metaslab_df_free_pct,
            search: SearchLimit {
                bytes: tunables.metaslab_df_max_search,
                segments: tunables.metaslab_min_search_count,
            },
            by_size_min_shift: tunables.metaslab_by_size_min_shift,
        }
    }
}

impl Default for FitLimits {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

/// The allocatable space of a metaslab.
#[derive(Clone, Debug)]
pub struct FreeSpace {
    tree: RangeTree,
    limits: FitLimits,
    /// Where the next search for a size whose largest power of two is `1 << i` begins.
    cursors: [u64; 64],
}

impl FreeSpace {
    /// The free space that `tree` holds.
    #[must_use]
    pub fn new(mut tree: RangeTree, limits: FitLimits) -> Self {
        tree.index_by_size(limits.by_size_min_shift);
        let cursors = [tree.area().start; 64];
        Self { tree, limits, cursors }
    }

    /// The free segments.
    #[must_use]
    pub const fn segments(&self) -> &RangeTree {
        &self.tree
    }

    /// Bytes of the largest free segment.
    pub fn largest(&mut self) -> u64 {
        self.tree.largest()
    }

    /// Adds a freed range.
    pub fn add(&mut self, range: Range<u64>) -> Result<(), RangeError> {
        self.tree.add(range)
    }

    /// Removes a range that must be free.
    pub fn claim(&mut self, range: Range<u64>) -> Result<(), RangeError> {
        self.tree.remove(range)
    }

    /// Takes `size` bytes, a multiple of the metaslab's unit; `None` if no segment is large enough.
    pub fn allocate(&mut self, size: u64) -> Option<Range<u64>> {
        if size == 0 {
            return None;
        }
        let cursor = size.trailing_zeros() as usize;
        let found = self.first_fit(size, cursor).or_else(|| self.tree.best_fit(size))?;
        let range = found.start..found.start.checked_add(size)?;
        self.tree.remove(range.clone()).ok()?;
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            *cursor = range.end;
        }
        Some(range)
    }

    fn first_fit(&mut self, size: u64, cursor: usize) -> Option<Range<u64>> {
        let area = self.tree.area();
        let total = u128::from(area.end.saturating_sub(area.start));
        let start = area.start;
        let scarce =
            u128::from(self.tree.space()) * 100 < total * u128::from(self.limits.free_percent);
        if scarce || self.tree.largest() < self.limits.alloc_threshold {
            return None;
        }
        let from = self.cursors.get_mut(cursor)?;
        let found = self.tree.first_fit(*from, size, self.limits.search);
        if found.is_none() {
            *from = start;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: Range<u64> = 0x1000_0000..0x2000_0000;

    fn free(ranges: impl IntoIterator<Item = Range<u64>>) -> FreeSpace {
        let mut tree = RangeTree::new(AREA, 12);
        for range in ranges {
            tree.add(range).unwrap();
        }
        FreeSpace::new(tree, FitLimits::default())
    }

    #[test]
    fn allocations_of_one_size_follow_each_other() {
        let mut free = free([AREA]);
        let first = free.allocate(0x2_0000).unwrap();
        let second = free.allocate(0x2_0000).unwrap();
        assert_eq!((first.start, second.start), (AREA.start, first.end));
        // Each alignment has its own cursor, where it finds the first free bytes.
        assert_eq!(free.allocate(0x1000).unwrap().start, second.end);
        // A range freed before the cursor waits until the search comes around.
        free.add(first.clone()).unwrap();
        assert_ne!(free.allocate(0x2_0000).unwrap(), first);
    }

    #[test]
    fn scarce_space_is_filled_by_best_fit() {
        let base = AREA.start;
        let mut free = free([base..base + 0x8000, base + 0x1_0000..base + 0x1_5000]);
        assert_eq!(free.largest(), 0x8000);
        assert_eq!(free.allocate(0x5000), Some(base + 0x1_0000..base + 0x1_5000));
        assert_eq!(free.allocate(0x9000), None);
        assert_eq!(free.allocate(0x8000), Some(base..base + 0x8000));
        assert_eq!((free.largest(), free.allocate(0x1000)), (0, None));
        assert_eq!(free.allocate(0), None);
    }

    #[test]
    fn small_segments_are_found_once_large_ones_are_gone() {
        let base = AREA.start;
        let mut free = free([base..base + 0x1000, base + 0x4000..base + 0x6000]);
        // Both are below the floor of the order by size.
        assert_eq!(free.largest(), 0x2000);
        assert_eq!(free.allocate(0x1000), Some(base..base + 0x1000));
        assert_eq!(free.allocate(0x2000), Some(base + 0x4000..base + 0x6000));
    }

    proptest! {
        #[test]
        fn an_allocation_fails_only_if_no_segment_is_large_enough(
            steps in prop::collection::vec((1_u64..600, any::<bool>()), 1..300),
            threshold in prop::sample::select(vec![0_u64, 1 << 17, u64::MAX]),
        ) {
            let area = 0..4096_u64 << 9;
            let mut tree = RangeTree::new(area.clone(), 9);
            tree.add(area.clone()).unwrap();
            let search = SearchLimit { bytes: 1 << 14, segments: 3 };
            let limits = FitLimits { alloc_threshold: threshold, search, ..FitLimits::default() };
            let mut free = FreeSpace::new(tree, limits);
            let mut taken: Vec<Range<u64>> = Vec::new();
            for (units, give_back) in steps {
                if give_back && !taken.is_empty() {
                    let range = taken.swap_remove(units as usize % taken.len());
                    free.add(range).unwrap();
                }
                let size = units << 9;
                let real = free.segments().iter().map(|range| range.end - range.start).max();
                match free.allocate(size) {
                    Some(range) => {
                        prop_assert_eq!(range.end - range.start, size);
                        prop_assert!(range.start >= area.start && range.end <= area.end);
                        for other in &taken {
                            prop_assert!(other.end <= range.start || range.end <= other.start);
                        }
                        taken.push(range);
                    }
                    None => prop_assert!(real.is_none_or(|largest| largest < size)),
                }
                let largest = free.segments().iter().map(|range| range.end - range.start).max();
                prop_assert_eq!(free.largest(), largest.unwrap_or(0));
            }
        }
    }
}
