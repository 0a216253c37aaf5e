//! Batches of blocks being read: cached ones, those this thread has to read, and those other
//! threads are reading.

use super::decode::{Encoded, decompress, is_dnode_block};
use super::{BlockPipeline, BlockRequest, block_key};
use crate::in_force::{Always, InForce, Never};
use crate::{Block, BlockError};
use rzfs_cache::{AccessOutcome, Arrival, BlockKind, Lookup, Purpose, Ticket};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::BlockPointer;
use rzfs_format::block_pointer::PointerKind;
use rzfs_format::units::Bookmark;
use std::sync::Arc;

/// A batch of blocks whose sources are known; reading starts with [`Batch::finish`].
///
/// Other threads may wait for blocks of this batch: it must be finished, or dropped, before this
/// thread waits for anything else.
#[must_use = "others wait for its blocks"]
pub struct Batch<'a> {
    pipeline: &'a BlockPipeline,
    blocks: Vec<Pending>,
    purpose: Purpose,
}

/// The state of a block.
enum Pending {
    /// It is available.
    Done(Result<Block, BlockError>),
    /// It has to be read; with a ticket if others may be waiting for it.
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
    /// How the blocks were found; blocks being read by other threads are late.
    #[must_use]
    pub fn outcome(&self) -> AccessOutcome {
        let of = |block: &Pending| match block {
            Pending::Done(_) => AccessOutcome::Cached,
            Pending::Awaited(..) => AccessOutcome::Late,
            Pending::Missing(..) => AccessOutcome::Missed,
        };
        self.blocks.iter().map(of).max().unwrap_or(AccessOutcome::Cached)
    }

    /// Reads missing blocks and waits for those others are reading; the results are in the order of
    /// the requests.
    #[must_use]
    pub fn finish(self) -> Vec<Result<Block, BlockError>> {
        self.finish_while(&Always)
    }

    /// The same for blocks that may be replaced meanwhile, which is not an error.
    #[must_use]
    pub(crate) fn finish_while(mut self, owner: &dyn InForce) -> Vec<Result<Block, BlockError>> {
        self.read_missing(owner);
        let pipeline = self.pipeline;
        let done = |block: Pending| match block {
            Pending::Done(result) => result,
            Pending::Missing(wanted, _) => pipeline.read_alone(wanted, owner),
            Pending::Awaited(wanted, arrival) => {
                let arrived = arrival.wait().filter(|block| block.can_be_of(&wanted.pointer));
                arrived.map_or_else(|| pipeline.read_alone(wanted, owner), Ok)
            }
        };
        self.blocks.into_iter().map(done).collect()
    }

    /// Reads missing blocks into the cache, except for those others are reading.
    fn fetch(mut self) {
        self.read_missing(&Never);
    }

    /// Reads and decodes blocks that no other thread is reading, and passes them to waiters.
    fn read_missing(&mut self, owner: &dyn InForce) {
        let mut missing = Vec::new();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if let Pending::Missing(wanted, ticket) = block {
                missing.push((index, wanted.clone(), ticket.take()));
            }
        }
        let pointers: Vec<&BlockPointer> =
            missing.iter().map(|(_, wanted, _)| &wanted.pointer).collect();
        let stored = match self.purpose {
            // Later readers try again, and count errors.
            Purpose::PredictivePrefetch => self.pipeline.read_speculative(&pointers),
            _ => self.pipeline.read_while(&pointers, owner),
        };
        let (mut indices, mut encoded) = (Vec::new(), Vec::new());
        for ((index, wanted, ticket), stored) in missing.into_iter().zip(stored) {
            match stored {
                Ok(stored) => {
                    indices.push(index);
                    encoded.push(self.pipeline.encoded(wanted, stored, ticket));
                }
                // The ticket is dropped: waiters retry themselves.
                Err(error) => self.set(index, Err(error), owner),
            }
        }
        let decoded = self.pipeline.workers.decode(encoded);
        for (index, decoded) in indices.into_iter().zip(decoded) {
            self.set(index, decoded, owner);
        }
    }

    fn set(&mut self, index: usize, result: Result<Block, BlockError>, owner: &dyn InForce) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        if let (Pending::Missing(wanted, _), Err(error)) = (&*block, &result)
            && self.purpose == Purpose::Demand
        {
            self.pipeline.note_damage(wanted.bookmark, &wanted.pointer, error, owner);
        }
        *block = Pending::Done(result);
    }
}

