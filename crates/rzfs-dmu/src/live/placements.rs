//! Where dirty blocks were written before their txg is synced ([`super::placing`]).

use super::buffer::DirtyBuffer;
use rzfs_format::BlockPointer;
use std::collections::BTreeMap;

/// Where a version of a block was written.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) buffer: DirtyBuffer,
    pub(super) pointer: BlockPointer,
}

/// The placed blocks of an object in one txg.
#[derive(Clone, Default, Debug)]
pub(super) struct Placements {
    current: BTreeMap<u64, Placed>,
    /// Blocks placed again since, or whose writes failed.
    replaced: Vec<BlockPointer>,
}

impl Placements {
    /// The place of a block with these contents.
    pub(super) fn of(&self, block: u64, buffer: &DirtyBuffer) -> Option<BlockPointer> {
        let placed = self.current.get(&block).filter(|placed| placed.buffer.is_same(buffer))?;
        Some(placed.pointer)
    }

    /// Records the place of a block.
    pub(super) fn set(&mut self, block: u64, placed: Placed) {
        let before = self.current.insert(block, placed);
        self.replaced.extend(before.map(|before| before.pointer));
    }

    /// Records a written block that is not needed.
    pub(super) fn discard(&mut self, pointer: BlockPointer) {
        self.replaced.push(pointer);
    }

    /// All written blocks.
    pub(super) fn all(&self) -> impl Iterator<Item = BlockPointer> {
        let current = self.current.values().map(|placed| placed.pointer);
        current.chain(self.replaced.iter().copied())
    }

    /// The blocks that are not needed, given those that are synced.
    pub(super) fn unused(&self, synced: &BTreeMap<u64, DirtyBuffer>) -> Vec<BlockPointer> {
        let is_used = |block: &u64, placed: &Placed| {
            synced.get(block).is_some_and(|buffer| placed.buffer.is_same(buffer))
        };
        let changed = self.current.iter().filter(|(block, placed)| !is_used(block, placed));
        changed.map(|(_, placed)| placed.pointer).chain(self.replaced.iter().copied()).collect()
    }
}
