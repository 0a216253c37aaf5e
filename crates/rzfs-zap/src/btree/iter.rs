//! Iteration in ascending order.

use super::{BTree, MAX_DEPTH};

/// Elements of a tree, ascending.
#[derive(Clone)]
pub struct Iter<'a, T> {
    tree: &'a BTree<T>,
    /// The cores above the leaf, from the root, each with the slot of the separator that comes
    /// after the child below.
    path: [(u32, usize); MAX_DEPTH],
    /// What is left of the current leaf.
    leaf: &'a [T],
}

impl<T: Copy + Ord> BTree<T> {
    /// All elements, ascending.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self, |_| 0)
    }

    /// The elements from `start` on, ascending.
    #[must_use]
    pub fn range_from(&self, start: &T) -> Iter<'_, T> {
        Iter::new(self, |elements| elements.partition_point(|element| element < start))
    }
}

impl<'a, T: Copy + Ord> IntoIterator for &'a BTree<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Copy + Ord> Iter<'a, T> {
    /// Begins at the place that `seek` chooses in each node on the way down.
    fn new(tree: &'a BTree<T>, seek: impl Fn(&[T]) -> usize) -> Self {
        let mut iter = Self { tree, path: [(0, 0); MAX_DEPTH], leaf: &[] };
        let mut node = tree.root;
        for step in iter.path.iter_mut().take(tree.depth) {
            let core = &tree.cores[node as usize];
            let slot = seek(&core.separators);
            *step = (node, slot);
            node = core.children[slot];
        }
        let elements = tree.leaves[node as usize].as_slice();
        iter.leaf = &elements[seek(elements)..];
        iter
    }

    /// The next separator above; the leaf after it becomes the current one.
    fn climb(&mut self) -> Option<T> {
        let depth = self.tree.depth;
        let level = (0..depth).rev().find(|&level| {
            let (node, slot) = self.path[level];
            slot < self.tree.cores[node as usize].separators.len()
        })?;
        let (node, slot) = &mut self.path[level];
        let core = &self.tree.cores[*node as usize];
        let separator = core.separators[*slot];
        *slot += 1;
        let mut child = core.children[*slot];
        for step in &mut self.path[level + 1..depth] {
            *step = (child, 0);
            child = self.tree.cores[child as usize].children[0];
        }
        self.leaf = self.tree.leaves[child as usize].as_slice();
        Some(separator)
    }
}

impl<T: Copy + Ord> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if let Some((&element, rest)) = self.leaf.split_first() {
            self.leaf = rest;
            return Some(element);
        }
        self.climb()
    }
}
