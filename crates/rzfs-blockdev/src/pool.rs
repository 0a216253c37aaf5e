//! Reusable buffers.
//!
//! Most blocks are compressed: the bytes that come from the device live until they are
//! decompressed, and their buffer could serve the next read at once. It then needs no pages from
//! the system, no zeros, and with io_uring the kernel knows it already (registered buffers):
//! nothing to look up and pin for each read. Buffers that end up in a cache stay out until they
//! are evicted; meanwhile the pool has fewer, and reads take fresh memory instead.

use crate::pages::{BUFFER_ALIGNMENT, Page, zeroed_pages};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Pages of a buffer, and how many buffers there may be, by class: 16 KiB, 128 KiB and 1 MiB, in
/// all 7 MiB, which fits into the usual limit on locked memory.
const CLASSES: [(usize, u16); 3] = [(4, 64), (32, 24), (256, 3)];

/// How many buffers there may be in all.
pub(crate) const SLOTS: u16 = 64 + 24 + 3;

/// The number of a buffer in its pool; a buffer's memory never changes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub(crate) u16);

/// The buffers of one engine.
pub(crate) struct BufferPool {
    classes: [Mutex<Class>; 3],
}

struct Class {
    pages: usize,
    idle: Vec<(Slot, Box<[Page]>)>,
    /// The slot of the next buffer to be made, and the first that is not this class's.
    next: u16,
    end: u16,
}

impl BufferPool {
    /// A pool whose buffers are made when they are first wanted.
    pub(crate) fn new() -> Arc<Self> {
        let mut start = 0;
        let classes = CLASSES.map(|(pages, count)| {
            let next = start;
            start += count;
            Mutex::new(Class { pages, idle: Vec::new(), next, end: start })
        });
        Arc::new(Self { classes })
    }

    /// The memory of a buffer, of undefined content, if there is one with room for `len` bytes and
    /// not more than twice as much.
    pub(crate) fn take(&self, len: usize) -> Option<(Slot, Box<[Page]>)> {
        let fits = |(pages, _): &(usize, u16)| {
            let size = pages * BUFFER_ALIGNMENT;
            len <= size && len > size / 2
        };
        let class = self.classes.get(CLASSES.iter().position(fits)?)?;
        class.lock().take()
    }

    /// Returns the memory of a buffer.
    pub(crate) fn put_back(&self, slot: Slot, pages: Box<[Page]>) {
        let class = self.classes.iter().zip(CLASSES).find(|(_, (size, _))| *size == pages.len());
        if let Some((class, _)) = class {
            class.lock().idle.push((slot, pages));
        }
    }
}

impl Class {
    fn take(&mut self) -> Option<(Slot, Box<[Page]>)> {
        if let Some(idle) = self.idle.pop() {
            return Some(idle);
        }
        if self.next == self.end {
            return None;
        }
        let pages = zeroed_pages(self.pages).ok()?;
        let slot = Slot(self.next);
        self.next += 1;
        Some((slot, pages))
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.classes.each_ref().map(|class| class.lock().idle.len());
        write!(f, "BufferPool({idle:?} idle)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoBuffer;

    #[test]
    fn buffers_are_used_again_and_keep_their_place() {
        let pool = BufferPool::new();
        let mut first = IoBuffer::pooled(&pool, 100_000).unwrap();
        first.fill(7);
        let (address, slot) = (first.as_ptr(), first.slot_of(&pool));
        drop(first);
        let again = IoBuffer::pooled(&pool, 131_072).unwrap();
        assert_eq!((again.as_ptr(), again.slot_of(&pool)), (address, slot));
        assert_eq!(again.len(), 131_072);
        let other = IoBuffer::pooled(&pool, 131_072).unwrap();
        assert_ne!(other.slot_of(&pool), slot);
        assert_eq!(other.slot_of(&BufferPool::new()), None);
    }

    #[test]
    fn there_are_only_so_many_and_none_is_wasted_on_little() {
        let pool = BufferPool::new();
        let taken: Vec<_> = std::iter::from_fn(|| IoBuffer::pooled(&pool, 16_384)).collect();
        assert_eq!(taken.len(), 64);
        let mut slots: Vec<_> =
            taken.iter().filter_map(|buffer| buffer.slot_of(&pool)).map(|slot| slot.0).collect();
        slots.dedup();
        assert_eq!(slots.len(), 64);
        assert!(slots.iter().all(|slot| *slot < SLOTS));
        drop(taken);
        assert!(IoBuffer::pooled(&pool, 16_384).is_some());
        assert!(IoBuffer::pooled(&pool, 8192).is_none());
        assert!(IoBuffer::pooled(&pool, (1 << 20) + 1).is_none());
        assert!(IoBuffer::pooled(&pool, 0).is_none());
    }

    #[test]
    fn a_frozen_buffer_returns_when_the_last_reference_goes() {
        let pool = BufferPool::new();
        let buffers: Vec<_> = std::iter::from_fn(|| IoBuffer::pooled(&pool, 1 << 20)).collect();
        let frozen: Vec<_> = buffers.into_iter().map(IoBuffer::freeze).collect();
        assert!(IoBuffer::pooled(&pool, 1 << 20).is_none());
        let part = frozen[0].slice(10..20);
        drop(frozen);
        let returned: Vec<_> = std::iter::from_fn(|| IoBuffer::pooled(&pool, 1 << 20)).collect();
        assert_eq!(returned.len(), 2);
        drop(part);
        assert!(IoBuffer::pooled(&pool, 1 << 20).is_some());
    }

    #[test]
    fn a_buffer_may_outlive_its_engine() {
        let pool = BufferPool::new();
        let buffer = IoBuffer::pooled(&pool, 16_384).unwrap();
        drop(pool);
        assert_eq!(buffer.len(), 16_384);
    }
}
