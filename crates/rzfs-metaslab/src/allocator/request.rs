//! Allocation requests.

use rzfs_format::Dva;

/// A request for space for one block.
#[derive(Clone, Copy, Debug)]
pub struct AllocationRequest {
    /// Bytes as stored, without redundancy.
    pub size: u64,
    /// Copies, 1 to 3.
    pub copies: u8,
    /// The kind of block, which determines the class.
    pub content: Content,
    /// Whether it is a part of a gang.
    pub placement: Placement,
    /// Blocks with the same number are put together: a hash of object set, object and the high
    /// bits of the block's number.
    pub locality: u64,
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// Data of a file or volume; up to `special_up_to` stored bytes it may go to the special
    /// class (the property `special_small_blocks`).
    Data {
        /// The limit; 0 for none.
        special_up_to: u64,
    },
    /// Metadata by its object type.
    Metadata,
    /// An indirect block of a file or volume.
    UserIndirect,
    /// A dedup table.
    DedupTable,
    /// A block of an intent log.
    IntentLog,
}

/// Whether a block is a part of a gang.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// It is not.
    Block,
    /// The header of a gang.
    GangHeader,
    /// A part of a gang, preferably on the vdev of this header.
    GangMember(Dva),
}

/// There is no free segment of this size for all copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no space for {size} bytes")]
pub struct NoSpace {
    /// The requested bytes.
    pub size: u64,
}

/// Classes of vdevs by purpose (spec 06, section 9.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassKind {
    /// Everything that has no better place.
    Normal,
    /// Vdevs for intent logs.
    Log,
    /// Vdevs for metadata and small blocks.
    Special,
    /// Vdevs for dedup tables.
    Dedup,
    /// One metaslab of each large vdev of the normal class, for intent logs.
    EmbeddedLog,
}

impl ClassKind {
    /// All classes.
    pub const ALL: [Self; 5] =
        [Self::Normal, Self::Log, Self::Special, Self::Dedup, Self::EmbeddedLog];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
