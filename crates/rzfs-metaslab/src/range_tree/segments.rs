//! The ordered set of segments below a range tree: a B+ tree of two levels.
//!
//! ```text
//! heads   | first start of leaf 0 | of leaf 1 | of leaf 2 | ...      one array, binary search
//! leaves  | up to 512 segments    |           |           | ...      each sorted, binary search
//! ```
//! Leaves hold eight-byte segments of two 32-bit units where the area allows it, so a full leaf
//! is one page. The root is an array without a limit. A split or a merge of leaves shifts it, but
//! that happens once in 256 changes: at a million leaves, which is more than any metaslab has,
//! the amortised cost is still below that of shifting half a leaf.
//!
//! Invariants: segments are disjoint and do not touch, no leaf is empty, `heads[i]` is the start
//! of `leaves[i]`'s first segment.

/// A number of units: 32 bits where the area is small enough.
pub(super) trait Unit: Copy + Ord + Into<u64> {
    /// Cuts to the width of the type; the range tree has checked the range.
    fn cut(value: u64) -> Self;
}

impl Unit for u32 {
    fn cut(value: u64) -> Self {
        value as Self
    }
}

impl Unit for u64 {
    fn cut(value: u64) -> Self {
        value
    }
}

/// Units from `start` up to but excluding `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stored<U> {
    start: U,
    end: U,
}

impl<U: Unit> Stored<U> {
    fn get(self) -> Segment {
        Segment { start: self.start.into(), end: self.end.into() }
    }
}

/// Most segments of a leaf.
const LEAF_CAPACITY: usize = 512;
/// A leaf with fewer segments is merged with a neighbour when both fit into half a leaf more.
const LEAF_MINIMUM: usize = LEAF_CAPACITY / 4;

/// Where a segment is. Valid until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    leaf: usize,
    index: usize,
}

/// The ordered set of segments.
#[derive(Clone, Debug)]
pub(super) struct Segments<U> {
    heads: Vec<U>,
    leaves: Vec<Vec<Stored<U>>>,
    count: usize,
}

