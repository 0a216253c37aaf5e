//! Limits the part of an object that one txg frees.
//!
//! A txg keeps every block that dies in it in memory until it is on disk. So large ranges are freed
//! piece by piece, from the end on; this finds the start of a piece.

use super::object::LiveObject;
use crate::DmuError;
use crate::tree::{Tree, Visited, repeated};
use rzfs_format::dnode::Dnode;
use rzfs_format::{BlockId, BlockPointer};
use std::ops::{ControlFlow, Range};

/// Blocks of an object to free together: the last ones of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its start; the beginning of the range, if all before this is holes or part of the piece.
    pub first: BlockId,
    /// Number of data blocks on disk in it.
    pub blocks: u64,
}

impl LiveObject {
    /// Data blocks that the object has on disk, excluding holes.
    #[must_use]
    pub fn blocks_on_disk(&self) -> u64 {
        let state = self.state();
        let Some(dnode) = state.synced.as_deref() else { return 0 };
        let blocks = dnode.pointers.iter().map(BlockPointer::fill).fold(0, u64::saturating_add);
        blocks.min(dnode.max_block_id.0.saturating_add(1))
    }

    /// The end of a range of blocks that has no more than `most` blocks on disk, where `most` is at
    /// least one. Dirty blocks do not count.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn last_piece(&self, range: Range<BlockId>, most: u64) -> Result<Piece, DmuError> {
        loop {
            let Some(on_disk) = self.synced() else {
                return Ok(Piece { first: range.start, blocks: 0 });
            };
            match last_piece(&on_disk.tree(), &range, most) {
                Err(_) if on_disk.is_replaced() => {}
                result => return result,
            }
        }
    }
}

fn last_piece(tree: &Tree<'_>, range: &Range<BlockId>, most: u64) -> Result<Piece, DmuError> {
    let dnode: &Dnode = tree.dnode;
    let top = dnode.levels.saturating_sub(1);
    let (range, visited) = (range.start.0..range.end.0, Visited::default());
    let mut search = Search { tree, range: range.clone(), left: most.max(1), visited };
    let pointers = tree.pointers(top, 0..dnode.pointers.len() as u64);
    let first = match search.walk(top, 0, pointers)? {
        ControlFlow::Break(first) => BlockId(first),
        ControlFlow::Continue(()) => BlockId(range.start),
    };
    Ok(Piece { first, blocks: most.max(1) - search.left })
}

/// A backward walk through a tree from the end of a range.
struct Search<'a> {
    tree: &'a Tree<'a>,
    range: Range<u64>,
    /// Blocks that the piece may still take.
    left: u64,
    visited: Visited,
}

impl Search<'_> {
    /// Visits the blocks of `level` from `first` on, backwards; stops after the first block that is
    /// too much.
    fn walk(
        &mut self,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
    ) -> Result<ControlFlow<u64>, DmuError> {
        for (index, pointer) in pointers.into_iter().enumerate().rev() {
            let block = first + index as u64;
            let Some(start) = self.tree.first_below(level, block) else { continue };
            let end = self.tree.first_below(level, block + 1).unwrap_or(u64::MAX);
            if start >= self.range.end {
                continue;
            }
            if end <= self.range.start {
                break;
            }
            let pointer = pointer?;
            if pointer.is_hole() || pointer.is_redacted() {
                continue;
            }
            let is_inside = start >= self.range.start && end <= self.range.end;
            // A pointer's fill count is at most the room below it.
            let blocks = if level == 0 { 1 } else { pointer.fill().clamp(1, end - start) };
            if is_inside && let Some(left) = self.left.checked_sub(blocks) {
                self.left = left;
                continue;
            }
            if level == 0 {
                return Ok(ControlFlow::Break(block + 1));
            }
            if self.visited.is_repeated(&pointer, level, block) {
                return Err(repeated(self.tree.bookmark(level, block)));
            }
            let found = self.tree.read(level, block, vec![Ok(pointer)]).pop().transpose()?;
            let Some(contents) = found.flatten() else { continue };
            let below = block << self.tree.dnode.pointers_shift();
            let children = self.tree.children(level - 1, below, &contents);
            if let ControlFlow::Break(first) = self.walk(level - 1, below, children)? {
                return Ok(ControlFlow::Break(first));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
