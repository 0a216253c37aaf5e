//! Enumerating possible errors of a block: combinations, the likely ones first.

/// All sets of `size` indices below `count`, the lowest index varying fastest:
/// 01, 02, 12, 03, 13, 23, ...
pub(super) struct Combinations {
    count: usize,
    next: Option<Vec<usize>>,
}

impl Combinations {
    pub(super) fn new(count: usize, size: usize) -> Self {
        Self { count, next: (size <= count).then(|| (0..size).collect()) }
    }

    /// The successor of a set: the lowest index that has room moves up, those below it are reset.
    fn successor(&self, set: &[usize]) -> Option<Vec<usize>> {
        let limit = |position: usize| set.get(position + 1).copied().unwrap_or(self.count);
        let position =
            set.iter().enumerate().position(|(position, index)| index + 1 < limit(position))?;
        let mut next = set.to_vec();
        for (below, index) in next.iter_mut().enumerate().take(position) {
            *index = below;
        }
        if let Some(index) = next.get_mut(position) {
            *index += 1;
        }
        Some(next)
    }
}

impl Iterator for Combinations {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let set = self.next.take()?;
        self.next = self.successor(&set);
        Some(set)
    }
}

/// All selections of one of several versions for each column, those that differ from the first
/// selection in the fewest columns first.
pub(super) struct Selections {
    /// Columns with more than one version, and how many there are.
    open: Vec<(usize, usize)>,
    columns: usize,
    sets: Combinations,
    deviations: usize,
    /// The set of open columns that deviate, and the version of each one; the versions count up
    /// like digits.
    current: Option<(Vec<usize>, Vec<usize>)>,
}

impl Selections {
    /// `versions` has the number of versions of each column.
    pub(super) fn new(versions: impl Iterator<Item = usize>) -> Self {
        let mut columns = 0;
        let mut open = Vec::new();
        for (column, count) in versions.enumerate() {
            columns += 1;
            if count > 1 {
                open.push((column, count));
            }
        }
        let sets = Combinations::new(open.len(), 0);
        Self { open, columns, sets, deviations: 0, current: None }
    }

    fn advance(&mut self) -> Option<()> {
        if let Some((set, digits)) = &mut self.current {
            for (digit, column) in digits.iter_mut().zip(set) {
                let versions = self.open.get(*column).map_or(1, |(_, versions)| *versions);
                *digit += 1;
                if *digit < versions {
                    return Some(());
                }
                *digit = 1;
            }
        }
        loop {
            if let Some(set) = self.sets.next() {
                let digits = vec![1; set.len()];
                self.current = Some((set, digits));
                return Some(());
            }
            self.deviations += 1;
            if self.deviations > self.open.len() {
                return None;
            }
            self.sets = Combinations::new(self.open.len(), self.deviations);
        }
    }
}

impl Iterator for Selections {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        self.advance()?;
        let (set, digits) = self.current.as_ref()?;
        let mut selection = vec![0; self.columns];
        for (open, digit) in set.iter().zip(digits) {
            let column = self.open.get(*open).map_or(0, |(column, _)| *column);
            if let Some(version) = selection.get_mut(column) {
                *version = *digit;
            }
        }
        Some(selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_lowest_index_varies_fastest() {
        let pairs: Vec<Vec<usize>> = Combinations::new(4, 2).collect();
        assert_eq!(pairs, [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]);
        assert_eq!(Combinations::new(3, 0).collect::<Vec<_>>(), [Vec::<usize>::new()]);
        assert_eq!(Combinations::new(2, 3).count(), 0);
        assert_eq!(Combinations::new(10, 3).count(), 120);
        assert_eq!(Combinations::new(10, 3).collect::<HashSet<_>>().len(), 120);
    }

    #[test]
    fn every_selection_comes_once_and_near_ones_first() {
        let versions = [1, 3, 1, 2, 2];
        let all: Vec<Vec<usize>> = Selections::new(versions.into_iter()).collect();
        assert_eq!(all.len(), 12);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 12);
        let deviations: Vec<usize> =
            all.iter().map(|s| s.iter().filter(|version| **version > 0).count()).collect();
        assert!(deviations.is_sorted());
        assert_eq!(all[0], [0; 5]);
        assert!(all.iter().all(|s| s.iter().zip(versions).all(|(v, count)| *v < count)));
        assert_eq!(Selections::new([1, 0, 1].into_iter()).count(), 1);
    }
}
