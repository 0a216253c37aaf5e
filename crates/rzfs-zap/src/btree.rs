//! A compact B-tree of small elements, in memory (spec 03, section 13).
//!
//! ```text
//!              core: [ s0 | s1 | ... ]           up to 126 separators, 127 children
//!                   /     |     \
//!   leaf: [a b c ..]  [d e ..]   [f g ..]        a fixed number of bytes each
//! ```
//! Elements are copied into the nodes and each is there once: the separators of core nodes are
//! elements like those in leaves. All leaves have the same depth. Nodes live in two arrays and
//! refer to each other by 32-bit numbers, so that an element of 8 bytes costs little more than its
//! 8 bytes: a tree built from sorted elements has full leaves, one that grew by ascending
//! insertions has leaves three quarters full, and random insertions leave them two thirds full.
//!
//! Invariants: every leaf but a root has at least one element; every core has one child more than
//! separators, and at least two; elements ascend strictly over the whole tree. Removal keeps all
//! nodes but those on the right edge at least half full where its rebalancing passes.

mod iter;
mod leaf;
mod remove;

pub use iter::Iter;
use leaf::Leaf;

use std::fmt;

/// Separators that a core node holds.
const CORE_CAPACITY: usize = 126;
/// Levels of a tree with 2^32 nodes, generously.
const MAX_DEPTH: usize = 12;

/// A sorted set of small elements.
#[derive(Clone)]
pub struct BTree<T> {
    cores: Vec<Core<T>>,
    leaves: Vec<Leaf<T>>,
    free_cores: Vec<u32>,
    free_leaves: Vec<u32>,
    /// The root: a leaf when `depth` is 0, else a core.
    root: u32,
    /// Levels of cores above the leaves.
    depth: usize,
    len: usize,
    leaf_capacity: usize,
}

#[derive(Clone)]
struct Core<T> {
    separators: Vec<T>,
    children: Vec<u32>,
}

impl<T> Core<T> {
    fn heap_bytes(&self) -> usize {
        self.separators.capacity() * size_of::<T>() + self.children.capacity() * size_of::<u32>()
    }
}

/// What an insertion into a node left to its parent: the separator and the new right sibling.
type Split<T> = Option<(T, u32)>;

