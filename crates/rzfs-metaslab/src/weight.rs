//! The weight of a metaslab: which one of a group is tried next (spec 06, section 10.1).
//!
//! A weight lives in memory only. Larger is better; it is one number so that metaslabs can be
//! ordered by it:
//!
//! ```text
//! bit  63 62 61   60   59        54 53                            0
//!      P  S  C    0    log2 of size  number of segments that large      segment-based
//!      P  S  C    1    free bytes, less for fragmented space            space-based
//! ```
//! P, S and C say that the metaslab is in use as an allocator's primary, its secondary, or for
//! claims. 0 is a metaslab from which nothing can be allocated.

use crate::range_tree::SizeHistogram;
use rzfs_format::space_map::HISTOGRAM_BUCKETS;

const SPACE_BASED: u64 = 1 << 60;
const INDEX_SHIFT: u32 = 54;
const COUNT_MASK: u64 = (1 << INDEX_SHIFT) - 1;
const ACTIVE_MASK: u64 = 0b111 << 61;
/// Bytes of the smallest allocation.
const SECTOR: u64 = 512;
/// log2 of it.
const SECTOR_SHIFT: u32 = 9;
/// The last bucket of a stored histogram.
const LAST_BUCKET: u32 = HISTOGRAM_BUCKETS as u32 - 1;

/// What an allocator uses a metaslab for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activation {
    /// First copies of blocks.
    Primary,
    /// Second copies of blocks whose first copy is on the same vdev.
    Secondary,
    /// Further copies, for a single allocation.
    Claim,
}

impl Activation {
    const fn bit(self) -> u64 {
        match self {
            Self::Primary => 1 << 63,
            Self::Secondary => 1 << 62,
            Self::Claim => 1 << 61,
        }
    }
}

/// How desirable a metaslab is for an allocation; larger is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Weight(u64);

/// What a weight by free space depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceFigures {
    /// Free bytes.
    pub free: u64,
    /// Fragmentation of the free space in percent, if known.
    pub fragmentation: Option<u64>,
    /// On rotating disks, whose outer tracks are faster: the metaslab's index and how many there
    /// are.
    pub place: Option<(u64, u64)>,
}

impl Weight {
    /// Nothing can be allocated.
    pub const NONE: Self = Self(0);

    /// Of a metaslab without any allocation.
    #[must_use]
    pub fn of_whole(size: u64, ashift: u32) -> Self {
        let Some(index) = size.checked_ilog2() else { return Self::NONE };
        let top = index.min(LAST_BUCKET + ashift);
        Self::segments(top, 1_u64.checked_shl(index - top).unwrap_or(COUNT_MASK))
    }

    /// Of a loaded metaslab, whose allocatable segments are counted by log2 of their bytes.
    /// Segments beyond a stored histogram's last bucket count as several of that size.
    #[must_use]
    pub fn of_segments(histogram: &SizeHistogram, ashift: u32) -> Self {
        let top = LAST_BUCKET + ashift;
        let mut count = 0_u64;
        for (index, &there) in (0_u32..64).zip(histogram).skip(SECTOR_SHIFT as usize).rev() {
            count = count.saturating_mul(2).saturating_add(there);
            if count != 0 && index <= top {
                return Self::segments(index, count);
            }
        }
        Self::NONE
    }

    /// Of an unloaded metaslab, whose map has a histogram in units of `1 << shift` bytes.
    /// `pending` counts those of its segments that cannot be allocated yet.
    #[must_use]
    pub fn of_map(
        histogram: &[u64; HISTOGRAM_BUCKETS],
        pending: &[u64; HISTOGRAM_BUCKETS],
        shift: u32,
    ) -> Self {
        let mut weight = Self::NONE;
        for (index, (all, pending)) in (shift..).zip(histogram.iter().zip(pending)) {
            let count = all.saturating_sub(*pending);
            if count != 0 {
                weight = Self::segments(index, count);
            }
        }
        weight
    }

    /// By free space, for maps without histograms.
    #[must_use]
    pub fn of_space(figures: SpaceFigures) -> Self {
        let SpaceFigures { free, fragmentation, place } = figures;
        let mut weight = u128::from(free);
        if let Some(percent) = fragmentation {
            let kept = 100 - u128::from(percent.min(100).saturating_sub(1));
            weight = weight * kept / 100;
            if free > 0 {
                weight = weight.max(u128::from(SECTOR));
            }
        }
        if let Some((index, count)) = place {
            weight = weight * 2 - u128::from(index.min(count)) * weight / u128::from(count.max(1));
        }
        match u64::try_from(weight).unwrap_or(u64::MAX).min(SPACE_BASED - 1) {
            0 => Self::NONE,
            weight => Self(SPACE_BASED | weight),
        }
    }

    const fn segments(index: u32, count: u64) -> Self {
        let count = if count > COUNT_MASK { COUNT_MASK } else { count };
        let index = if index > 63 { 63 } else { index };
        Self((index as u64) << INDEX_SHIFT | count)
    }

