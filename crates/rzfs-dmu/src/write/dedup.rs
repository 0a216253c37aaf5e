//! Blocks whose contents the pool may already have (spec 02, section 9.5).
//!
//! ```text
//! encoded block ─> index: is one like it there? ─> yes: its place, one reference more, no I/O
//!                                               └> no: a place of its own, which the index notes
//! ```

use super::error::WriteError;
use super::policy::DedupPolicy;
use rzfs_format::{BlockPointer, Dva, Txg};

/// A block to write.
#[derive(Clone, Copy, Debug)]
pub struct DedupCandidate<'a> {
    /// Its prospective pointer, without addresses.
    pub pointer: &'a BlockPointer,
    /// Number of copies wanted.
    pub copies: u8,
    /// The txg.
    pub txg: Txg,
}

/// The place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupPlace {
    /// Its copies.
    pub dvas: [Dva; 3],
    /// When they were allocated.
    pub birth: Txg,
}

/// Callbacks of a [`DedupIndex`] about a block that it has no place for.
pub trait DedupWriter {
    /// Writes this many copies.
    ///
    /// # Errors
    /// [`WriteError`].
    fn place(&mut self, copies: u8) -> Result<[Dva; 3], WriteError>;

    /// Whether the block that a pointer points to has the same contents.
    fn is_same(&mut self, pointer: &BlockPointer) -> bool;
}

/// The dedup tables of a pool.
pub trait DedupIndex: Send + Sync {
    /// Finds a block with the same contents, or makes `writer` write this one, and adds a reference
    /// to it. `None`: the block is to be written without the index.
    ///
    /// # Errors
    /// The tables cannot be read, or the block cannot be written.
    fn find_or_place(
        &self,
        candidate: &DedupCandidate<'_>,
        policy: DedupPolicy,
        writer: &mut dyn DedupWriter,
    ) -> Result<Option<DedupPlace>, WriteError>;
}
