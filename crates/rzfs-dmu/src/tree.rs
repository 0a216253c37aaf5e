//! Walking an object's tree of indirect blocks (spec 03, section 3).
//!
//! Pointers are not trusted: a child must have the type, level and size given by its dnode, else it
//! is corrupt, and only its descendants are lost.

mod above;

pub(crate) use above::AboveCheck;

use crate::in_force::{InForce, Never};
use crate::{Batch, Block, BlockError, BlockPipeline, BlockRequest, DmuError, Existence};
use rzfs_cache::AccessOutcome;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::Dnode;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, FormatError, Level, ObjectId, ObjsetId, VdevId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The tree of one object.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) pipeline: &'a BlockPipeline,
    pub(crate) key: Option<&'a Arc<DatasetKey>>,
    pub(crate) objset: ObjsetId,
    pub(crate) object: ObjectId,
    pub(crate) dnode: &'a Dnode,
    /// Whether the object set still exists, if it can be destroyed.
    pub(crate) existence: Option<&'a Existence>,
    /// Knows whether its blocks are still in force.
    pub(crate) owner: &'a dyn InForce,
}

/// The target of a search along an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seek {
    /// A block that is not a hole.
    Data,
    /// A hole.
    Hole,
}

/// The indirect blocks met by a search, with the place of each in the tree. None has two places;
/// damage that gives it more would make a small tree endless.
#[derive(Debug, Default)]
pub(crate) struct Visited(HashMap<(VdevId, u64), (u8, u64)>);

impl Visited {
    /// Whether an indirect block already has another place.
    pub(crate) fn is_repeated(&mut self, pointer: &BlockPointer, level: u8, block: u64) -> bool {
        let place = (level, block);
        identity(pointer).is_some_and(|at| *self.0.entry(at).or_insert(place) != place)
    }
}

/// The address of a block; `None` for embedded data.
pub(crate) fn identity(pointer: &BlockPointer) -> Option<(VdevId, u64)> {
    pointer.dvas().next().map(|dva| (dva.vdev(), dva.offset()))
}

/// The error for a tree that contains a block twice.
pub(crate) fn repeated(bookmark: Bookmark) -> DmuError {
    let source = FormatError::invalid("block pointer", "the block is in another place too");
    DmuError::Corrupt { bookmark, source }
}

/// A part of a tree that a search could not examine.
#[derive(Debug)]
pub(crate) struct Damage {
    /// The error.
    pub(crate) error: DmuError,
    /// The first data block after it; always after the start of the search.
    pub(crate) end: u64,
}

/// Blocks of a tree being read.
pub(crate) struct TreeRead<'a> {
    tree: Tree<'a>,
    /// The error of a block without a pointer, `None` for a hole, or its location.
    parts: Vec<Result<Option<Bookmark>, DmuError>>,
    /// Those that are not holes.
    batch: Batch<'a>,
}

impl TreeRead<'_> {
    /// How the blocks were found.
    pub(crate) fn outcome(&self) -> AccessOutcome {
        self.batch.outcome()
    }

    /// The blocks; `None` is a hole.
    pub(crate) fn finish(self) -> Vec<Result<Option<Block>, DmuError>> {
        let Self { tree, parts, batch } = self;
        let mut blocks = batch.finish_while(tree.owner).into_iter();
        let finished = |part: Result<Option<Bookmark>, DmuError>| {
            let Some(bookmark) = part? else { return Ok(None) };
            let block = blocks.next().unwrap_or(Err(BlockError::NoCopy));
            block.map(Some).map_err(|source| tree.failure(bookmark, source))
        };
        parts.into_iter().map(finished).collect()
    }
}

/// Indirect blocks read together.
pub(crate) const AHEAD: u64 = 32;

type PointerResult = Result<BlockPointer, DmuError>;

impl<'a> Tree<'a> {
    pub(crate) fn bookmark(&self, level: u8, block: u64) -> Bookmark {
        Bookmark {
            objset: self.objset,
            object: self.object,
            level: Level(level as i8),
            block: BlockId(block),
        }
    }

    fn check_existence(&self) -> Result<(), DmuError> {
        match self.existence {
            Some(existence) if existence.has_ended() => {
                Err(DmuError::Superseded { objset: self.objset })
            }
            _ => Ok(()),
        }
    }

    /// The error for an unreadable block: blocks of a destroyed set may have been reused.
    fn failure(&self, bookmark: Bookmark, source: BlockError) -> DmuError {
        self.check_existence().err().unwrap_or(DmuError::Block { bookmark, source })
    }

    /// The spill block.
    pub(crate) fn spill(&self) -> Result<Option<Block>, DmuError> {
        let Some(pointer) = self.dnode.spill.as_ref().filter(|pointer| !pointer.is_hole()) else {
            return Ok(None);
        };
        let bookmark = Bookmark { block: BlockId::SPILL, ..self.bookmark(0, 0) };
        self.check_existence()?;
        let request = BlockRequest { pointer, bookmark, key: self.key };
        let read = self.pipeline.begin(&[request]).finish_while(self.owner).pop();
        let block = read.unwrap_or(Err(BlockError::NoCopy));
        block.map(Some).map_err(|source| self.failure(bookmark, source))
    }

