//! Which entries of a microzap's block are used.

/// A bit for each entry, and where the search for a free one begins.
#[derive(Debug)]
pub(super) struct Slots {
    used: Vec<u64>,
    capacity: usize,
    next: usize,
}

impl Slots {
    /// Of a block with `capacity` entries, of which these are used.
    pub(super) fn new(capacity: usize, used: impl Iterator<Item = usize>) -> Self {
        let mut slots = Self { used: Vec::new(), capacity: 0, next: 0 };
        slots.grow(capacity);
        used.for_each(|slot| slots.set(slot));
        slots
    }

    /// The block has grown.
    pub(super) fn grow(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.used.resize(capacity.div_ceil(64), 0);
    }

    /// The free entry that is used next: the first after the one that was used last.
    pub(super) fn free(&self) -> Option<usize> {
        self.free_from(self.next).or_else(|| self.free_from(0))
    }

    fn free_from(&self, start: usize) -> Option<usize> {
        let mut ignored = (1 << (start % 64)) - 1;
        for (index, word) in self.used.iter().enumerate().skip(start / 64) {
            let free = !(word | ignored);
            if free != 0 {
                let slot = index * 64 + free.trailing_zeros() as usize;
                return (slot < self.capacity).then_some(slot);
            }
            ignored = 0;
        }
        None
    }

    /// An entry is used from now on.
    pub(super) fn take(&mut self, slot: usize) {
        self.set(slot);
        self.next = if slot + 1 < self.capacity { slot + 1 } else { 0 };
    }

    fn set(&mut self, slot: usize) {
        if let Some(word) = self.used.get_mut(slot / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// An entry is free from now on.
    pub(super) fn release(&mut self, slot: usize) {
        if let Some(word) = self.used.get_mut(slot / 64) {
            *word &= !(1 << (slot % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_free_entry_is_used_and_then_the_first() {
        let mut slots = Slots::new(135, [0, 2].into_iter());
        for expected in (1..2).chain(3..135) {
            assert_eq!(slots.free(), Some(expected));
            slots.take(expected);
        }
        assert_eq!(slots.free(), None);
        slots.release(130);
        slots.release(7);
        assert_eq!(slots.free(), Some(7));
        slots.take(7);
        slots.release(3);
        assert_eq!(slots.free(), Some(130));
        slots.take(130);
        assert_eq!(slots.free(), Some(3));
        slots.take(3);
        assert_eq!(slots.free(), None);
        slots.grow(143);
        assert_eq!(slots.free(), Some(135));
    }
}
