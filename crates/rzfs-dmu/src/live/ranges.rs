//! Sets of block numbers.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, as disjoint ranges that do not touch: start to end.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(super) fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Adds all numbers of `range`.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back()
            && until >= start
        {
            self.ranges.remove(&at);
            start = start.min(at);
            end = end.max(until);
        }
        self.ranges.insert(start, end);
    }

    /// Removes one number.
    pub(super) fn remove(&mut self, number: u64) {
        let Some((&start, &end)) = self.ranges.range(..=number).next_back() else { return };
        if number >= end {
            return;
        }
        self.ranges.remove(&start);
        for part in [start..number, number + 1..end] {
            if !part.is_empty() {
                self.ranges.insert(part.start, part.end);
            }
        }
    }

    /// The first range that contains `number` or follows it.
    pub(super) fn next(&self, number: u64) -> Option<Range<u64>> {
        let before = self.ranges.range(..=number).next_back().filter(|(_, end)| number < **end);
        let next = before.or_else(|| self.ranges.range(number..).next());
        next.map(|(start, end)| *start..*end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((0_u64..40, 0_u64..12), 1..60)) {
            let mut ranges = RangeSet::default();
            let mut model = BTreeSet::new();
            for (at, len) in steps {
                if len == 0 {
                    ranges.remove(at);
                    model.remove(&at);
                } else {
                    ranges.insert(at..at + len);
                    model.extend(at..at + len);
                }
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert!(all.into_iter().flatten().eq(model.iter().copied()));
                prop_assert!((0..60).all(|n| ranges.contains(n) == model.contains(&n)));
            }
        }
    }
}
