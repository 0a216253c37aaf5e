//! Reading a live object: changes in memory overlay what is on disk.
//!
//! ```text
//! plan    dirty buffer │ clone │ hole │ on disk      of every block, at one moment
//!              │          └────┬────┴────┘
//! read         │          one batch of pointers
//!              └───────┬───────┘
//! finish            contents                         again, where the disk was overtaken
//! ```
//! A block on disk may be replaced by a sync, and its space reused, between planning and reading.
//! The read then returns other data, or an error of a block no longer in force: this is not
//! reported ([`InForce`]), and the block is planned again.

use super::object::LiveObject;
use super::on_disk::OnDisk;
use super::state::NewestBlock;
use crate::in_force::InForce;
use crate::object::fill_from_blocks;
use crate::{Batch, Block, BlockError, BlockRequest, DmuError};
use rzfs_cache::AccessOutcome;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, Level};
use std::ops::Range;

/// Where the contents of a block are at one moment.
pub(super) enum Origin {
    /// In memory: not on disk yet.
    Dirty(Block),
    /// On disk as part of another object, or of another place in this one.
    Clone(BlockPointer),
    /// Nowhere: it reads as zeros.
    Hole,
    /// Where the object's tree on disk says, possibly a hole.
    OnDisk(Result<BlockPointer, DmuError>),
}

impl Origin {
    /// The block on disk with the contents.
    fn pointer(&self) -> Option<&BlockPointer> {
        match self {
            Self::Clone(pointer) | Self::OnDisk(Ok(pointer)) if !pointer.is_hole() => Some(pointer),
            _ => None,
        }
    }
}

/// Where the contents of consecutive blocks are.
pub(super) struct Plan<'a> {
    object: &'a LiveObject,
    first: u64,
    pub(super) origins: Vec<Origin>,
    block_size: usize,
    /// What [`Origin::OnDisk`] refers to.
    on_disk: Option<OnDisk<'a>>,
}

impl Plan<'_> {
    /// Whether a block is unaffected by what a sync has moved since.
    fn is_valid_for(&self, block: u64, origin: &Origin) -> bool {
        match origin {
            Origin::Dirty(_) | Origin::Hole => true,
            // Once it is on disk, the tree on disk determines how long it stays.
            Origin::Clone(pointer) => self.object.state().is_clone(block, pointer),
            Origin::OnDisk(_) => !self.on_disk.as_ref().is_some_and(OnDisk::is_replaced),
        }
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &Origin)> {
        (self.first..).zip(&self.origins)
    }
}

impl InForce for Plan<'_> {
    fn is_in_force(&self, pointer: &BlockPointer) -> bool {
        let is_valid = |(block, origin)| self.is_valid_for(block, origin);
        self.numbered().filter(|(_, origin)| origin.pointer() == Some(pointer)).any(is_valid)
    }
}

