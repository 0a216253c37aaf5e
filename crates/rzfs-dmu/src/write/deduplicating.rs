//! Writing blocks through a dedup index.

use super::dedup::{DedupCandidate, DedupPlace, DedupWriter};
use super::encode::Stored;
use super::error::WriteError;
use super::writer::{BlockWriter, WriteContext, WriteRequest, pointer};
use rzfs_format::{BlockPointer, Dva};

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
    /// Asks the index for a block's place; `None` if it has none.
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