impl<T: Copy + Ord> BTree<T> {
    /// Bytes of a leaf's elements unless one asks for another size.
    pub const DEFAULT_LEAF_BYTES: usize = 4096;

    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::with_leaf_bytes(Self::DEFAULT_LEAF_BYTES)
    }

    /// An empty tree whose leaves hold `bytes` of elements, at least four each.
    ///
    /// Small leaves make insertions in random order cheap, large ones scans and memory.
    #[must_use]
    pub fn with_leaf_bytes(bytes: usize) -> Self {
        let leaf_capacity = (bytes / size_of::<T>().max(1)).clamp(4, usize::from(u16::MAX)) & !1;
        Self {
            cores: Vec::new(),
            leaves: vec![Leaf::new()],
            free_cores: Vec::new(),
            free_leaves: Vec::new(),
            root: 0,
            depth: 0,
            len: 0,
            leaf_capacity,
        }
    }

    /// A tree of the given elements with leaves as full as they get, or `None` unless the
    /// elements ascend strictly.
    #[must_use]
    pub fn from_sorted(elements: &[T], leaf_bytes: usize) -> Option<Self> {
        if !elements.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut tree = Self::with_leaf_bytes(leaf_bytes);
        if elements.is_empty() {
            return Some(tree);
        }
        tree.leaves.clear();
        tree.len = elements.len();
        let mut separators = Vec::new();
        let mut nodes: Vec<u32> = Vec::new();
        deal(elements, tree.leaf_capacity, &mut separators, |part| {
            nodes.push(tree.leaves.len() as u32);
            tree.leaves.push(Leaf::from_slice(part));
        });
        while nodes.len() > 1 {
            let mut above = Vec::new();
            let mut parents: Vec<u32> = Vec::new();
            let mut children = nodes.into_iter();
            deal(&separators, CORE_CAPACITY, &mut above, |part| {
                let children = children.by_ref().take(part.len() + 1).collect();
                parents.push(tree.cores.len() as u32);
                tree.cores.push(Core { separators: part.to_vec(), children });
            });
            nodes = parents;
            separators = above;
            tree.depth += 1;
        }
        tree.root = nodes.first().copied().unwrap_or(0);
        Some(tree)
    }

    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that the tree takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().map(Leaf::heap_bytes).sum();
        let cores: usize = self.cores.iter().map(Core::heap_bytes).sum();
        let free = (self.free_cores.capacity() + self.free_leaves.capacity()) * size_of::<u32>();
        size_of::<Self>()
            + leaves
            + cores
            + free
            + self.leaves.capacity() * size_of::<Leaf<T>>()
            + self.cores.capacity() * size_of::<Core<T>>()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        let bytes = self.leaf_capacity * size_of::<T>().max(1);
        *self = Self::with_leaf_bytes(bytes);
    }

    /// Whether the element is there.
    #[must_use]
    pub fn contains(&self, element: &T) -> bool {
        self.range_from(element).next() == Some(*element)
    }

    /// The smallest element.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    /// The largest element.
    #[must_use]
    pub fn last(&self) -> Option<T> {
        let mut node = self.root;
        for _ in 0..self.depth {
            node = *self.cores[node as usize].children.last()?;
        }
        self.leaves[node as usize].as_slice().last().copied()
    }

    /// Adds an element; `false` if it is there already.
    ///
    /// # Panics
    /// When the tree would have 2^32 nodes.
    pub fn insert(&mut self, element: T) -> bool {
        let mut path = [(0, 0); MAX_DEPTH];
        let mut node = self.root;
        let mut at_end = true;
        for step in path.iter_mut().take(self.depth) {
            let core = &self.cores[node as usize];
            let Err(slot) = core.separators.binary_search(&element) else { return false };
            at_end &= slot == core.separators.len();
            *step = (node, slot);
            node = core.children[slot];
        }
        let leaf = &mut self.leaves[node as usize];
        let Err(slot) = leaf.as_slice().binary_search(&element) else { return false };
        at_end &= slot == leaf.len();
        self.len += 1;
        if leaf.len() < self.leaf_capacity {
            leaf.insert(slot, element, self.leaf_capacity);
            return true;
        }
        let mut split = self.split_leaf(node, slot, element, at_end);
        for &(core, slot) in path.iter().take(self.depth).rev() {
            let Some((separator, right)) = split else { return true };
            split = self.insert_child(core, slot, separator, right, at_end);
        }
        if let Some((separator, right)) = split {
            let root = Core { separators: vec![separator], children: vec![self.root, right] };
            self.root = self.add_core(root);
            self.depth += 1;
        }
        true
    }

    /// Splits a full leaf around its middle, or near its end when the tree grows at its end, and
    /// adds the element to the part where it belongs.
    fn split_leaf(&mut self, node: u32, slot: usize, element: T, at_end: bool) -> Split<T> {
        let capacity = self.leaf_capacity;
        let left = &mut self.leaves[node as usize];
        let keep = split_point(left.len(), at_end);
        let mut right = left.split_off(keep);
        if slot <= keep {
            left.insert(slot, element, capacity);
        } else {
            right.insert(slot - keep, element, capacity);
        }
        let separator = right.pop_first()?;
        Some((separator, self.add_leaf(right)))
    }

    /// Adds the right half of a split child to a core, which may split in turn.
    fn insert_child(
        &mut self,
        node: u32,
        slot: usize,
        separator: T,
        child: u32,
        at_end: bool,
    ) -> Split<T> {
        let core = &mut self.cores[node as usize];
        core.separators.insert(slot, separator);
        core.children.insert(slot + 1, child);
        if core.separators.len() <= CORE_CAPACITY {
            return None;
        }
        let keep = split_point(core.separators.len(), at_end);
        let mut separators = core.separators.split_off(keep);
        let middle = separators.remove(0);
        let children = core.children.split_off(keep + 1);
        Some((middle, self.add_core(Core { separators, children })))
    }

    fn add_leaf(&mut self, leaf: Leaf<T>) -> u32 {
        add_node(&mut self.leaves, &mut self.free_leaves, leaf)
    }

    fn add_core(&mut self, core: Core<T>) -> u32 {
        add_node(&mut self.cores, &mut self.free_cores, core)
    }
}

fn add_node<N>(nodes: &mut Vec<N>, free: &mut Vec<u32>, node: N) -> u32 {
    if let Some(index) = free.pop() {
        nodes[index as usize] = node;
        return index;
    }
    nodes.push(node);
    u32::try_from(nodes.len() - 1).expect("a tree has fewer than 2^32 nodes")
}

/// How many of `len` elements stay left when a node splits.
const fn split_point(len: usize, at_end: bool) -> usize {
    if at_end { len - len / 4 - 1 } else { len / 2 }
}

/// Deals elements to as few nodes as can hold them, evenly, with one separator between two nodes.
fn deal<T: Copy>(
    elements: &[T],
    capacity: usize,
    separators: &mut Vec<T>,
    mut node: impl FnMut(&[T]),
) {
    let count = (elements.len() + 1).div_ceil(capacity + 1);
    let inside = elements.len() + 1 - count;
    let mut rest = elements;
    for index in 0..count {
        let size = inside / count + usize::from(index < inside % count);
        let (part, tail) = rest.split_at(size);
        node(part);
        rest = match tail.split_first() {
            Some((separator, tail)) => {
                separators.push(*separator);
                tail
            }
            None => tail,
        };
    }
}

impl<T: Copy + Ord> Default for BTree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy + Ord + fmt::Debug> fmt::Debug for BTree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