    /// The pointers to the blocks `range` of `level`; blocks beyond the tree are holes.
    pub(crate) fn pointers(&self, level: u8, range: Range<u64>) -> Vec<PointerResult> {
        if level + 1 >= self.dnode.levels {
            let top = &self.dnode.pointers;
            return range
                .map(|block| {
                    let pointer = usize::try_from(block).ok().and_then(|index| top.get(index));
                    self.checked(level, block, pointer.copied().unwrap_or_default())
                })
                .collect();
        }
        let shift = self.dnode.pointers_shift();
        let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else {
            return Vec::new();
        };
        let parents = (range.start >> shift)..(last >> shift) + 1;
        let parent_pointers = self.pointers(level + 1, parents.clone());
        let parent_blocks = self.read(level + 1, parents.start, parent_pointers);
        let mut found = Vec::with_capacity((range.end - range.start) as usize);
        for (parent, block) in parents.zip(parent_blocks) {
            let first = range.start.max(parent << shift);
            let end = range.end.min((parent + 1) << shift);
            for child in first..end {
                found.push(match &block {
                    Ok(Some(block)) => self.child(level, child, block),
                    Ok(None) => Ok(BlockPointer::HOLE),
                    Err(error) => Err(error.clone()),
                });
            }
        }
        found
    }

    /// The pointer to block `child` of `level`, from the indirect block above it.
    fn child(&self, level: u8, child: u64, parent: &Block) -> PointerResult {
        let index = self.dnode.index_in_parent(level, BlockId(child));
        let bytes = parent.data.get(index * BlockPointer::SIZE..).unwrap_or_default();
        let pointer = BlockPointer::decode(bytes, parent.order).map_err(|source| {
            DmuError::Corrupt { bookmark: self.bookmark(level, child), source }
        })?;
        self.checked(level, child, pointer)
    }

    pub(crate) fn checked(&self, level: u8, block: u64, pointer: BlockPointer) -> PointerResult {
        const WHAT: &str = "block pointer";
        if pointer.is_hole() || pointer.is_redacted() {
            return Ok(pointer);
        }
        let size = if level == 0 { self.dnode.data_block_size } else { self.dnode.indirect_size() };
        let problem = if pointer.object_type_number() != self.dnode.object_type.number() {
            FormatError::field(WHAT, "object type", pointer.object_type_number())
        } else if pointer.level() != Level(level as i8) {
            FormatError::field(WHAT, "level", pointer.level().0 as u8)
        } else if pointer.logical_size() != u64::from(size) {
            FormatError::field(WHAT, "logical size", pointer.logical_size())
        } else {
            return Ok(pointer);
        };
        Err(DmuError::Corrupt { bookmark: self.bookmark(level, block), source: problem })
    }

    /// Reads the blocks of `level` from `first` on, given their pointers; `None` is a hole.
    pub(crate) fn read(
        &self,
        level: u8,
        first: u64,
        pointers: Vec<PointerResult>,
    ) -> Vec<Result<Option<Block>, DmuError>> {
        self.begin(level, first.., pointers).finish()
    }