    /// Whether an allocation of `asize` bytes may succeed, as far as the weight tells.
    #[must_use]
    pub const fn may_fit(self, asize: u64) -> bool {
        if self.0 & !ACTIVE_MASK == 0 {
            return false;
        }
        match self.index() {
            Some(index) => asize >> index < 2,
            None => asize <= self.0 & (SPACE_BASED - 1),
        }
    }

    /// log2 of the size of the largest segments, of a segment-based weight.
    #[must_use]
    pub const fn index(self) -> Option<u32> {
        if self.0 & SPACE_BASED != 0 || self.0 & !ACTIVE_MASK == 0 {
            return None;
        }
        Some((self.0 >> INDEX_SHIFT & 0x3f) as u32)
    }

    /// The weight of the metaslab in use.
    #[must_use]
    pub const fn activated(self, activation: Activation) -> Self {
        Self(self.0 | activation.bit())
    }

    /// The weight of the metaslab not in use.
    #[must_use]
    pub const fn passivated(self) -> Self {
        Self(self.0 & !ACTIVE_MASK)
    }

    /// Whether the metaslab is in use.
    #[must_use]
    pub const fn is_active(self) -> bool {
        self.0 & ACTIVE_MASK != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RangeTree;
    use crate::space_map::append::add_to_histogram;
    use proptest::prelude::*;

    #[test]
    fn words_have_the_layout_of_the_table() {
        let mut sizes = [0; 64];
        sizes[17] = 5;
        sizes[13] = 900;
        let weight = Weight::of_segments(&sizes, 12);
        assert_eq!(weight.0, 17 << 54 | 5);
        assert_eq!(weight.activated(Activation::Primary).0, 1 << 63 | 17 << 54 | 5);
        assert_eq!(weight.activated(Activation::Secondary).passivated(), weight);
        assert_eq!(Weight::of_whole(16 << 20, 12).0, 24 << 54 | 1);
        assert_eq!(Weight::of_segments(&[0; 64], 12), Weight::NONE);
        let free = SpaceFigures { free: 1 << 20, fragmentation: None, place: None };
        assert_eq!(Weight::of_space(free).0, 1 << 60 | 1 << 20);
    }

    #[test]
    fn segments_above_the_last_bucket_count_as_several() {
        let mut sizes = [0; 64];
        sizes[44] = 1;
        sizes[42] = 3;
        assert_eq!(Weight::of_segments(&sizes, 9).0, 40 << 54 | (16 + 3 * 4));
        assert_eq!(Weight::of_whole(1 << 44, 9).0, 40 << 54 | 16);
    }

    #[test]
    fn pending_segments_do_not_count() {
        let (mut all, mut pending) = ([0; HISTOGRAM_BUCKETS], [0; HISTOGRAM_BUCKETS]);
        all[0] = 7;
        all[9] = 2;
        pending[9] = 2;
        let weight = Weight::of_map(&all, &pending, 12);
        assert_eq!(weight.index(), Some(12));
        assert!(weight.may_fit(0x1fff) && !weight.may_fit(0x2000));
        assert_eq!(Weight::of_map(&all, &all, 12), Weight::NONE);
        assert!(!Weight::NONE.activated(Activation::Claim).may_fit(512));
    }

    #[test]
    fn fragmented_and_inner_space_weighs_less() {
        let of = |fragmentation, place| {
            Weight::of_space(SpaceFigures { free: 1 << 30, fragmentation, place })
        };
        assert!(of(Some(80), None) < of(Some(10), None));
        assert!(of(None, Some((9, 10))) < of(None, Some((0, 10))));
        assert_eq!(of(Some(1), None), of(None, None));
        let none = SpaceFigures { free: 0, fragmentation: Some(50), place: Some((0, 1)) };
        assert_eq!(Weight::of_space(none), Weight::NONE);
        let most = SpaceFigures { free: u64::MAX, fragmentation: None, place: Some((0, 1)) };
        assert!(Weight::of_space(most).may_fit(1 << 50));
    }

    proptest! {
        #[test]
        fn unloaded_and_loaded_weights_agree(
            ranges in prop::collection::vec((0_u64..4096, 1_u64..300), 0..60),
        ) {
            let mut tree = RangeTree::new(0..1 << 21, 9);
            for (start, len) in ranges {
                let range = start << 9..(start + len).min(4096) << 9;
                tree.clear(range.clone()).unwrap();
                tree.add(range).unwrap();
            }
            let mut stored = [0; HISTOGRAM_BUCKETS];
            add_to_histogram(&mut stored, tree.histogram(), 9);
            let loaded = Weight::of_segments(tree.histogram(), 9);
            prop_assert_eq!(loaded, Weight::of_map(&stored, &[0; HISTOGRAM_BUCKETS], 9));
            let largest = tree.largest();
            prop_assert!(largest == 0 || loaded.may_fit(largest));
            prop_assert!(!loaded.may_fit(largest.max(1) * 2));
        }
    }
}
