//! Entries with stable numbers, each in at most one of several doubly linked lists.
//!
//! The lists of a cache shard share one slab: moving an entry from one list to another is a few
//! stores, without allocation and without `unsafe`.

/// The number of no entry.
const NONE: u32 = u32::MAX;

/// Entries, some of them in lists.
///
/// The links lie apart from the entries: to move an entry touches its neighbours' links, which are
/// anywhere in memory, and of links eight fit in a cache line.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    links: Vec<Links>,
    /// The first free place; they are chained by `next`.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

/// A list of entries of one [`Slab`], newest in front.
#[derive(Debug)]
pub(crate) struct List {
    front: u32,
    back: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { front: NONE, back: NONE };

    /// The oldest entry.
    pub(crate) fn back(&self) -> Option<u32> {
        (self.back != NONE).then_some(self.back)
    }
}

impl<T> Slab<T> {
    /// Bytes that an entry needs.
    pub(crate) const ENTRY_SIZE: usize = size_of::<Option<T>>() + size_of::<Links>();

    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), links: Vec::new(), free: NONE }
    }

    /// Adds an entry, which is in no list.
    ///
    /// # Panics
    /// When 2^32 - 1 entries are there, which need hundreds of GiB.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let free = self.free as usize;
        if let (Some(place), Some(links)) = (self.entries.get_mut(free), self.links.get_mut(free)) {
            let index = self.free;
            self.free = links.next;
            *place = Some(entry);
            return index;
        }
        assert!(self.entries.len() < NONE as usize, "too many cached blocks");
        self.entries.push(Some(entry));
        self.links.push(Links { prev: NONE, next: NONE });
        self.entries.len() as u32 - 1
    }

    /// Takes an entry out; it must be in no list.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.links.get_mut(index as usize)?.next = self.free;
        self.free = index;
        Some(entry)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Puts an entry that is in no list in front of one.
    pub(crate) fn push_front(&mut self, list: &mut List, index: u32) {
        let Some(links) = self.links.get_mut(index as usize) else { return };
        *links = Links { prev: NONE, next: list.front };
        match self.links.get_mut(list.front as usize) {
            Some(front) => front.prev = index,
            None => list.back = index,
        }
        list.front = index;
    }

    /// Takes an entry out of the list that it is in.
    pub(crate) fn unlink(&mut self, list: &mut List, index: u32) {
        let Some(&Links { prev, next }) = self.links.get(index as usize) else { return };
        match self.links.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => list.front = next,
        }
        match self.links.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => list.back = prev,
        }
    }

    /// Makes an entry of a list its newest.
    pub(crate) fn renew(&mut self, list: &mut List, index: u32) {
        if list.front != index {
            self.unlink(list, index);
            self.push_front(list, index);
        }
    }

    /// The next newer entry of the list.
    pub(crate) fn newer(&self, index: u32) -> Option<u32> {
        let prev = self.links.get(index as usize)?.prev;
        (prev != NONE).then_some(prev)
    }

    /// All entries, for good.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn oldest_first(slab: &Slab<u32>, list: &List) -> Vec<u32> {
        std::iter::successors(list.back(), |&index| slab.newer(index))
            .filter_map(|index| slab.get(index).copied())
            .collect()
    }

    proptest! {
        #[test]
        fn lists_act_as_queues(steps in prop::collection::vec((0..4_u8, 0..2_usize), 0..200)) {
            let mut slab = Slab::new();
            let mut lists = [List::EMPTY, List::EMPTY];
            let mut model: [VecDeque<u32>; 2] = Default::default();
            let mut index_of = std::collections::HashMap::new();
            for (number, (step, which)) in (0..).zip(steps) {
                match step {
                    0 | 1 => {
                        let index = slab.insert(number);
                        index_of.insert(number, index);
                        slab.push_front(&mut lists[which], index);
                        model[which].push_back(number);
                    }
                    2 => {
                        let middle = model[which].len() / 2;
                        if let Some(number) = model[which].remove(middle) {
                            slab.unlink(&mut lists[which], index_of[&number]);
                            slab.push_front(&mut lists[1 - which], index_of[&number]);
                            model[1 - which].push_back(number);
                        }
                        if let Some(number) = model[which].pop_front() {
                            slab.renew(&mut lists[which], index_of[&number]);
                            model[which].push_back(number);
                        }
                    }
                    _ => {
                        if let Some(number) = model[which].pop_front() {
                            let index = lists[which].back().unwrap();
                            slab.unlink(&mut lists[which], index);
                            prop_assert_eq!(slab.remove(index), Some(number));
                            prop_assert_eq!(slab.get(index), None);
                        }
                    }
                }
                for which in 0..2 {
                    prop_assert_eq!(&model[which], &oldest_first(&slab, &lists[which]));
                }
            }
            prop_assert_eq!(slab.into_values().count(), model[0].len() + model[1].len());
        }
    }
}