    /// Begins to read blocks of `level`, given their numbers and pointers.
    pub(crate) fn begin(
        &self,
        level: u8,
        blocks: impl IntoIterator<Item = u64>,
        mut pointers: Vec<PointerResult>,
    ) -> TreeRead<'a> {
        if let Err(error) = self.check_existence() {
            pointers.fill_with(|| Err(error.clone()));
        }
        let bookmarks: Vec<Bookmark> =
            blocks.into_iter().take(pointers.len()).map(|id| self.bookmark(level, id)).collect();
        let batch = self.pipeline.begin(&self.requests(&bookmarks, &pointers));
        let part = |(pointer, bookmark): (PointerResult, Bookmark)| {
            pointer.map(|pointer| (!pointer.is_hole()).then_some(bookmark))
        };
        let parts = pointers.into_iter().zip(bookmarks).map(part).collect();
        TreeRead { tree: *self, parts, batch }
    }

    /// Requests for the blocks that exist.
    fn requests<'p>(
        &'p self,
        bookmarks: &[Bookmark],
        pointers: &'p [PointerResult],
    ) -> Vec<BlockRequest<'p>> {
        let request = |(pointer, bookmark): (&'p PointerResult, &Bookmark)| {
            let pointer = pointer.as_ref().ok().filter(|pointer| !pointer.is_hole())?;
            Some(BlockRequest { pointer, bookmark: *bookmark, key: self.key })
        };
        pointers.iter().zip(bookmarks).filter_map(request).collect()
    }

    /// Reads the missing ones of these blocks into the cache.
    pub(crate) fn prefetch(&self, level: u8, range: Range<u64>) {
        if self.check_existence().is_err() {
            return;
        }
        // Their parents are not required either: errors reading them do not count.
        let pointers = Tree { owner: &Never, ..*self }.pointers(level, range.clone());
        let bookmarks: Vec<Bookmark> = range.map(|id| self.bookmark(level, id)).collect();
        self.pipeline.prefetch(&self.requests(&bookmarks, &pointers));
    }

    /// The first block from `from` on that is data, or a hole; `None` when there is none up to the
    /// object's last block.
    pub(crate) fn seek(&self, seek: Seek, from: u64) -> Result<Option<u64>, Box<Damage>> {
        self.seek_on(seek, from, &mut Visited::default())
    }

    /// As [`Tree::seek`], for one of many searches along the tree.
    pub(crate) fn seek_on(
        &self,
        seek: Seek,
        from: u64,
        visited: &mut Visited,
    ) -> Result<Option<u64>, Box<Damage>> {
        let top = self.dnode.levels - 1;
        let pointers = self.pointers(top, 0..self.dnode.pointers.len() as u64);
        let found = self.seek_in(seek, from, (top, 0), pointers, visited)?;
        Ok(found.filter(|block| *block <= self.dnode.max_block_id.0))
    }

    /// The first data block below block `block` of `level`; `None` on overflow.
    pub(crate) fn first_below(&self, level: u8, block: u64) -> Option<u64> {
        let shift = u32::from(level) * self.dnode.pointers_shift();
        block.checked_shl(shift).filter(|below| below >> shift == block)
    }

    /// The damage of everything below a block.
    pub(crate) fn damage(&self, level: u8, block: u64, error: DmuError) -> Box<Damage> {
        let end = self.first_below(level, block + 1).unwrap_or(u64::MAX);
        Box::new(Damage { error, end })
    }

    /// Searches below `pointers`, which belong to the blocks of a level from `first` on.
    fn seek_in(
        &self,
        seek: Seek,
        from: u64,
        (level, first): (u8, u64),
        pointers: Vec<PointerResult>,
        visited: &mut Visited,
    ) -> Result<Option<u64>, Box<Damage>> {
        let skipped = self.dnode.ancestor(BlockId(from), level).0.saturating_sub(first);
        for (pointer, block) in pointers.into_iter().zip(first..).skip(skipped as usize) {
            let Some(start) = self.first_below(level, block) else { return Ok(None) };
            if start > self.dnode.max_block_id.0 {
                return Ok(None);
            }
            let pointer = pointer.map_err(|error| self.damage(level, block, error))?;
            if level == 0 || pointer.is_hole() {
                if pointer.is_hole() == (seek == Seek::Hole) {
                    return Ok(Some(start.max(from)));
                }
                continue;
            }
            if visited.is_repeated(&pointer, level, block) {
                let error = repeated(self.bookmark(level, block));
                return Err(self.damage(level, block, error));
            }
            if let Some(found) = self.seek_below(seek, from, (level, block), pointer, visited)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn seek_below(
        &self,
        seek: Seek,
        from: u64,
        (level, block): (u8, u64),
        pointer: BlockPointer,
        visited: &mut Visited,
    ) -> Result<Option<u64>, Box<Damage>> {
        let parent = self.read(level, block, vec![Ok(pointer)]).pop().transpose();
        let parent = parent.map_err(|error| self.damage(level, block, error))?.flatten();
        let Some(parent) = parent else { return Ok(None) };
        let first = block << self.dnode.pointers_shift();
        let children = self.children(level - 1, first, &parent);
        self.seek_in(seek, from, (level - 1, first), children, visited)
    }

    /// Those pointers of an indirect block that are not holes, for the blocks of `level` from
    /// `first` on.
    pub(crate) fn present_children(
        &self,
        level: u8,
        first: u64,
        parent: &Block,
    ) -> Vec<(u64, PointerResult)> {
        let end = first.saturating_add((parent.data.len() / BlockPointer::SIZE) as u64);
        self.present_among(level, first..end, parent)
    }

    /// The same for the blocks with these numbers.
    fn present_among(
        &self,
        level: u8,
        numbers: Range<u64>,
        parent: &Block,
    ) -> Vec<(u64, PointerResult)> {
        let children = numbers.map(|child| (child, self.child(level, child, parent)));
        let is_there = |child: &PointerResult| !child.as_ref().is_ok_and(BlockPointer::is_hole);
        children.filter(|(_, child)| is_there(child)).collect()
    }

    /// All stored pointers of an indirect block, valid or damaged.
    pub(crate) fn stored_children(parent: &Block) -> Vec<BlockPointer> {
        let stored = parent.data.chunks_exact(BlockPointer::SIZE);
        stored.filter_map(|bytes| BlockPointer::decode(bytes, parent.order).ok()).collect()
    }

    /// All pointers of an indirect block, for the blocks of `level` from `first` on.
    pub(crate) fn children(&self, level: u8, first: u64, parent: &Block) -> Vec<PointerResult> {
        let count = (parent.data.len() / BlockPointer::SIZE) as u64;
        (first..first + count).map(|child| self.child(level, child, parent)).collect()
    }
}
