//! How much of an object one txg frees.
//!
//! A txg remembers every block that dies in it until it is on disk. Whoever frees much therefore
//! does it piece by piece, from the end on, and is told here where a piece begins.

use super::object::LiveObject;
use crate::DmuError;
use crate::tree::{Tree, Visited, repeated};
use rzfs_format::dnode::Dnode;
use rzfs_format::{BlockId, BlockPointer};
use std::ops::{ControlFlow, Range};

/// Blocks of an object that are to be freed together: the last ones of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins; at the beginning of the range, if the rest of this is all holes or part
    /// of the piece.
    pub first: BlockId,
    /// Data blocks on disk that it has.
    pub blocks: u64,
}

impl LiveObject {
    /// Data blocks that the object has on disk, holes not counted.
    #[must_use]
    pub fn blocks_on_disk(&self) -> u64 {
        let state = self.state();
        let Some(dnode) = state.synced.as_deref() else { return 0 };
        let blocks = dnode.pointers.iter().map(BlockPointer::fill).fold(0, u64::saturating_add);
        blocks.min(dnode.max_block_id.0.saturating_add(1))
    }

    /// The end of a range of blocks, as far as there are no more than `most`, which is at least
    /// one, on disk in it. What is dirty does not count.
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

/// A walk along a tree from the end of a range on.
struct Search<'a> {
    tree: &'a Tree<'a>,
    range: Range<u64>,
    /// Blocks that the piece may still have.
    left: u64,
    visited: Visited,
}

impl Search<'_> {
    /// Goes through the blocks of `level` from `first` on; breaks off behind the first block that
    /// is too much.
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
            // What a pointer says is no more than there is room for below it.
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
