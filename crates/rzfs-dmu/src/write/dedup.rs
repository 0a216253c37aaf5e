//! Blocks whose contents the pool may have already (spec 02, section 9.5).
//!
//! ```text
//! encoded block ─> index: is one like it there? ─> yes: its place, one reference more, no I/O
//!                                               └> no: a place of its own, which the index notes
//! ```

use super::policy::DedupPolicy;
use super::writer::{WriteContext, WriteError, WriteRequest, pointer};
use super::{BlockWriter, encode::Stored};
use rzfs_format::{BlockPointer, Dva, Txg};

/// A block that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct DedupCandidate<'a> {
    /// The pointer that it would have, without addresses.
    pub pointer: &'a BlockPointer,
    /// How many copies are wanted.
    pub copies: u8,
    /// The txg.
    pub txg: Txg,
}

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupPlace {
    /// Its copies.
    pub dvas: [Dva; 3],
    /// When these were allocated.
    pub birth: Txg,
}

/// What a [`DedupIndex`] asks about a block that it has no place for.
pub trait DedupWriter {
    /// Writes so many copies.
    ///
    /// # Errors
    /// [`WriteError`].
    fn place(&mut self, copies: u8) -> Result<[Dva; 3], WriteError>;

    /// Whether the block that a pointer points to has the same contents.
    fn is_same(&mut self, pointer: &BlockPointer) -> bool;
}

/// The dedup tables of a pool.
pub trait DedupIndex: Send + Sync {
    /// Finds a block with the same contents, or has `writer` write this one, and counts a
    /// reference to it. `None`: the block is to be written without the index.
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

/// Writes one block for an index.
struct Placing<'a> {
    writer: &'a BlockWriter,
    context: WriteContext<'a>,
    request: &'a WriteRequest,
    stored: &'a Stored,
}

impl DedupWriter for Placing<'_> {
    fn place(&mut self, copies: u8) -> Result<[Dva; 3], WriteError> {
        self.writer.place_copies(self.context, self.request, self.stored, copies)
    }

    fn is_same(&mut self, pointer: &BlockPointer) -> bool {
        let found = self.writer.pipeline.read_stored(&[pointer]).pop();
        found.is_some_and(|found| found.is_ok_and(|bytes| bytes == self.stored.data))
    }
}

impl BlockWriter {
    /// Lets the index find a place for a block; `None` if it has none for it.
    pub(super) fn place_deduplicated(
        &self,
        context: WriteContext<'_>,
        request: &WriteRequest,
        stored: &Stored,
    ) -> Result<Option<BlockPointer>, WriteError> {
        let (Some(index), Some(policy)) = (&self.dedup, request.policy.dedup) else {
            return Ok(None);
        };
        let bare = pointer(context.txg, request, stored, [Dva::default(); 3]).with_dedup();
        let copies = request.policy.copies;
        let candidate = DedupCandidate { pointer: &bare, copies, txg: context.txg };
        let mut placing = Placing { writer: self, context, request, stored };
        let place = index.find_or_place(&candidate, policy, &mut placing)?;
        Ok(place.map(|DedupPlace { dvas, birth }| {
            pointer(context.txg, request, stored, dvas).with_dedup().with_births(context.txg, birth)
        }))
    }
}