impl LiveObject {
    /// Where blocks are now. The result stays valid while the caller keeps others from changing the
    /// object, except for what a sync moves.
    pub(super) fn plan(&self, blocks: Range<u64>) -> Result<Plan<'_>, DmuError> {
        loop {
            let plan = self.plan_once(blocks.clone())?;
            let has_failed = |origin: &Origin| matches!(origin, Origin::OnDisk(Err(_)));
            let is_outdated = plan.origins.iter().any(has_failed)
                && plan.on_disk.as_ref().is_some_and(OnDisk::is_replaced);
            if !is_outdated {
                return Ok(plan);
            }
        }
    }

    fn plan_once(&self, blocks: Range<u64>) -> Result<Plan<'_>, DmuError> {
        let (mut plan, on_disk) = self.plan_in_memory(blocks.clone())?;
        if let Some(synced) = &plan.on_disk {
            let skipped = (on_disk.start - blocks.start) as usize;
            let pointers = synced.tree().pointers(0, on_disk);
            for (origin, pointer) in plan.origins.iter_mut().skip(skipped).zip(pointers) {
                if let Origin::OnDisk(unknown) = origin {
                    *unknown = pointer;
                }
            }
        }
        Ok(plan)
    }

    /// The part of a plan that needs no disk, and the range to look up on disk.
    fn plan_in_memory(&self, blocks: Range<u64>) -> Result<(Plan<'_>, Range<u64>), DmuError> {
        let state = self.state();
        let outline = state.outline().ok_or_else(|| self.not_allocated())?;
        let mut plan = Plan {
            object: self,
            first: blocks.start,
            origins: Vec::with_capacity(blocks.end.saturating_sub(blocks.start) as usize),
            block_size: outline.data_block_size as usize,
            on_disk: None,
        };
        let mut asked = blocks.start..blocks.start;
        for block in blocks {
            plan.origins.push(match state.in_memory(block) {
                NewestBlock::Buffer(buffer) => {
                    Origin::Dirty(Block { data: buffer.bytes(), order: ByteOrder::NATIVE })
                }
                NewestBlock::Clone(pointer) => Origin::Clone(pointer),
                NewestBlock::Hole => Origin::Hole,
                NewestBlock::OnDisk(dnode) => {
                    if plan.on_disk.is_none() {
                        asked.start = block;
                        plan.on_disk = Some(self.with_dnode(dnode));
                    }
                    asked.end = block.saturating_add(1);
                    Origin::OnDisk(Ok(BlockPointer::HOLE))
                }
            });
        }
        Ok((plan, asked))
    }

    /// Begins to read the current data blocks together; the caller bounds the range.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn begin_read(&self, blocks: Range<u64>) -> Result<LiveRead<'_>, DmuError> {
        let plan = self.plan(blocks)?;
        let key = self.objset().key();
        let request = |(block, origin): (u64, &'_ Origin)| {
            let pointer = *origin.pointer()?;
            Some((pointer, self.data_bookmark(block)))
        };
        let wanted: Vec<_> = plan.numbered().filter_map(request).collect();
        let requests: Vec<_> = wanted
            .iter()
            .map(|(pointer, bookmark)| BlockRequest { pointer, bookmark: *bookmark, key })
            .collect();
        let batch = self.objset().pipeline().begin(&requests);
        Ok(LiveRead { plan, batch })
    }

    /// Reads a current data block; holes and blocks beyond the end are zeros.
    ///
    /// # Errors
    /// The block cannot be read, or the object does not exist any more.
    pub fn read_block(&self, block: BlockId) -> Result<Block, DmuError> {
        let read = self.begin_read(block.0..block.0.saturating_add(1))?;
        // No block has the last number.
        read.finish().pop().unwrap_or_else(|| Ok(Block::zeros(self.data_block_size()? as usize)))
    }

    /// Fills `buffer` with the bytes from `offset` on; bytes beyond the last block read as zeros.
    ///
    /// # Errors
    /// As [`LiveObject::read_block`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DmuError> {
        let block_size = u64::from(self.data_block_size()?);
        fill_from_blocks(block_size, offset, buffer, |blocks| Ok(self.begin_read(blocks)?.finish()))
    }

    /// Whether a block has no contents, dirty or on disk.
    pub(super) fn is_hole(&self, block: BlockId) -> Result<bool, DmuError> {
        match self.plan(block.0..block.0.saturating_add(1))?.origins.pop() {
            Some(Origin::Dirty(_) | Origin::Clone(_)) => Ok(false),
            Some(Origin::OnDisk(pointer)) => Ok(pointer?.is_hole()),
            Some(Origin::Hole) | None => Ok(true),
        }
    }

    fn data_bookmark(&self, block: u64) -> Bookmark {
        let (objset, object) = (self.objset().id(), self.id());
        Bookmark { objset, object, level: Level::DATA, block: BlockId(block) }
    }
}

/// Data blocks of an object being read: their sources are known, but not waited for yet.
#[must_use = "others wait for its blocks"]
pub struct LiveRead<'a> {
    plan: Plan<'a>,
    /// Those on disk.
    batch: Batch<'a>,
}

impl LiveRead<'_> {
    /// How the blocks on disk were found, for [`PrefetchStreams`](rzfs_cache::PrefetchStreams).
    #[must_use]
    pub fn outcome(&self) -> AccessOutcome {
        self.batch.outcome()
    }

    /// Waits for the blocks; holes and blocks beyond the end are zeros.
    #[must_use]
    pub fn finish(self) -> Vec<Result<Block, DmuError>> {
        let Self { plan, batch } = self;
        let mut read = batch.finish_while(&plan).into_iter();
        let mut next = |block: u64| {
            let bookmark = plan.object.data_bookmark(block);
            let contents = read.next().unwrap_or(Err(BlockError::NoCopy));
            contents.map_err(|source| DmuError::Block { bookmark, source })
        };
        let contents = |(block, origin): (u64, &Origin)| {
            let contents = match origin {
                Origin::Dirty(contents) => Ok(contents.clone()),
                Origin::OnDisk(Err(error)) => Err(error.clone()),
                _ if origin.pointer().is_some() => next(block),
                _ => Ok(Block::zeros(plan.block_size)),
            };
            match contents {
                Err(_) if !plan.is_valid_for(block, origin) => {
                    plan.object.read_block(BlockId(block))
                }
                contents => contents,
            }
        };
        plan.numbered().map(contents).collect()
    }
}
