//! Removal, and the rebalancing after it.

use super::{BTree, CORE_CAPACITY, Core, Leaf, MAX_DEPTH};

impl<T: Copy + Ord> BTree<T> {
    /// Removes an element; `false` if it is not there.
    pub fn remove(&mut self, element: &T) -> bool {
        let mut path = [(0, 0); MAX_DEPTH];
        let mut node = self.root;
        let mut found_above = None;
        for (level, step) in path.iter_mut().enumerate().take(self.depth) {
            let core = &self.cores[node as usize];
            // Left of a separator that is the element itself, to the element before it.
            let slot = match found_above {
                None => match core.separators.binary_search(element) {
                    Ok(slot) => {
                        found_above = Some(level);
                        slot
                    }
                    Err(slot) => slot,
                },
                Some(_) => core.separators.len(),
            };
            *step = (node, slot);
            node = core.children[slot];
        }
        let leaf = &mut self.leaves[node as usize];
        match found_above {
            Some(level) => {
                // The element before the separator takes its place.
                let last = leaf.remove(leaf.len() - 1);
                let (core, slot) = path[level];
                self.cores[core as usize].separators[slot] = last;
            }
            None => match leaf.as_slice().binary_search(element) {
                Ok(slot) => {
                    leaf.remove(slot);
                }
                Err(_) => return false,
            },
        }
        self.len -= 1;
        self.rebalance(&path[..self.depth]);
        true
    }

    /// Merges or evens out nodes that got less than half full, from the leaf upwards.
    fn rebalance(&mut self, path: &[(u32, usize)]) {
        let Some((&(parent, slot), above)) = path.split_last() else { return };
        let child = self.cores[parent as usize].children[slot];
        if self.leaves[child as usize].len() >= self.leaf_capacity / 2 {
            return;
        }
        self.join_leaves(parent, slot.saturating_sub(1));
        let mut node = parent;
        for &(parent, slot) in above.iter().rev() {
            if self.cores[node as usize].separators.len() >= CORE_CAPACITY / 2 {
                return;
            }
            self.join_cores(parent, slot.saturating_sub(1));
            node = parent;
        }
        if self.cores[self.root as usize].separators.is_empty() {
            let core = self.take_core(self.root);
            self.root = core.children[0];
            self.depth -= 1;
        }
    }

    /// Makes one leaf of the children `slot` and `slot + 1` of a core if it holds both, else
    /// gives each of them half of the elements.
    fn join_leaves(&mut self, parent: u32, slot: usize) {
        let core = &mut self.cores[parent as usize];
        let (left, right) = (core.children[slot] as usize, core.children[slot + 1] as usize);
        let mut all = Vec::with_capacity(2 * self.leaf_capacity + 1);
        all.extend_from_slice(self.leaves[left].as_slice());
        all.push(core.separators[slot]);
        all.extend_from_slice(self.leaves[right].as_slice());
        if all.len() <= self.leaf_capacity {
            core.separators.remove(slot);
            core.children.remove(slot + 1);
            self.leaves[left] = Leaf::from_slice(&all);
            self.leaves[right] = Leaf::new();
            self.free_leaves.push(right as u32);
        } else {
            let middle = all.len() / 2;
            core.separators[slot] = all[middle];
            self.leaves[left] = Leaf::from_slice(&all[..middle]);
            self.leaves[right] = Leaf::from_slice(&all[middle + 1..]);
        }
    }

    /// The same for children that are cores.
    fn join_cores(&mut self, parent: u32, slot: usize) {
        let core = &self.cores[parent as usize];
        let (left, right) = (core.children[slot], core.children[slot + 1]);
        let separator = core.separators[slot];
        let mut joined = self.take_core(left);
        let tail = self.take_core(right);
        joined.separators.push(separator);
        joined.separators.extend_from_slice(&tail.separators);
        joined.children.extend_from_slice(&tail.children);
        if joined.separators.len() <= CORE_CAPACITY {
            let core = &mut self.cores[parent as usize];
            core.separators.remove(slot);
            core.children.remove(slot + 1);
            let node = self.add_core(joined);
            self.cores[parent as usize].children[slot] = node;
        } else {
            let middle = joined.separators.len() / 2;
            let mut separators = joined.separators.split_off(middle);
            let separator = separators.remove(0);
            let children = joined.children.split_off(middle + 1);
            let right = self.add_core(Core { separators, children });
            let left = self.add_core(joined);
            let core = &mut self.cores[parent as usize];
            core.separators[slot] = separator;
            core.children[slot] = left;
            core.children[slot + 1] = right;
        }
    }

    /// Empties a core's place and returns what was there.
    fn take_core(&mut self, node: u32) -> Core<T> {
        self.free_cores.push(node);
        let empty = Core { separators: Vec::new(), children: Vec::new() };
        std::mem::replace(&mut self.cores[node as usize], empty)
    }
}
