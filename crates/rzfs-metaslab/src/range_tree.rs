//! Range trees: sets of bytes as disjoint segments (spec 06, section 3).
//!
//! A range tree records which parts of an area are free, allocated, or changed. It is strict:
//! adding something present or removing something missing is an error, as it means a double
//! allocation or a double free on disk. Adjacent segments are merged.

mod by_size;
mod segments;

use by_size::BySize;
use segments::{Position, Segment, Segments};
use std::ops::Range;

/// Counts of segments by size: bucket i counts those of `1 << i` bytes up to twice that.
pub type SizeHistogram = [u64; 64];

/// A range that a range tree refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The range is empty, not aligned to the tree's unit, or not inside of the tree's area.
    #[error("range {start:#x}..{end:#x} is not inside of {area_start:#x}..{area_end:#x}", 
        start = .range.start, end = .range.end, area_start = .area.start, area_end = .area.end)]
    Outside {
        /// The range.
        range: Range<u64>,
        /// The tree's area.
        area: Range<u64>,
    },
    /// Part of a range to add is already present.
    #[error("range {start:#x}..{end:#x} overlaps {there_start:#x}..{there_end:#x}",
        start = .range.start, end = .range.end,
        there_start = .there.start, there_end = .there.end)]
    Overlap {
        /// The range to add.
        range: Range<u64>,
        /// The first segment that it overlaps.
        there: Range<u64>,
    },
    /// Part of a range to remove is missing.
    #[error("range {start:#x}..{end:#x} is not there as a whole",
        start = .range.start, end = .range.end)]
    Missing {
        /// The range to remove.
        range: Range<u64>,
        /// The first segment that overlaps it, if one does.
        there: Option<Range<u64>>,
    },
}

/// The segments, as wide as the area needs.
#[derive(Clone, Debug)]
enum Tree {
    Narrow(Segments<u32>),
    Wide(Segments<u64>),
}

macro_rules! on_tree {
    ($tree:expr, $segments:ident => $body:expr) => {
        match $tree {
            Tree::Narrow($segments) => $body,
            Tree::Wide($segments) => $body,
        }
    };
}

/// A set of bytes of an area, as disjoint segments that do not touch.
///
/// All ranges are in bytes and aligned to the tree's unit. An operation takes logarithmic time; a
/// segment takes 8 bytes where the area has fewer than 2^32 units, else 16.
#[derive(Clone, Debug)]
pub struct RangeTree {
    area: Range<u64>,
    shift: u32,
    tree: Tree,
    units: u64,
    histogram: SizeHistogram,
    by_size: Option<BySize>,
}

/// How far a search for the first fit goes: it ends where both are exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchLimit {
    /// Bytes from the first segment to the last one looked at.
    pub bytes: u64,
    /// Segments looked at.
    pub segments: usize,
}

impl RangeTree {
    /// An empty tree for parts of `area` in units of `1 << shift` bytes; the shift is below 64
    /// (larger ones count as 63).
    #[must_use]
    pub fn new(area: Range<u64>, shift: u32) -> Self {
        let shift = shift.min(63);
        let units = area.end.saturating_sub(area.start) >> shift;
        let tree = if units <= u64::from(u32::MAX) {
            Tree::Narrow(Segments::new())
        } else {
            Tree::Wide(Segments::new())
        };
        Self { area, shift, tree, units: 0, histogram: [0; 64], by_size: None }
    }

    /// A tree with all whole units of an area; the rest of its last unit is not included.
    #[must_use]
    pub fn full(area: Range<u64>, shift: u32) -> Self {
        let mut tree = Self::new(area, shift);
        let end = tree.area.end.saturating_sub(tree.area.start) >> tree.shift;
        if end > 0 {
            let whole = Segment { start: 0, end };
            let start = on_tree!(&tree.tree, segments => segments.start());
            on_tree!(&mut tree.tree, segments => segments.insert(start, whole));
            tree.units = end;
            tree.count(whole, 1);
        }
        tree
    }

