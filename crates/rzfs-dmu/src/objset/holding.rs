//! Reading what stays in memory.

use super::Objset;
use crate::DmuError;
use crate::tree::{Tree, Visited};
use rzfs_format::{BlockPointer, ObjectId};

/// Blocks, and bytes of them, that are read together.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 4 << 20;
/// Blocks of an object that cannot be read after which the rest is left out.
const PATIENCE: u32 = 64;

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
        let mut holding = Holding { tree, visited: Visited::default(), failures: 0 };
        let _ = holding.below(top, 0, pointers);
    }

    /// Holds an object no more, as it has gone.
    pub fn release(&self, id: ObjectId) {
        self.pipeline().held().remove_object(id);
    }
}

/// An object that is being read.
struct Holding<'a> {
    tree: Tree<'a>,
    visited: Visited,
    failures: u32,
}

/// There is no room for more, or too much is damaged.
struct Enough;

impl Holding<'_> {
    /// Holds the blocks of `level` from `first` on, and all that is below them, but for what is
    /// damaged.
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
