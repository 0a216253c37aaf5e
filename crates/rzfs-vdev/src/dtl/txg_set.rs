//! Sets of transaction groups.

use rzfs_format::Txg;

/// A set of txgs as half-open ranges, sorted and disjoint, neighbours joined.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TxgSet {
    ranges: Vec<(u64, u64)>,
}

impl TxgSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Every txg.
    #[must_use]
    pub fn all() -> Self {
        Self { ranges: vec![(0, u64::MAX)] }
    }

    /// The set of all txgs in these half-open ranges, in any order; empty ones are skipped.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = (Txg, Txg)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = ranges
            .into_iter()
            .map(|(start, end)| (start.get(), end.get()))
            .filter(|(start, end)| start < end)
            .collect();
        sorted.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for (start, end) in sorted {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        Self { ranges: joined }
    }

    /// Adds a txg.
    pub fn insert(&mut self, txg: Txg) {
        if !self.contains(txg) {
            let one = (txg, txg.next());
            *self = Self::from_ranges(self.ranges().chain([one]).collect::<Vec<_>>());
        }
    }

    /// Whether the txg is in the set.
    #[must_use]
    pub fn contains(&self, txg: Txg) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start <= txg.get());
        after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index))
            .is_some_and(|(_, end)| txg.get() < *end)
    }

    /// Whether no txg is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending, `start` included and `end` not.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (Txg, Txg)> + '_ {
        self.ranges.iter().map(|(start, end)| (Txg(*start), Txg(*end)))
    }

    /// Adds a half-open range.
    pub fn insert_range(&mut self, start: Txg, end: Txg) {
        *self = Self::from_ranges(self.ranges().chain([(start, end)]).collect::<Vec<_>>());
    }

    /// Removes all txgs below `end`.
    pub fn remove_below(&mut self, end: Txg) {
        let rest = self.ranges().map(|(start, stop)| (start.max(end), stop));
        *self = Self::from_ranges(rest.collect::<Vec<_>>());
    }

    /// The txgs that are in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges().chain(other.ranges()).collect::<Vec<_>>())
    }

    /// The txgs that are in at least `count` of these sets; every txg for a count of 0.
    #[must_use]
    pub fn in_at_least(count: usize, sets: &[Self]) -> Self {
        if count == 0 {
            return Self::all();
        }
        // Where ranges begin and end; an end comes before a beginning at the same place.
        let mut edges: Vec<(u64, bool)> = Vec::new();
        for (start, end) in sets.iter().flat_map(|set| &set.ranges) {
            edges.extend([(*start, true), (*end, false)]);
        }
        edges.sort_unstable();
        let (mut depth, mut since) = (0usize, None);
        let mut ranges = Vec::new();
        for (at, begins) in edges {
            depth = if begins { depth + 1 } else { depth.saturating_sub(1) };
            match since {
                None if depth >= count => since = Some(at),
                Some(start) if depth < count => {
                    ranges.push((Txg(start), Txg(at)));
                    since = None;
                }
                _ => {}
            }
        }
        Self::from_ranges(ranges)
    }

    /// The smallest txg.
    #[must_use]
    pub fn first(&self) -> Option<Txg> {
        self.ranges.first().map(|(start, _)| Txg(*start))
    }

    /// The greatest txg.
    #[must_use]
    pub fn last(&self) -> Option<Txg> {
        self.ranges.last().map(|(_, end)| Txg(end.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_of_the_format_description() {
        let ranges = [(34, 43), (21, 22), (24, 26), (31, 32), (26, 26)];
        let set = TxgSet::from_ranges(ranges.map(|(a, b)| (Txg(a), Txg(b))));
        for (txg, missing) in
            [(20, false), (21, true), (22, false), (25, true), (26, false), (42, true), (43, false)]
        {
            assert_eq!(set.contains(Txg(txg)), missing, "{txg}");
        }
        assert!(!TxgSet::new().contains(Txg(0)));
        assert!(TxgSet::all().contains(Txg(u64::MAX - 1)));
    }

    proptest! {
        #[test]
        fn a_set_holds_exactly_its_ranges(ranges in prop::collection::vec((0u64..64, 0u64..64), 0..8)) {
            let set = TxgSet::from_ranges(ranges.iter().map(|&(a, b)| (Txg(a), Txg(b))));
            for txg in 0..65 {
                let expected = ranges.iter().any(|&(a, b)| a <= txg && txg < b);
                prop_assert_eq!(set.contains(Txg(txg)), expected);
                let mut more = set.clone();
                more.insert(Txg(txg));
                let one = (Txg(txg), Txg(txg + 1));
                prop_assert_eq!(more, TxgSet::from_ranges(set.ranges().chain([one])));
            }
            let mut later = set.clone();
            later.remove_below(Txg(20));
            prop_assert_eq!(set.first().is_none(), set.is_empty());
            for txg in 0..65 {
                prop_assert_eq!(later.contains(Txg(txg)), txg >= 20 && set.contains(Txg(txg)));
                if set.contains(Txg(txg)) {
                    prop_assert!(set.first() <= Some(Txg(txg)) && set.last() >= Some(Txg(txg)));
                }
            }
            let flat: Vec<u64> = set.ranges().flat_map(|(a, b)| [a.get(), b.get()]).collect();
            prop_assert!(flat.windows(2).all(|pair| pair[0] < pair[1]));
        }

        #[test]
        fn a_txg_counts_once_for_each_set_that_has_it(
            sets in prop::collection::vec(prop::collection::vec((0u64..40, 0u64..40), 0..5), 0..5),
            count in 0usize..5,
        ) {
            let sets: Vec<TxgSet> = sets
                .iter()
                .map(|ranges| TxgSet::from_ranges(ranges.iter().map(|&(a, b)| (Txg(a), Txg(b)))))
                .collect();
            let found = TxgSet::in_at_least(count, &sets);
            let union = sets.iter().fold(TxgSet::new(), |all, set| all.union(set));
            for txg in 0..41 {
                let depth = sets.iter().filter(|set| set.contains(Txg(txg))).count();
                prop_assert_eq!(found.contains(Txg(txg)), depth >= count);
                prop_assert_eq!(union.contains(Txg(txg)), depth >= 1);
            }
        }
    }
}
