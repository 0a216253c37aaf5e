//! Checking the parents of data blocks before these are changed.

use super::{AHEAD, Tree, Visited, repeated};
use crate::{Block, DmuError};
use rzfs_format::{BlockId, BlockPointer, Txg};
use std::ops::Range;

/// Which indirect blocks to check.
pub(crate) struct AboveCheck {
    /// Those above these data blocks.
    pub(crate) blocks: Range<u64>,
    /// Those born later than this.
    pub(crate) newer_than: Txg,
    /// About this many of them at most.
    pub(crate) limit: u64,
}

/// A walk down a tree that reads each indirect block once.
struct Walk<'a> {
    tree: Tree<'a>,
    check: AboveCheck,
    visited: Visited,
}

impl Tree<'_> {
    /// Reads all parents of the data blocks of a range, skipping holes, so that callers that change
    /// or free these can rely on them.
    ///
    /// # Errors
    /// The first block that cannot be read, or an invalid pointer.
    pub(crate) fn check_above(&self, check: AboveCheck) -> Result<(), DmuError> {
        if self.dnode.levels < 2 || check.blocks.is_empty() {
            return Ok(());
        }
        let mut walk = Walk { tree: *self, check, visited: Visited::default() };
        let top = self.dnode.levels - 1;
        let numbers = walk.numbers(top, 0..self.dnode.pointers.len() as u64);
        let pointers = self.pointers(top, numbers.clone());
        walk.read(top, numbers.zip(pointers))
    }

    /// The birth of the newest block below the dnode.
    pub(crate) fn newest_birth(&self) -> Txg {
        self.dnode.pointers.iter().map(BlockPointer::logical_birth).max().unwrap_or(Txg(0))
    }
}

impl Walk<'_> {
    /// Those of the blocks of a level that are, or are above, the wanted data.
    fn numbers(&self, level: u8, among: Range<u64>) -> Range<u64> {
        let above = |block: u64| self.tree.dnode.ancestor(BlockId(block), level).0;
        let Range { start, end } = self.check.blocks;
        among.start.max(above(start))..among.end.min(above(end.saturating_sub(1)) + 1)
    }

    /// Reads indirect blocks of `level`, and their descendants above the data.
    fn read(
        &mut self,
        level: u8,
        pointers: impl Iterator<Item = (u64, Result<BlockPointer, DmuError>)>,
    ) -> Result<(), DmuError> {
        let mut wanted = Vec::new();
        for (block, pointer) in pointers {
            let pointer = pointer?;
            if pointer.is_hole() || pointer.logical_birth() <= self.check.newer_than {
                continue;
            }
            if self.visited.is_repeated(&pointer, level, block) {
                return Err(repeated(self.tree.bookmark(level, block)));
            }
            wanted.push((block, pointer));
        }
        for chunk in wanted.chunks(AHEAD as usize) {
            let Some(left) = self.check.limit.checked_sub(chunk.len() as u64) else {
                return Ok(());
            };
            self.check.limit = left;
            let numbers = chunk.iter().map(|(block, _)| *block);
            let pointers = chunk.iter().map(|(_, pointer)| Ok(*pointer)).collect();
            let contents = self.tree.begin(level, numbers, pointers).finish();
            for ((block, _), contents) in chunk.iter().zip(contents) {
                if let Some(contents) = contents? {
                    self.look_into(level, *block, &contents)?;
                }
            }
        }
        Ok(())
    }

    /// Examines the pointers of an indirect block.
    fn look_into(&mut self, level: u8, block: u64, contents: &Block) -> Result<(), DmuError> {
        let shift = self.tree.dnode.pointers_shift();
        let first = block << shift;
        let numbers = self.numbers(level - 1, first..first.saturating_add(1 << shift));
        let mut children = self.tree.present_among(level - 1, numbers, contents).into_iter();
        match level {
            1 => children.try_for_each(|(_, child)| child.map(drop)),
            _ => self.read(level - 1, children),
        }
    }
}
