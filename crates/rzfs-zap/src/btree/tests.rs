//! The tree against the standard library's, with its invariants checked on the way.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

impl<T: Copy + Ord + fmt::Debug> BTree<T> {
    /// Checks the invariants of the module's documentation.
    fn check(&self) {
        let mut elements = Vec::new();
        let nodes = self.check_node(self.root, self.depth, &mut elements);
        assert!(elements.is_sorted_by(|a, b| a < b));
        assert_eq!(elements.len(), self.len);
        assert_eq!(self.iter().collect::<Vec<_>>(), elements);
        let free = self.free_cores.len() + self.free_leaves.len();
        assert_eq!(nodes + free, self.cores.len() + self.leaves.len(), "a node is lost");
    }

    /// Checks a subtree whose root is `depth` levels above the leaves; returns its nodes.
    fn check_node(&self, node: u32, depth: usize, elements: &mut Vec<T>) -> usize {
        if depth == 0 {
            let leaf = self.leaves[node as usize].as_slice();
            assert!(leaf.len() <= self.leaf_capacity);
            assert!(!leaf.is_empty() || self.depth == 0);
            elements.extend_from_slice(leaf);
            return 1;
        }
        let core = &self.cores[node as usize];
        assert!((1..=CORE_CAPACITY).contains(&core.separators.len()));
        assert_eq!(core.children.len(), core.separators.len() + 1);
        let mut nodes = 1;
        for (slot, child) in core.children.iter().enumerate() {
            nodes += self.check_node(*child, depth - 1, elements);
            elements.extend(core.separators.get(slot));
        }
        nodes
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16),
    Remove(u16),
    /// Removes all elements of a range, which empties whole nodes.
    RemoveRange(u16, u16),
    /// Appends ascending elements, which grows the right edge.
    Append(u16),
    Seek(u16),
}

fn steps(most: u16) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..most;
    prop::collection::vec(
        prop_oneof![
            8 => key.clone().prop_map(Step::Insert),
            4 => key.clone().prop_map(Step::Remove),
            1 => (key.clone(), 0..most / 4).prop_map(|(start, len)| Step::RemoveRange(start, len)),
            1 => (0..200u16).prop_map(Step::Append),
            2 => key.prop_map(Step::Seek),
        ],
        0..300,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_as_the_set_of_the_standard_library(steps in steps(3000), leaf_bytes in 0usize..64) {
        let mut tree = BTree::with_leaf_bytes(leaf_bytes);
        let mut model = BTreeSet::new();
        for step in steps {
            match step {
                Step::Insert(key) => prop_assert_eq!(tree.insert(key), model.insert(key)),
                Step::Remove(key) => prop_assert_eq!(tree.remove(&key), model.remove(&key)),
                Step::RemoveRange(start, len) => {
                    for key in start..start.saturating_add(len) {
                        prop_assert_eq!(tree.remove(&key), model.remove(&key));
                    }
                }
                Step::Append(count) => {
                    let start = model.last().map_or(0, |last| last + 1);
                    for key in start..start.saturating_add(count) {
                        prop_assert_eq!(tree.insert(key), model.insert(key));
                    }
                }
                Step::Seek(key) => {
                    let found: Vec<_> = tree.range_from(&key).take(10).collect();
                    let expected: Vec<_> = model.range(key..).take(10).copied().collect();
                    prop_assert_eq!(found, expected);
                    prop_assert_eq!(tree.contains(&key), model.contains(&key));
                }
            }
            tree.check();
            prop_assert_eq!(tree.first(), model.first().copied());
            prop_assert_eq!(tree.last(), model.last().copied());
        }
    }

    #[test]
    fn sorted_elements_build_the_same_set(len in 0u32..30_000, leaf_bytes in 0usize..600) {
        let elements: Vec<u32> = (0..len).map(|index| index * 3).collect();
        let mut tree = BTree::from_sorted(&elements, leaf_bytes).unwrap();
        tree.check();
        prop_assert!(tree.insert(len * 3 + 1) && tree.insert(1) && tree.remove(&1));
        tree.check();
    }
}

/// Deep trees with the smallest leaves, emptied from either end and from the middle.
#[test]
fn every_order_of_removal_empties_the_tree() {
    let count = 40_000u32;
    let orders: [fn(u32, u32) -> u32; 3] =
        [|index, _| index, |index, count| count - 1 - index, |index, count| (index * 7919) % count];
    for order in orders {
        let mut tree = BTree::with_leaf_bytes(16);
        for key in 0..count {
            assert!(tree.insert((key * 7919) % count));
        }
        assert!(tree.depth >= 2);
        for index in 0..count {
            assert!(tree.remove(&order(index, count)));
            if index % 5000 == 0 {
                tree.check();
            }
        }
        tree.check();
        assert!(tree.is_empty() && tree.depth == 0);
    }
}

#[test]
fn elements_of_eight_bytes_cost_little_more() {
    let sorted: Vec<u64> = (0..2047).collect();
    let packed = BTree::from_sorted(&sorted, 512).unwrap();
    assert!(packed.memory_bytes() < 2047 * 10, "{} bytes", packed.memory_bytes());
    let mut random = BTree::with_leaf_bytes(512);
    let mut ascending = BTree::with_leaf_bytes(512);
    for key in sorted {
        random.insert(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        ascending.insert(key);
    }
    assert!(ascending.memory_bytes() < 2047 * 15, "{} bytes", ascending.memory_bytes());
    assert!(random.memory_bytes() < 2047 * 17, "{} bytes", random.memory_bytes());
    assert!(BTree::from_sorted(&[1u64, 2], 512).unwrap().memory_bytes() < 400);
}

#[test]
fn unsorted_elements_and_duplicates_are_refused() {
    assert!(BTree::from_sorted(&[1, 3, 2], 512).is_none());
    assert!(BTree::from_sorted(&[1, 1], 512).is_none());
    let mut tree = BTree::from_sorted(&[1, 2], 512).unwrap();
    assert!(!tree.insert(2) && !tree.remove(&3));
    tree.clear();
    assert_eq!((tree.len(), tree.first(), tree.last()), (0, None, None));
}
