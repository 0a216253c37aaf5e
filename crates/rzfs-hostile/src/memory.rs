//! An allocator that counts.
//!
//! Binaries that measure memory use it:
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: rzfs_hostile::CountingAllocator = rzfs_hostile::CountingAllocator;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with the bytes counted.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// Bytes of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// Allocated at the same time, beyond what was allocated at the start.
    pub peak: usize,
    /// The largest single allocation.
    pub largest: usize,
}

/// Counts from now on.
#[derive(Debug)]
pub struct MemoryWatch {
    before: usize,
}

impl MemoryWatch {
    /// Restarts counting; only one measurement at a time.
    #[must_use]
    pub fn start() -> Self {
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        LARGEST.store(0, Ordering::Relaxed);
        Self { before }
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn allocated() -> usize {
        NOW.load(Ordering::Relaxed)
    }

    /// The memory needed since the start.
    #[must_use]
    pub fn usage(&self) -> MemoryUse {
        let peak = PEAK.load(Ordering::Relaxed).saturating_sub(self.before);
        MemoryUse { peak, largest: LARGEST.load(Ordering::Relaxed) }
    }
}

fn count(size: usize) {
    let now = NOW.fetch_add(size, Ordering::Relaxed).wrapping_add(size);
    PEAK.fetch_max(now, Ordering::Relaxed);
    LARGEST.fetch_max(size, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments to `System` unchanged and returns what that returns;
// counting touches atomic integers only and does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` is from `System`, since all allocations are.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
