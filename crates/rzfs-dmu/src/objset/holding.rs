//! Loading objects that stay in memory.

use super::Objset;
use crate::DmuError;
use crate::tree::{Tree, Visited};
use rzfs_format::{BlockPointer, ObjectId};

/// Maximum number of blocks read together.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 4 << 20;
/// Number of unreadable blocks after which the rest of an object is skipped.
const PATIENCE: u32 = 64;

impl Objset {
    /// Holds an object of the MOS in memory from now on, as far as there is room: its readable
    /// blocks on disk, and what is written. The meta-dnode can be held under its number.
    pub fn hold(&self, id: ObjectId) {
        if !self.pipeline().held().add_object(id) {
            return;
        }
        let object = match id {
            ObjectId::META_DNODE => self.meta_object(),
            id => self.object(id).ok(),
        };
        // A new object is held as it is written.
        let Some(object) = object else { return };
        let top = object.dnode().levels - 1;
        let tree = object.tree();
        let pointers = tree.pointers(top, 0..object.dnode().pointers.len() as u64);
        // Without room the rest is read on demand.
        let mut holding = Holding { tree, visited: Visited::default(), failures: 0 };
        let _ = holding.below(top, 0, pointers);
    }

    /// Stops holding an object that is gone.
    pub fn release(&self, id: ObjectId) {
        self.pipeline().held().remove_object(id);
    }
}

/// An object being loaded.
struct Holding<'a> {
    tree: Tree<'a>,
    visited: Visited,
    failures: u32,
}

/// There is no more room, or too much is damaged.
struct Enough;

impl Holding<'_> {
    /// Holds the blocks of `level` from `first` on, and all their descendants, except for damaged
    /// ones.
    fn below(
        &mut self,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
    ) -> Result<(), Enough> {
        let mut there = Vec::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            let Ok(pointer) = pointer else { continue };
            let has_block = !pointer.is_hole() && !pointer.is_embedded() && !pointer.is_redacted();
            if has_block && !self.visited.is_repeated(&pointer, level, block) {
                there.push((block, pointer));
            }
        }
        let size = match level {
            0 => self.tree.dnode.data_block_size,
            _ => self.tree.dnode.indirect_size(),
        };
        for batch in there.chunks((BATCH_BYTES / size.max(1) as usize).clamp(1, BATCH)) {
            let numbers = batch.iter().map(|(block, _)| *block);
            let pointers = batch.iter().map(|(_, pointer)| Ok(*pointer)).collect();
            let blocks = self.tree.begin(level, numbers, pointers).finish();
            for ((number, pointer), block) in batch.iter().zip(blocks) {
                let Ok(Some(block)) = block else {
                    self.failures += 1;
                    if self.failures > PATIENCE {
                        return Err(Enough);
                    }
                    continue;
                };
                let bookmark = self.tree.bookmark(level, *number);
                if !self.tree.pipeline.held().add(bookmark, pointer, block.clone()) {
                    return Err(Enough);
                }
                if let Some(below) = level.checked_sub(1)
                    && let Some(first) = number.checked_mul(1 << self.tree.dnode.pointers_shift())
                {
                    self.below(below, first, self.tree.children(below, first, &block))?;
                }
            }
        }
        Ok(())
    }
}
