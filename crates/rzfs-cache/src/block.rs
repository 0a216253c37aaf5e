//! The identity of a block, and what caches need to know about it.

use bytes::Bytes;

/// The identity of a block: where its first copy lies and when it was written.
///
/// A place can be used again, but not within one transaction group, so place and physical birth
/// name one content for ever (spec 03, section 10.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKey {
    /// Top-level vdev of the first copy.
    pub vdev: u32,
    /// Byte offset of the first copy in that vdev.
    pub offset: u64,
    /// The transaction group in which the block was physically written.
    pub birth: u64,
}

/// The two classes of blocks, which compete for the cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockKind {
    /// Level 0 of a file or volume.
    Data,
    /// Everything else: indirect blocks, spill blocks, the levels 0 of metadata objects.
    Metadata,
}

/// A cacheable value: cheap to clone, and of a known size.
pub trait Weighted: Clone {
    /// Bytes of memory that the value keeps alive; must not change while the value is cached.
    fn weight(&self) -> usize;
}

impl Weighted for Bytes {
    fn weight(&self) -> usize {
        self.len()
    }
}
