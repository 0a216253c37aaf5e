//! A leaf: sorted elements somewhere in a fixed room, so that an insertion or removal moves only
//! the shorter side.

/// Elements of one leaf.
///
/// The room begins small and doubles up to the capacity of the tree's leaves, so that a tree of
/// few elements is small.
#[derive(Clone)]
pub(super) struct Leaf<T> {
    /// The room; what lies outside of the elements is filler.
    slots: Box<[T]>,
    first: u16,
    len: u16,
}

/// Slots of the smallest room.
const SMALLEST: usize = 4;

impl<T: Copy> Leaf<T> {
    pub(super) fn new() -> Self {
        Self { slots: Box::default(), first: 0, len: 0 }
    }

    pub(super) fn from_slice(elements: &[T]) -> Self {
        Self { slots: elements.into(), first: 0, len: elements.len() as u16 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn as_slice(&self) -> &[T] {
        let first = usize::from(self.first);
        &self.slots[first..first + self.len()]
    }

    /// Inserts before `slot`; the leaf has fewer than `capacity` elements.
    pub(super) fn insert(&mut self, slot: usize, element: T, capacity: usize) {
        if self.len() == self.slots.len() {
            self.grow(element, capacity);
        }
        let (first, len) = (usize::from(self.first), self.len());
        let room_right = first + len < self.slots.len();
        if first > 0 && (slot < len / 2 || !room_right) {
            self.slots.copy_within(first..first + slot, first - 1);
            self.first -= 1;
        } else {
            self.slots.copy_within(first + slot..first + len, first + slot + 1);
        }
        self.len += 1;
        self.slots[usize::from(self.first) + slot] = element;
    }

    /// Removes and returns the element at `slot`.
    pub(super) fn remove(&mut self, slot: usize) -> T {
        let (first, len) = (usize::from(self.first), self.len());
        let element = self.slots[first + slot];
        if slot < len / 2 {
            self.slots.copy_within(first..first + slot, first + 1);
            self.first += 1;
        } else {
            self.slots.copy_within(first + slot + 1..first + len, first + slot);
        }
        self.len -= 1;
        element
    }

    pub(super) fn pop_first(&mut self) -> Option<T> {
        (self.len > 0).then(|| self.remove(0))
    }

    /// Keeps the first `keep` elements and returns the others.
    pub(super) fn split_off(&mut self, keep: usize) -> Self {
        let mut slots: Box<[T]> = self.slots.clone();
        let moved = self.as_slice().len() - keep;
        slots[..moved].copy_from_slice(&self.as_slice()[keep..]);
        self.len = keep as u16;
        Self { slots, first: 0, len: moved as u16 }
    }

    /// Doubles the room.
    fn grow(&mut self, filler: T, capacity: usize) {
        let size = (self.slots.len() * 2).clamp(SMALLEST.min(capacity), capacity);
        let mut slots = vec![filler; size.max(self.len() + 1)].into_boxed_slice();
        slots[..self.len()].copy_from_slice(self.as_slice());
        self.slots = slots;
        self.first = 0;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