    /// Bytes of memory that a segment counts as in limits: 8 where units have 32 bits, else 16.
    #[must_use]
    pub const fn segment_size(&self) -> u64 {
        match self.tree {
            Tree::Narrow(_) => 8,
            Tree::Wide(_) => 16,
        }
    }

    /// Takes all segments out, and leaves an empty tree of the same area.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = Self::new(self.area.clone(), self.shift);
        std::mem::replace(self, empty)
    }

    /// Adds all segments of a tree, none of which may be present.
    pub fn add_all(&mut self, other: &Self) -> Result<(), RangeError> {
        other.iter().try_for_each(|range| self.add(range))
    }

    /// Removes all segments of a tree, each of which must be present as a whole.
    pub fn remove_all(&mut self, other: &Self) -> Result<(), RangeError> {
        other.iter().try_for_each(|range| self.remove(range))
    }

    /// The area that the tree is about.
    #[must_use]
    pub const fn area(&self) -> &Range<u64> {
        &self.area
    }

    /// Bytes in the set.
    #[must_use]
    pub const fn space(&self) -> u64 {
        self.units << self.shift
    }

    /// Number of segments.
    #[must_use]
    pub const fn segment_count(&self) -> usize {
        on_tree!(&self.tree, segments => segments.count())
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Counts of the segments by size.
    #[must_use]
    pub const fn histogram(&self) -> &SizeHistogram {
        &self.histogram
    }

    /// Bytes of memory that the segments take, without the order by size.
    #[must_use]
    pub fn memory(&self) -> usize {
        on_tree!(&self.tree, segments => segments.memory())
    }

    /// Adds a range of which nothing may be present.
    pub fn add(&mut self, range: Range<u64>) -> Result<(), RangeError> {
        let new = self.units_of(&range)?;
        let at = self.first_after(new.start);
        let next = self.get(at);
        if let Some(there) = next.filter(|next| next.start < new.end) {
            return Err(RangeError::Overlap { range, there: self.bytes_of(there) });
        }
        let next = next.filter(|next| next.start == new.end);
        let before = self.before(at).filter(|(_, before)| before.end == new.start);
        self.units += new.end - new.start;
        match (before, next) {
            (None, None) => {
                on_tree!(&mut self.tree, segments => segments.insert(at, new));
                self.count(new, 1);
            }
            (Some((place, before)), None) => {
                self.resize(place, before, Segment { start: before.start, end: new.end });
            }
            (None, Some(next)) => {
                self.resize(at, next, Segment { start: new.start, end: next.end });
            }
            (Some((place, before)), Some(next)) => {
                on_tree!(&mut self.tree, segments => segments.remove(at));
                self.count(next, -1);
                let place = if self.get(place) == Some(before) {
                    place
                } else {
                    self.first_after(before.start)
                };
                self.resize(place, before, Segment { start: before.start, end: next.end });
            }
        }
        Ok(())
    }

    /// Removes a range that must be present as a whole.
    pub fn remove(&mut self, range: Range<u64>) -> Result<(), RangeError> {
        let gone = self.units_of(&range)?;
        let at = self.first_after(gone.start);
        match self.get(at) {
            Some(there) if there.start <= gone.start && gone.end <= there.end => {
                self.cut(at, there, gone);
                Ok(())
            }
            there => Err(RangeError::Missing {
                range,
                there: there
                    .filter(|there| there.start < gone.end)
                    .map(|there| self.bytes_of(there)),
            }),
        }
    }

    /// Removes the present parts of a range.
    pub fn clear(&mut self, range: Range<u64>) -> Result<(), RangeError> {
        while let Some(overlap) = self.first_overlap(range.clone())? {
            self.remove(overlap)?;
        }
        Ok(())
    }

    /// The first part of a range that is present.
    pub fn first_overlap(&self, range: Range<u64>) -> Result<Option<Range<u64>>, RangeError> {
        let wanted = self.units_of(&range)?;
        let there = self.get(self.first_after(wanted.start));
        Ok(there.filter(|there| there.start < wanted.end).map(|there| {
            self.bytes_of(Segment {
                start: there.start.max(wanted.start),
                end: there.end.min(wanted.end),
            })
        }))
    }

    /// Whether all of a range is present.
    #[must_use]
    pub fn contains(&self, range: Range<u64>) -> bool {
        matches!(self.first_overlap(range.clone()), Ok(Some(overlap)) if overlap == range)
    }

    /// The segments in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let segments: Box<dyn Iterator<Item = Segment> + '_> = match &self.tree {
            Tree::Narrow(segments) => Box::new(segments.iter_from(segments.start())),
            Tree::Wide(segments) => Box::new(segments.iter_from(segments.start())),
        };
        segments.map(|segment| self.bytes_of(segment))
    }

    /// The segments that end after a byte, in ascending order.
    pub fn iter_from(&self, at: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let unit = at.saturating_sub(self.area.start) >> self.shift;
        let segments: Box<dyn Iterator<Item = Segment> + '_> = match &self.tree {
            Tree::Narrow(segments) => Box::new(segments.iter_from(segments.first_after(unit))),
            Tree::Wide(segments) => Box::new(segments.iter_from(segments.first_after(unit))),
        };
        segments.map(|segment| self.bytes_of(segment))
    }

    /// Empties the tree; an order by size stays.
    pub fn reset(&mut self) {
        let floor = self.by_size.as_ref().map(BySize::floor);
        *self = Self::new(self.area.clone(), self.shift);
        self.by_size = floor.map(|floor| self.empty_index(floor));
    }

    /// Also orders segments by size from now on, as [`RangeTree::largest`] and
    /// [`RangeTree::best_fit`] need it. Segments below `1 << floor_shift` bytes are left out until
    /// there are no others.
    pub fn index_by_size(&mut self, floor_shift: u32) {
        self.build_index(1 << floor_shift.saturating_sub(self.shift).min(63));
    }

    fn empty_index(&self, floor: u64) -> BySize {
        BySize::new(matches!(self.tree, Tree::Narrow(_)), floor)
    }

    fn build_index(&mut self, floor: u64) {
        let mut index = self.empty_index(floor);
        on_tree!(&self.tree, segments => {
            segments.iter_from(segments.start()).for_each(|segment| index.insert(segment));
        });
        self.by_size = Some(index);
    }

    /// The order by size, with the longest segment in it.
    fn sized(&mut self) -> Option<&BySize> {
        if !self.is_empty() && self.by_size.as_ref().is_none_or(BySize::is_empty) {
            self.build_index(0);
        }
        self.by_size.as_ref()
    }

    /// Bytes of the longest segment.
    pub fn largest(&mut self) -> u64 {
        let shift = self.shift;
        let longest = self.sized().and_then(BySize::longest);
        longest.map_or(0, |segment| (segment.end - segment.start) << shift)
    }

    /// The shortest segment of at least `size` bytes among those ordered by size, the first one of
    /// them. None only if no segment at all is that long.
    pub fn best_fit(&mut self, size: u64) -> Option<Range<u64>> {
        let units = size.div_ceil(1 << self.shift);
        let found = self.sized()?.at_least(units)?;
        Some(self.bytes_of(found))
    }

    /// The first segment of at least `size` bytes that ends after `from`, if the search finds one
    /// within its limit.
    #[must_use]
    pub fn first_fit(&self, from: u64, size: u64, limit: SearchLimit) -> Option<Range<u64>> {
        let units = size.div_ceil(1 << self.shift);
        let reach = limit.bytes >> self.shift;
        let from = from.saturating_sub(self.area.start) >> self.shift;
        let found = on_tree!(&self.tree, segments => {
            let mut first = None;
            segments
                .iter_from(segments.first_after(from))
                .enumerate()
                .take_while(|(looked_at, segment)| {
                    let first = *first.get_or_insert(segment.start);
                    *looked_at < limit.segments || segment.start - first <= reach
                })
                .map(|(_, segment)| segment)
                .find(|segment| segment.end - segment.start >= units)
        });
        found.map(|segment| self.bytes_of(segment))
    }

    fn units_of(&self, range: &Range<u64>) -> Result<Segment, RangeError> {
        let outside = || RangeError::Outside { range: range.clone(), area: self.area.clone() };
        if range.is_empty() || range.start < self.area.start || range.end > self.area.end {
            return Err(outside());
        }
        let (start, end) = (range.start - self.area.start, range.end - self.area.start);
        let segment = Segment { start: start >> self.shift, end: end >> self.shift };
        if segment.start << self.shift == start && segment.end << self.shift == end {
            Ok(segment)
        } else {
            Err(outside())
        }
    }

    const fn bytes_of(&self, segment: Segment) -> Range<u64> {
        let base = self.area.start;
        base + (segment.start << self.shift)..base + (segment.end << self.shift)
    }

    fn first_after(&self, at: u64) -> Position {
        on_tree!(&self.tree, segments => segments.first_after(at))
    }

    fn get(&self, at: Position) -> Option<Segment> {
        on_tree!(&self.tree, segments => segments.get(at))
    }

    fn before(&self, at: Position) -> Option<(Position, Segment)> {
        on_tree!(&self.tree, segments => segments.before(at))
    }

    fn resize(&mut self, at: Position, old: Segment, new: Segment) {
        on_tree!(&mut self.tree, segments => segments.replace(at, new));
        self.count(old, -1);
        self.count(new, 1);
    }

    /// Removes `gone` from the segment `there` that contains it.
    fn cut(&mut self, at: Position, there: Segment, gone: Segment) {
        self.units -= gone.end - gone.start;
        let left = Segment { start: there.start, end: gone.start };
        let right = Segment { start: gone.end, end: there.end };
        match (left.start < left.end, right.start < right.end) {
            (false, false) => {
                on_tree!(&mut self.tree, segments => segments.remove(at));
                self.count(there, -1);
            }
            (true, false) => self.resize(at, there, left),
            (false, true) => self.resize(at, there, right),
            (true, true) => {
                self.resize(at, there, right);
                on_tree!(&mut self.tree, segments => segments.insert(at, left));
                self.count(left, 1);
            }
        }
    }

    fn count(&mut self, segment: Segment, change: i64) {
        let bytes = (segment.end - segment.start) << self.shift;
        let bucket = bytes.checked_ilog2().unwrap_or(0) as usize;
        if let Some(count) = self.histogram.get_mut(bucket) {
            *count = count.wrapping_add_signed(change);
        }
        match &mut self.by_size {
            Some(index) if change > 0 => index.insert(segment),
            Some(index) => index.remove(segment),
            None => {}
        }
    }
}

/// Applies a range to a pair of opposite trees: the part in `cancel` is removed from it, the rest
/// is added to `into` (spec 06, section 13.4).
///
/// This keeps the allocations and frees that a metaslab's own map does not have yet: an
/// allocation of a range whose free is pending cancels it.
pub fn cancel_or_add(
    range: Range<u64>,
    cancel: &mut RangeTree,
    into: &mut RangeTree,
) -> Result<(), RangeError> {
    let mut start = range.start;
    while start < range.end {
        match cancel.first_overlap(start..range.end)? {
            Some(overlap) => {
                if start < overlap.start {
                    into.add(start..overlap.start)?;
                }
                start = overlap.end;
                cancel.remove(overlap)?;
            }
            None => {
                into.add(start..range.end)?;
                start = range.end;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
