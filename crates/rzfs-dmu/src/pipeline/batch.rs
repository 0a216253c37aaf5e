//! Blocks on their way: what of a batch the cache has, what this thread has to read, and what
//! others are reading already.

use super::BlockPipeline;
use super::decode::Encoded;
use crate::{Block, BlockError};
use rzfs_cache::{AccessOutcome, Arrival, Purpose, Ticket};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::BlockPointer;
use rzfs_format::units::Bookmark;
use std::sync::Arc;

/// A batch of blocks of which it is known how each will be had; reading begins with
/// [`Batch::finish`].
///
/// Other threads may wait for blocks that this batch is to read: it must be finished, or dropped,
/// before this thread waits for anything else.
#[must_use = "others wait for its blocks"]
pub struct Batch<'a> {
    pub(super) pipeline: &'a BlockPipeline,
    pub(super) blocks: Vec<Pending>,
    pub(super) purpose: Purpose,
}

/// What is known of a block.
pub(super) enum Pending {
    /// All.
    Done(Result<Block, BlockError>),
    /// It has to be read; with a ticket where others may be waiting for it.
    Missing(Wanted, Option<Ticket<Block>>),
    /// Another thread is reading it.
    Awaited(Wanted, Arrival<Block>),
}

/// A block that is not in the cache.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) pointer: BlockPointer,
    pub(super) bookmark: Bookmark,
    pub(super) key: Option<Arc<DatasetKey>>,
}

impl Batch<'_> {
    /// How the blocks were found; blocks that another thread is reading are late.
    #[must_use]
    pub fn outcome(&self) -> AccessOutcome {
        let of = |block: &Pending| match block {
            Pending::Done(_) => AccessOutcome::Cached,
            Pending::Awaited(..) => AccessOutcome::Late,
            Pending::Missing(..) => AccessOutcome::Missed,
        };
        self.blocks.iter().map(of).max().unwrap_or(AccessOutcome::Cached)
    }

    /// Reads what is missing and waits for what others are reading; the results are in the order
    /// of the requests.
    #[must_use]
    pub fn finish(mut self) -> Vec<Result<Block, BlockError>> {
        self.read_missing();
        let pipeline = self.pipeline;
        let done = |block: Pending| match block {
            Pending::Done(result) => result,
            Pending::Missing(wanted, _) => pipeline.read_alone(wanted),
            Pending::Awaited(wanted, arrival) => {
                let arrived = arrival.wait().filter(|block| is_like(&wanted.pointer, block));
                arrived.map_or_else(|| pipeline.read_alone(wanted), Ok)
            }
        };
        self.blocks.into_iter().map(done).collect()
    }

    /// Reads what is missing, for the cache; what others are reading is left to them.
    pub(super) fn fetch(mut self) {
        self.read_missing();
    }

    /// Reads and decodes what nobody else is reading, and hands it to those who wait.
    fn read_missing(&mut self) {
        let mut missing = Vec::new();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if let Pending::Missing(wanted, ticket) = block {
                missing.push((index, wanted.clone(), ticket.take()));
            }
        }
        let pointers: Vec<&BlockPointer> =
            missing.iter().map(|(_, wanted, _)| &wanted.pointer).collect();
        let stored = match self.purpose {
            // Whoever wants it then tries again, and counts.
            Purpose::PredictivePrefetch => self.pipeline.read_speculative(&pointers),
            _ => self.pipeline.read_stored(&pointers),
        };
        let (mut indices, mut encoded) = (Vec::new(), Vec::new());
        for ((index, wanted, ticket), stored) in missing.into_iter().zip(stored) {
            match stored {
                Ok(stored) => {
                    indices.push(index);
                    encoded.push(self.pipeline.encoded(wanted, stored, ticket));
                }
                // The ticket is dropped: whoever waits tries for itself.
                Err(error) => self.set(index, Err(error)),
            }
        }
        let decoded = self.pipeline.workers.decode(encoded);
        for (index, decoded) in indices.into_iter().zip(decoded) {
            self.set(index, decoded);
        }
    }

    fn set(&mut self, index: usize, result: Result<Block, BlockError>) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        if let (Pending::Missing(wanted, _), Err(error)) = (&*block, &result)
            && self.purpose == Purpose::Demand
        {
            self.pipeline.damage.note(wanted.bookmark, &wanted.pointer, error);
        }
        *block = Pending::Done(result);
    }
}

/// Whether a block that has a pointer's identity can be its block.
pub(super) fn is_like(pointer: &BlockPointer, block: &Block) -> bool {
    block.data.len() as u64 == pointer.logical_size()
}

impl BlockPipeline {
    /// Reads one block past the cache.
    fn read_alone(&self, wanted: Wanted) -> Result<Block, BlockError> {
        let (bookmark, pointer) = (wanted.bookmark, wanted.pointer);
        let stored = self.read_stored(&[&pointer]).pop().unwrap_or(Err(BlockError::NoCopy));
        let block = stored.and_then(|stored| self.encoded(wanted, stored, None).decode());
        block.inspect_err(|error| self.damage.note(bookmark, &pointer, error))
    }

    fn encoded(
        &self,
        wanted: Wanted,
        stored: bytes::Bytes,
        ticket: Option<Ticket<Block>>,
    ) -> Encoded {
        Encoded {
            pointer: wanted.pointer,
            bookmark: wanted.bookmark,
            key: wanted.key,
            stored,
            ticket,
            injector: self.injector.clone(),
        }
    }
}
