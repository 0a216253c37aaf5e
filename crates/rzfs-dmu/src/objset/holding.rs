//! Reading what stays in memory.

use super::Objset;
use crate::DmuError;
use crate::tree::{Tree, Visited};
use rzfs_format::{BlockPointer, ObjectId};

/// Blocks that are read together.
const BATCH: usize = 64;

impl Objset {
    /// Holds an object of the MOS in memory from now on, as far as there is room: what of it is on
    /// disk and can be read, and what is written. Under its number the meta-dnode is one of them.
    pub fn hold(&self, id: ObjectId) {
        if !self.pipeline().held().add_object(id) {
            return;
        }
        let object = match id {
            ObjectId::META_DNODE => self.meta_object(),
            id => self.object(id).ok(),
        };
        // One that is being made is held as it is written.
        let Some(object) = object else { return };
        let top = object.dnode().levels - 1;
        let tree = object.tree();
        let pointers = tree.pointers(top, 0..object.dnode().pointers.len() as u64);
        // Without room the rest is read when it is wanted.
        let _ = Holding { tree, visited: Visited::default() }.below(top, 0, pointers);
    }
}

/// An object that is being read.
struct Holding<'a> {
    tree: Tree<'a>,
    visited: Visited,
}

/// There is no room for more.
struct IsFull;

impl Holding<'_> {
    /// Holds the blocks of `level` from `first` on, and all that is below them. What is damaged is
    /// left to whoever wants it.
    fn below(
        &mut self,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
    ) -> Result<(), IsFull> {
        let mut there = Vec::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            let Ok(pointer) = pointer else { continue };
            let has_block = !pointer.is_hole() && !pointer.is_embedded() && !pointer.is_redacted();
            if has_block && !self.visited.is_repeated(&pointer, level, block) {
                there.push((block, pointer));
            }
        }
        for batch in there.chunks(BATCH) {
            let numbers = batch.iter().map(|(block, _)| *block);
            let pointers = batch.iter().map(|(_, pointer)| Ok(*pointer)).collect();
            let blocks = self.tree.begin(level, numbers, pointers).finish();
            for ((number, pointer), block) in batch.iter().zip(blocks) {
                let Ok(Some(block)) = block else { continue };
                let bookmark = self.tree.bookmark(level, *number);
                if !self.tree.pipeline.held().add(bookmark, pointer, block.clone()) {
                    return Err(IsFull);
                }
                if let Some(below) = level.checked_sub(1) {
                    let first = number << self.tree.dnode.pointers_shift();
                    self.below(below, first, self.tree.children(below, first, &block))?;
                }
            }
        }
        Ok(())
    }
}
