//! The changes of one txg to an object.

use super::buffer::DirtyBuffer;
use super::placements::Placements;
use super::ranges::RangeSet;
use crate::contents::dirty_cost;
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, Txg};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// All of a dnode except for the location of its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) object_type: ObjectType,
    pub(super) bonus_type: ObjectType,
    pub(super) bonus: Arc<[u8]>,
    pub(super) data_block_size: u32,
    pub(super) indirect_shift: u8,
    pub(super) pointer_count: u8,
    pub(super) slots: u8,
    pub(super) checksum: u8,
    pub(super) compress: u8,
    pub(super) max_block_id: BlockId,
    pub(super) has_spill: bool,
}

impl Shape {
    pub(super) fn of(dnode: &Dnode) -> Self {
        Self {
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            bonus: dnode.bonus.as_slice().into(),
            data_block_size: dnode.data_block_size,
            indirect_shift: dnode.indirect_shift,
            pointer_count: dnode.pointers.len() as u8,
            slots: dnode.slots,
            checksum: dnode.checksum,
            compress: dnode.compress,
            max_block_id: dnode.max_block_id,
            has_spill: dnode.spill.is_some(),
        }
    }

    /// A dnode of this shape with the blocks of `on_disk`, or none.
    pub(super) fn dnode(&self, on_disk: Option<&Dnode>) -> Dnode {
        let fresh = || Dnode {
            object_type: self.object_type,
            bonus_type: self.bonus_type,
            indirect_shift: self.indirect_shift,
            levels: 1,
            checksum: self.checksum,
            compress: self.compress,
            flags: rzfs_format::dnode::DnodeFlags::default(),
            data_block_size: self.data_block_size,
            slots: self.slots,
            max_block_id: BlockId(0),
            used: 0,
            pointers: vec![BlockPointer::HOLE; usize::from(self.pointer_count)],
            bonus: Vec::new(),
            spill: None,
            order: rzfs_format::ByteOrder::NATIVE,
        };
        let base = on_disk.cloned().unwrap_or_else(fresh);
        Dnode {
            object_type: self.object_type,
            bonus_type: self.bonus_type,
            bonus: self.bonus.to_vec(),
            data_block_size: self.data_block_size,
            checksum: self.checksum,
            compress: self.compress,
            max_block_id: self.max_block_id,
            ..base
        }
    }
}

/// A change of the spill block.
#[derive(Clone, Debug, Default)]
pub(super) enum SpillChange {
    /// Nothing.
    #[default]
    Kept,
    /// It gets these contents.
    Written(DirtyBuffer),
    /// It is removed.
    Removed,
}

/// Whether the object exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Existence {
    Alive,
    Freed,
}

/// The changes of one txg.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) txg: Txg,
    /// The object's shape as of this txg.
    pub(super) shape: Shape,
    pub(super) blocks: BTreeMap<u64, DirtyBuffer>,
    /// Blocks of `blocks` that are already on disk.
    pub(super) placements: Placements,
    /// Blocks that became clones, none of which is in `blocks`.
    pub(super) clones: BTreeMap<u64, BlockPointer>,
    /// Blocks that became holes, unless they are in `blocks` or `clones`.
    pub(super) freed: RangeSet,
    pub(super) spill: SpillChange,
    pub(super) existence: Existence,
    /// Total memory the version has ever used, including its buffers, in bytes.
    pub(super) dirtied: u64,
}

impl Version {
    /// Memory used by a dirty object besides its blocks, in bytes: the version, the shared object,
    /// its table entries, and the dnodes, old and new, while it is synced.
    const COST: u64 = 2048;
    /// Memory used by a cloned block, in bytes: its pointer here, while it is synced, and until it
    /// is counted; and that of the block it replaces.
    const CLONE: u64 = 900;

    /// No changes yet.
    pub(super) fn new(txg: Txg, shape: Shape) -> Self {
        Self {
            txg,
            shape,
            blocks: BTreeMap::new(),
            placements: Placements::default(),
            clones: BTreeMap::new(),
            freed: RangeSet::default(),
            spill: SpillChange::Kept,
            existence: Existence::Alive,
            dirtied: Self::COST,
        }
    }

    /// Whether a block not in `blocks` differs from before this txg.
    pub(super) fn hides(&self, block: u64) -> bool {
        self.clones.contains_key(&block)
            || self.freed.contains(block)
            || self.existence == Existence::Freed
    }

    /// Adds a dirty block.
    pub(super) fn put(&mut self, block: u64, buffer: DirtyBuffer) {
        self.dirtied += dirty_cost(buffer.len());
        self.freed.remove(block);
        self.clones.remove(&block);
        self.shape.max_block_id = self.shape.max_block_id.max(BlockId(block));
        self.blocks.insert(block, buffer);
    }

    /// Adds a clone of an existing block.
    pub(super) fn put_clone(&mut self, block: u64, pointer: BlockPointer) {
        self.dirtied = self.dirtied.saturating_add(Self::CLONE);
        self.freed.remove(block);
        self.blocks.remove(&block);
        self.shape.max_block_id = self.shape.max_block_id.max(BlockId(block));
        self.clones.insert(block, pointer);
    }

    /// Turns blocks into holes.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        fn clear<T>(blocks: &mut BTreeMap<u64, T>, range: &Range<u64>) {
            let keys: Vec<u64> = blocks.range(range.clone()).map(|(key, _)| *key).collect();
            for key in keys {
                blocks.remove(&key);
            }
        }
        clear(&mut self.blocks, &range);
        clear(&mut self.clones, &range);
        self.freed.insert(range);
    }
}
