//! The state of an object in memory, shared by all its handles.

use super::buffer::DirtyBuffer;
use super::version::{Existence, Shape, Version};
use crate::txg::Gate;
use parking_lot::RwLock;
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ObjectId};
use std::collections::VecDeque;
use std::sync::Arc;

/// State shared by all handles of an object.
#[derive(Debug)]
pub(super) struct ObjectCore {
    pub(super) id: ObjectId,
    pub(super) gate: Arc<Gate>,
    pub(super) state: RwLock<ObjectState>,
}

#[derive(Debug, Default)]
pub(super) struct ObjectState {
    /// The dnode on disk, if any.
    pub(super) synced: Option<Arc<Dnode>>,
    /// Changes not on disk yet, oldest first.
    pub(super) versions: VecDeque<Version>,
}

/// Frequently used fields of the newest shape, copied without an allocation.
#[derive(Clone, Copy)]
pub(super) struct Outline {
    pub(super) object_type: ObjectType,
    pub(super) bonus_type: ObjectType,
    pub(super) data_block_size: u32,
    pub(super) indirect_shift: u8,
    pub(super) slots: u8,
    pub(super) max_block_id: BlockId,
    pub(super) has_spill: bool,
}

impl ObjectState {
    /// Marks the object as nonexistent; returns the previous state.
    pub(super) fn clear(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The newest shape; `None` when the object does not exist.
    pub(super) fn shape(&self) -> Option<Shape> {
        match self.versions.back() {
            Some(version) if version.existence == Existence::Freed => None,
            Some(version) => Some(version.shape.clone()),
            None => self.synced.as_deref().map(Shape::of),
        }
    }

    /// Its outline; `None` when the object does not exist.
    pub(super) fn outline(&self) -> Option<Outline> {
        let Some(Version { shape, existence, .. }) = self.versions.back() else {
            let dnode = self.synced.as_deref()?;
            return Some(Outline {
                object_type: dnode.object_type,
                bonus_type: dnode.bonus_type,
                data_block_size: dnode.data_block_size,
                indirect_shift: dnode.indirect_shift,
                slots: dnode.slots,
                max_block_id: dnode.max_block_id,
                has_spill: dnode.spill.is_some(),
            });
        };
        (*existence == Existence::Alive).then_some(Outline {
            object_type: shape.object_type,
            bonus_type: shape.bonus_type,
            data_block_size: shape.data_block_size,
            indirect_shift: shape.indirect_shift,
            slots: shape.slots,
            max_block_id: shape.max_block_id,
            has_spill: shape.has_spill,
        })
    }

    /// Whether a txg that is not on disk has made this block a clone of an existing one.
    pub(super) fn is_clone(&self, block: u64, pointer: &BlockPointer) -> bool {
        self.versions.iter().any(|version| version.clones.get(&block) == Some(pointer))
    }

    /// Where the newest contents of a block are.
    pub(super) fn in_memory(&self, block: u64) -> NewestBlock<'_> {
        for version in self.versions.iter().rev() {
            if let Some(buffer) = version.blocks.get(&block) {
                return NewestBlock::Buffer(buffer);
            }
            if let Some(pointer) = version.clones.get(&block) {
                return NewestBlock::Clone(*pointer);
            }
            if version.freed.contains(block) || version.existence == Existence::Freed {
                return NewestBlock::Hole;
            }
        }
        match &self.synced {
            Some(dnode) if block <= dnode.max_block_id.0 => NewestBlock::OnDisk(Arc::clone(dnode)),
            _ => NewestBlock::Hole,
        }
    }
}

/// Where the newest contents of a block are.
pub(super) enum NewestBlock<'a> {
    Buffer(&'a DirtyBuffer),
    /// A block of another object, or of another place in this one.
    Clone(BlockPointer),
    Hole,
    OnDisk(Arc<Dnode>),
}

impl ObjectCore {
    pub(super) fn new(id: ObjectId, synced: Option<Arc<Dnode>>) -> Arc<Self> {
        let state = ObjectState { synced, versions: VecDeque::new() };
        Arc::new(Self { id, gate: Arc::default(), state: RwLock::new(state) })
    }
}