impl BlockPipeline {
    /// Reads one block.
    pub fn read(&self, request: BlockRequest<'_>) -> Result<Block, BlockError> {
        self.read_many(&[request]).pop().unwrap_or(Err(BlockError::NoCopy))
    }

    /// Reads blocks; the results are in the order of the requests.
    pub fn read_many(&self, requests: &[BlockRequest<'_>]) -> Vec<Result<Block, BlockError>> {
        self.begin(requests).finish()
    }

    /// Determines the source of each of these blocks, without waiting for any.
    pub fn begin(&self, requests: &[BlockRequest<'_>]) -> Batch<'_> {
        self.batch(requests, Purpose::Demand)
    }

    /// Reads the missing ones of these blocks into the cache, as they may be needed soon. Errors
    /// are left to later readers.
    pub fn prefetch(&self, requests: &[BlockRequest<'_>]) {
        self.batch(requests, Purpose::PredictivePrefetch).fetch();
    }

    fn batch(&self, requests: &[BlockRequest<'_>], purpose: Purpose) -> Batch<'_> {
        let blocks = requests.iter().map(|request| self.pending(request, purpose)).collect();
        Batch { pipeline: self, blocks, purpose }
    }

    /// The source of a block.
    fn pending(&self, request: &BlockRequest<'_>, purpose: Purpose) -> Pending {
        let BlockRequest { pointer, bookmark, key } = *request;
        let wanted = || Wanted { pointer: *pointer, bookmark, key: key.cloned() };
        match without_device(request) {
            Ok(None) => {}
            Ok(Some(block)) => return Pending::Done(Ok(block)),
            Err(error) => return Pending::Done(Err(error)),
        }
        if let Some(block) = self.held.get(bookmark, pointer) {
            return Pending::Done(Ok(block));
        }
        // The cache has plaintext, which must not be returned without a key.
        let Some(key) = block_key(pointer).filter(|_| !request.is_locked()) else {
            return Pending::Missing(wanted(), None);
        };
        match self.cache.get_or_begin(key, block_kind(pointer), purpose) {
            Lookup::Hit(block) if block.can_be_of(pointer) => Pending::Done(Ok(block)),
            Lookup::Hit(_) => Pending::Missing(wanted(), None),
            Lookup::Miss(ticket) => Pending::Missing(wanted(), Some(ticket)),
            Lookup::Pending(arrival) => Pending::Awaited(wanted(), arrival),
        }
    }

    /// Reads one block, bypassing the cache.
    fn read_alone(&self, wanted: Wanted, owner: &dyn InForce) -> Result<Block, BlockError> {
        let (bookmark, pointer) = (wanted.bookmark, wanted.pointer);
        let stored = self.read_while(&[&pointer], owner).pop().unwrap_or(Err(BlockError::NoCopy));
        let block = stored.and_then(|stored| self.encoded(wanted, stored, None).decode());
        block.inspect_err(|error| self.note_damage(bookmark, &pointer, error, owner))
    }

    /// Records an unreadable block, if it must exist.
    pub(super) fn note_damage(
        &self,
        bookmark: Bookmark,
        pointer: &BlockPointer,
        error: &BlockError,
        owner: &dyn InForce,
    ) {
        if owner.is_in_force(pointer) {
            self.damage.note(bookmark, pointer, error);
        }
    }

    pub(super) fn encoded(
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
            injector: self.stored.injector.clone(),
        }
    }
}

/// A hole, embedded data, or the error.
pub(super) fn without_device(request: &BlockRequest<'_>) -> Result<Option<Block>, BlockError> {
    let bp = request.pointer;
    bp.validate()?;
    match bp.kind() {
        PointerKind::Hole => Ok(Some(Block::zeros(bp.logical_size() as usize))),
        PointerKind::Redacted => Err(BlockError::Redacted),
        PointerKind::Embedded => {
            let (payload, len) = bp.embedded_payload();
            let payload = payload.get(..len).unwrap_or_default();
            Ok(Some(Block { data: decompress(bp, payload)?, order: bp.order() }))
        }
        PointerKind::Plain | PointerKind::Gang if request.is_locked() && !is_dnode_block(bp) => {
            Err(BlockError::KeyNotLoaded)
        }
        PointerKind::Plain | PointerKind::Gang => Ok(None),
    }
}

fn block_kind(bp: &BlockPointer) -> BlockKind {
    let is_metadata = bp.level().0 > 0 || bp.object_type().is_ok_and(|kind| kind.is_metadata());
    if is_metadata { BlockKind::Metadata } else { BlockKind::Data }
}