impl<U: Unit> Segments<U> {
    pub(super) const fn new() -> Self {
        Self { heads: Vec::new(), leaves: Vec::new(), count: 0 }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the leaves and the root.
    pub(super) fn memory(&self) -> usize {
        let stored = size_of::<Stored<U>>();
        let leaves: usize = self.leaves.iter().map(|leaf| leaf.capacity() * stored).sum();
        leaves
            + self.leaves.capacity() * size_of::<Vec<Stored<U>>>()
            + self.heads.capacity() * size_of::<U>()
    }

    /// The place of the first segment that ends after `at`; it may be the end of the set.
    pub(super) fn first_after(&self, at: u64) -> Position {
        let leaf = self.heads.partition_point(|&head| head.into() <= at).saturating_sub(1);
        let index = self
            .leaves
            .get(leaf)
            .map_or(0, |segments| segments.partition_point(|segment| segment.end.into() <= at));
        Position { leaf, index }
    }

    fn stored(&self, at: Position) -> Option<Stored<U>> {
        let leaf = self.leaves.get(at.leaf)?;
        match leaf.get(at.index) {
            Some(segment) => Some(*segment),
            None => self.leaves.get(at.leaf + 1)?.first().copied(),
        }
    }

    /// The segment at a place.
    pub(super) fn get(&self, at: Position) -> Option<Segment> {
        self.stored(at).map(Stored::get)
    }

    /// The segment before a place, and where it is.
    pub(super) fn before(&self, at: Position) -> Option<(Position, Segment)> {
        let previous = match at.index.checked_sub(1) {
            Some(index) => Position { leaf: at.leaf, index },
            None => {
                let leaf = at.leaf.checked_sub(1)?;
                Position { leaf, index: self.leaves.get(leaf)?.len().checked_sub(1)? }
            }
        };
        self.get(previous).map(|segment| (previous, segment))
    }

    /// The place as an existing segment's own, where "after the last of a leaf" means the first
    /// of the next one.
    fn settle(&self, at: Position) -> Position {
        match self.leaves.get(at.leaf) {
            Some(leaf) if at.index >= leaf.len() => Position { leaf: at.leaf + 1, index: 0 },
            _ => at,
        }
    }

    /// Replaces the segment at a place by one in the same gap.
    pub(super) fn replace(&mut self, at: Position, with: Segment) {
        let at = self.settle(at);
        let Some(leaf) = self.leaves.get_mut(at.leaf) else { return };
        if let Some(segment) = leaf.get_mut(at.index) {
            *segment = Stored { start: U::cut(with.start), end: U::cut(with.end) };
        }
        if at.index == 0
            && let Some(head) = self.heads.get_mut(at.leaf)
        {
            *head = U::cut(with.start);
        }
    }

    /// Inserts a segment before the one at a place.
    pub(super) fn insert(&mut self, at: Position, segment: Segment) {
        let stored = Stored { start: U::cut(segment.start), end: U::cut(segment.end) };
        self.count += 1;
        if self.leaves.is_empty() {
            self.heads.push(stored.start);
            self.leaves.push(vec![stored]);
            return;
        }
        let at = self.make_room(at);
        let Some(leaf) = self.leaves.get_mut(at.leaf) else { return };
        leaf.insert(at.index.min(leaf.len()), stored);
        if at.index == 0
            && let Some(head) = self.heads.get_mut(at.leaf)
        {
            *head = stored.start;
        }
    }

    /// Splits the leaf if it is full; the place where the insertion then goes.
    ///
    /// A leaf that grows at its end, as in a load in ascending order, is left full and a new one
    /// is begun.
    fn make_room(&mut self, at: Position) -> Position {
        let Some(leaf) = self.leaves.get_mut(at.leaf) else { return at };
        if leaf.len() < LEAF_CAPACITY {
            return at;
        }
        let ascending = at.index == leaf.len() && at.leaf + 1 == self.heads.len();
        let middle = if ascending { LEAF_CAPACITY - 1 } else { LEAF_CAPACITY / 2 };
        let upper = leaf.split_off(middle);
        if let Some(first) = upper.first() {
            self.heads.insert(at.leaf + 1, first.start);
            self.leaves.insert(at.leaf + 1, upper);
        }
        if at.index <= middle {
            at
        } else {
            Position { leaf: at.leaf + 1, index: at.index - middle }
        }
    }

    /// Removes the segment at a place.
    pub(super) fn remove(&mut self, at: Position) {
        let at = self.settle(at);
        let Some(leaf) = self.leaves.get_mut(at.leaf) else { return };
        if at.index >= leaf.len() {
            return;
        }
        leaf.remove(at.index);
        self.count -= 1;
        match leaf.first() {
            None => self.drop_leaf(at.leaf),
            Some(first) => {
                if let Some(head) = self.heads.get_mut(at.leaf) {
                    *head = first.start;
                }
                self.merge_small(at.leaf);
            }
        }
    }

    fn drop_leaf(&mut self, leaf: usize) {
        self.leaves.remove(leaf);
        self.heads.remove(leaf);
    }

    /// Joins a leaf that became small with its successor, or its predecessor if it is the last.
    fn merge_small(&mut self, leaf: usize) {
        if self.leaves.get(leaf).is_none_or(|segments| segments.len() >= LEAF_MINIMUM) {
            return;
        }
        let left = if leaf + 1 < self.leaves.len() { leaf } else { leaf.saturating_sub(1) };
        let Some([a, b]) = self.leaves.get_mut(left..left + 2) else { return };
        if a.len() + b.len() <= LEAF_CAPACITY * 3 / 4 {
            a.append(b);
            self.drop_leaf(left + 1);
        }
    }

    /// All segments from a place on, ascending.
    pub(super) fn iter_from(&self, at: Position) -> impl Iterator<Item = Segment> + '_ {
        let first = self.leaves.get(at.leaf).and_then(|leaf| leaf.get(at.index..)).unwrap_or(&[]);
        let rest = self.leaves.get(at.leaf + 1..).unwrap_or(&[]);
        first.iter().chain(rest.iter().flatten()).map(|segment| segment.get())
    }

    /// The place of the first segment.
    pub(super) const fn start(&self) -> Position {
        Position { leaf: 0, index: 0 }
    }

    /// Panics if an invariant of the structure is broken; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.heads.len(), self.leaves.len());
        let mut previous = None;
        for (head, leaf) in self.heads.iter().zip(&self.leaves) {
            assert!(!leaf.is_empty() && leaf.len() <= LEAF_CAPACITY);
            let head: u64 = (*head).into();
            assert_eq!(head, leaf[0].get().start);
            for segment in leaf {
                let segment = segment.get();
                assert!(segment.start < segment.end);
                assert!(previous.is_none_or(|end| end < segment.start), "touching segments");
                previous = Some(segment.end);
            }
        }
        assert_eq!(self.count, self.leaves.iter().map(Vec::len).sum::<usize>());
    }
}
