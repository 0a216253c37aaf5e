//! Dirty time logs: the transaction groups whose data a leaf lacks (spec 07, section 5).

use parking_lot::RwLock;
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
}

/// What a leaf lacks, as far as it is known.
#[derive(Debug)]
pub(crate) struct DirtyTimeLog(RwLock<Missing>);

#[derive(Debug)]
enum Missing {
    /// The log was not loaded; a leaf that waits for a resilver then counts as empty.
    Unknown {
        /// Whether the configuration says that a resilver or rebuild was requested.
        waits_for_resilver: bool,
    },
    /// The log's contents.
    Known(TxgSet),
}

impl DirtyTimeLog {
    /// A log that is still to be loaded.
    pub(crate) fn unloaded(waits_for_resilver: bool) -> Self {
        Self(RwLock::new(Missing::Unknown { waits_for_resilver }))
    }

    pub(crate) fn load(&self, missing: TxgSet) {
        *self.0.write() = Missing::Known(missing);
    }

    /// Notes that the leaf lacks something that was born in `birth`. A log that is still to be
    /// loaded begins with it, unless the leaf counts as empty anyway.
    pub(crate) fn add(&self, birth: Txg) {
        let mut log = self.0.write();
        match &mut *log {
            Missing::Unknown { waits_for_resilver: true } => {}
            Missing::Unknown { waits_for_resilver: false } => {
                *log = Missing::Known(TxgSet::from_ranges([(birth, birth.next())]));
            }
            Missing::Known(missing) => missing.insert(birth),
        }
    }

    /// What is known to be missing; `None` if that is not known.
    pub(crate) fn get(&self) -> Option<TxgSet> {
        match &*self.0.read() {
            Missing::Unknown { .. } => None,
            Missing::Known(missing) => Some(missing.clone()),
        }
    }

    /// Whether what was born in `birth` is known to be missing.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        match &*self.0.read() {
            Missing::Unknown { waits_for_resilver } => *waits_for_resilver,
            Missing::Known(missing) => missing.contains(birth),
        }
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
            let flat: Vec<u64> = set.ranges().flat_map(|(a, b)| [a.get(), b.get()]).collect();
            prop_assert!(flat.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
