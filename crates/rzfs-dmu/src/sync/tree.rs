//! The tree of one object during its sync: old state and new state.

use super::SyncContext;
use crate::in_force::Always;
use crate::tree::Tree;
use crate::write::{BlockPolicy, Change, Part};
use crate::{BlockPipeline, DmuError, Objset};
use bytes::Bytes;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::{Bookmark, SECTOR_SHIFT};
use rzfs_format::{BlockId, BlockPointer, ByteOrder, Level, ObjectId, ObjsetId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A data block to write.
#[derive(Clone, Debug)]
pub(crate) struct LeafBlock {
    pub(crate) data: Bytes,
    /// The block's fill count: 1, or the dnodes in it.
    pub(crate) fill: u64,
    /// Where it has already been written.
    pub(crate) placed: Option<BlockPointer>,
}

/// An object to sync.
#[derive(Debug)]
pub(crate) struct DirtyTree {
    pub(crate) objset: ObjsetId,
    /// The key of the set, if it has one.
    key: Option<Arc<DatasetKey>>,
    pub(crate) object: ObjectId,
    /// The dnode on disk; without pointers if there is none.
    pub(crate) old: Dnode,
    /// The new dnode: its levels, pointers and used space are computed here.
    pub(crate) new: Dnode,
    /// Data blocks to write.
    pub(crate) blocks: BTreeMap<u64, LeafBlock>,
    /// Data blocks that become clones, none of which is in `blocks`.
    pub(crate) clones: BTreeMap<u64, BlockPointer>,
    /// Data blocks to free, in order; those in `blocks` or `clones` exist nevertheless.
    pub(crate) freed: Vec<Range<u64>>,
    /// New pointers of the last level written.
    pub(super) updates: BTreeMap<u64, BlockPointer>,
    /// By level: replacements of freed indirect blocks, for their parents.
    holes: BTreeMap<u8, BTreeMap<u64, BlockPointer>>,
    /// Places on disk of indirect blocks that may have to be loaded.
    places: BTreeMap<(u8, u64), BlockPointer>,
}

/// An indirect block, or the dnode, under construction: pointers to the level below it.
#[derive(Debug)]
pub(super) struct Group {
    /// Its number in its level.
    pub(super) block: u64,
    /// The old pointer to it.
    pub(super) old: BlockPointer,
    pub(super) children: Vec<BlockPointer>,
    pub(super) is_changed: bool,
}

impl DirtyTree {
    /// A tree whose `new` has the levels that its last block needs.
    pub(crate) fn new(set: &Objset, object: ObjectId, old: Dnode, mut new: Dnode) -> Self {
        new.levels = old.levels;
        while new.capacity_blocks() <= new.max_block_id.0 {
            new.levels += 1;
        }
        new.pointers.clone_from(&old.pointers);
        new.used = old.used;
        Self {
            objset: set.id(),
            key: set.shared_key().cloned(),
            object,
            old,
            new,
            blocks: BTreeMap::new(),
            clones: BTreeMap::new(),
            freed: Vec::new(),
            updates: BTreeMap::new(),
            holes: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn bookmark(&self, level: u8, block: u64) -> Bookmark {
        Bookmark {
            objset: self.objset,
            object: self.object,
            level: Level(level as i8),
            block: BlockId(block),
        }
    }

    pub(super) fn policy(&self, context: &SyncContext<'_>, level: u8) -> BlockPolicy {
        let level = Level(level as i8);
        context.policy.block(self.new.object_type, level, Part::Contents)
    }

    pub(super) fn on_disk<'a>(&'a self, pipeline: &'a BlockPipeline) -> Tree<'a> {
        let key = self.key.as_ref();
        Tree {
            pipeline,
            key,
            objset: self.objset,
            object: self.object,
            dnode: &self.old,
            existence: None,
            // Its blocks are not replaced by others.
            owner: &Always,
        }
    }

    /// Whether there is anything below the dnode on disk.
    fn has_pointers(&self) -> bool {
        self.old.pointers.iter().any(|pointer| *pointer != BlockPointer::HOLE)
    }

    /// Whether the pointers of the old dnode move down to an indirect block of `level`.
    fn grows_at(&self, level: u8) -> bool {
        self.new.levels > self.old.levels && level == self.old.levels && self.has_pointers()
    }

    /// The groups of level 1 in which blocks are written; for a tree without indirect blocks also
    /// the one in which blocks are freed.
    pub(super) fn leaf_groups(&self) -> BTreeSet<u64> {
        if self.new.levels == 1 {
            let nothing = self.blocks.is_empty() && self.clones.is_empty() && self.freed.is_empty();
            return if nothing { BTreeSet::new() } else { BTreeSet::from([0]) };
        }
        let shift = self.new.pointers_shift();
        let blocks = self.blocks.keys().chain(self.clones.keys());
        let mut groups: BTreeSet<u64> = blocks.map(|block| block >> shift).collect();
        if self.grows_at(1) {
            groups.insert(0);
        }
        groups
    }

    /// The numbers of data blocks below a block; empty if there are none.
    fn data_below(&self, level: u8, block: u64) -> Range<u64> {
        let shift = u32::from(level) * self.old.pointers_shift();
        let below = |block: u64| match block {
            0 => Some(0),
            block => block.checked_shl(shift).filter(|below| below >> shift == block),
        };
        let start = below(block).unwrap_or(u64::MAX);
        start..block.checked_add(1).and_then(below).unwrap_or(u64::MAX)
    }

    /// The same up to the last block on disk.
    fn data_on_disk(&self, level: u8, block: u64) -> Range<u64> {
        let data = self.data_below(level, block);
        data.start..data.end.min(self.old.max_block_id.0.saturating_add(1))
    }

    /// The first freed range that contains `block` or follows it.
    fn freed_from(&self, block: u64) -> Option<&Range<u64>> {
        self.freed.get(self.freed.partition_point(|range| range.end <= block))
    }

    /// Whether data blocks below a block are to be freed.
    pub(super) fn has_freed(&self, level: u8, block: u64) -> bool {
        let data = self.data_on_disk(level, block);
        !data.is_empty() && self.freed_from(data.start).is_some_and(|range| range.start < data.end)
    }

    /// Whether data blocks below a block are written.
    pub(super) fn has_new(&self, level: u8, block: u64) -> bool {
        let data = self.data_below(level, block);
        !data.is_empty()
            && (self.blocks.range(data.clone()).next().is_some()
                || self.clones.range(data).next().is_some())
    }

    /// Whether all data blocks below a block are to be freed, and none is written.
    pub(super) fn is_freed(&self, level: u8, block: u64) -> bool {
        let data = self.data_on_disk(level, block);
        let has_all = |range: &Range<u64>| range.start <= data.start && range.end >= data.end;
        self.freed_from(data.start).is_some_and(has_all) && !self.has_new(level, block)
    }

    /// Records the place of an indirect block on disk.
    pub(super) fn note_place(&mut self, level: u8, block: u64, pointer: BlockPointer) {
        self.places.insert((level, block), pointer);
    }

    /// Records a hole for the parent in place of an indirect block of `level`.
    pub(super) fn leave_hole(&mut self, level: u8, block: u64, hole: BlockPointer) {
        self.holes.entry(level).or_default().insert(block, hole);
    }

    /// Adds the holes left by indirect blocks to the changes of their level, which was written
    /// last.
    pub(super) fn take_holes(&mut self, level: u8) {
        self.updates.extend(self.holes.remove(&level).unwrap_or_default());
    }

    /// The groups of `level` (above 1) that must be updated for changes below.
    pub(super) fn inner_groups(&self, level: u8) -> BTreeMap<u64, Vec<(u64, BlockPointer)>> {
        let shift = self.new.pointers_shift();
        let mut groups: BTreeMap<u64, Vec<(u64, BlockPointer)>> = BTreeMap::new();
        if self.grows_at(level) {
            groups.entry(0).or_default();
        }
        for (block, pointer) in &self.updates {
            groups.entry(block >> shift).or_default().push((*block, *pointer));
        }
        groups
    }

    /// Group `block` of `level` on disk; damaged pointers in it are kept.
    pub(super) fn load(
        &self,
        pipeline: &BlockPipeline,
        level: u8,
        block: u64,
    ) -> Result<Group, DmuError> {
        let count = 1_usize << self.new.pointers_shift();
        let group = |old, children| Group { block, old, children, is_changed: false };
        if level >= self.old.levels {
            let mut children = Vec::with_capacity(count);
            if level == self.old.levels && block == 0 {
                children.extend_from_slice(&self.old.pointers);
            }
            children.resize(count, BlockPointer::HOLE);
            let is_changed = self.grows_at(level) && block == 0;
            return Ok(Group { is_changed, ..group(BlockPointer::HOLE, children) });
        }
        let tree = self.on_disk(pipeline);
        let old = match self.places.get(&(level, block)) {
            Some(place) => *place,
            None => tree.pointers(level, block..block + 1).pop().transpose()?.unwrap_or_default(),
        };
        if old.is_hole() {
            return Ok(group(old, vec![self.hole_below(&old, level); count]));
        }
        let contents = tree.read(level, block, vec![Ok(old)]).pop().transpose()?.flatten();
        Ok(group(old, contents.as_ref().map(Tree::stored_children).unwrap_or_default()))
    }

    /// Whether a pointer is valid for this data block on disk.
    pub(super) fn is_sound(
        &self,
        pipeline: &BlockPipeline,
        number: u64,
        at: &BlockPointer,
    ) -> bool {
        self.on_disk(pipeline).checked(0, number, *at).is_ok()
    }

    /// The children of a hole of `level`: holes of the same birth.
    fn hole_below(&self, hole: &BlockPointer, level: u8) -> BlockPointer {
        if *hole == BlockPointer::HOLE {
            return BlockPointer::HOLE;
        }
        let below = Level(level as i8 - 1);
        let size = match level {
            1 => self.old.data_block_size,
            _ => self.old.indirect_size(),
        };
        let birth = hole.logical_birth();
        BlockPointer::born_hole(self.old.object_type, below, u64::from(size), birth)
    }

    /// Applies a child's change to its group, the object's used space, and the accounts.
    pub(crate) fn apply(
        &mut self,
        context: &mut SyncContext<'_>,
        old: &BlockPointer,
        change: Change,
    ) -> Option<BlockPointer> {
        match change {
            Change::Unchanged => None,
            Change::Rewritten(pointer) => Some(pointer),
            Change::Replaced(pointer) => {
                self.kill(context, old);
                if !pointer.is_hole() {
                    let size = deflated_size(context.writer.pipeline(), &pointer);
                    self.new.used = self.new.used.saturating_add(size);
                    context.accounting.born(&pointer);
                }
                Some(pointer)
            }
        }
    }

    /// Adds a shared block to the object; returns its pointer here.
    pub(super) fn share(
        &mut self,
        context: &mut SyncContext<'_>,
        pointer: &BlockPointer,
    ) -> BlockPointer {
        let birth = context.write.txg;
        let pointer = pointer.with_births(birth, pointer.physical_birth());
        let size = deflated_size(context.writer.pipeline(), &pointer);
        self.new.used = self.new.used.saturating_add(size);
        context.accounting.shared(&pointer);
        pointer
    }

    /// Removes a block from the object.
    pub(crate) fn kill(&mut self, context: &mut SyncContext<'_>, pointer: &BlockPointer) {
        if !pointer.is_hole() {
            let size = deflated_size(context.writer.pipeline(), pointer);
            self.new.used = self.new.used.saturating_sub(size);
            context.accounting.killed(pointer);
        }
    }

    /// The bytes of an indirect block; all zeros if there are only holes in it.
    pub(super) fn encode(&self, children: &[BlockPointer]) -> Bytes {
        let size = self.new.indirect_size() as usize;
        if children.iter().all(BlockPointer::is_hole) {
            return crate::Block::zeros(size).data;
        }
        let mut bytes = vec![0; size];
        for (slot, child) in bytes.chunks_exact_mut(BlockPointer::SIZE).zip(children) {
            slot.copy_from_slice(&child.encode(ByteOrder::NATIVE));
        }
        bytes.into()
    }
}

/// The accounted space of a block: its allocation without parity and padding (spec 02, section
/// 2.10).
pub(crate) fn deflated_size(pipeline: &BlockPipeline, pointer: &BlockPointer) -> u64 {
    let size = |dva: rzfs_format::Dva| {
        let sectors = dva.asize() >> SECTOR_SHIFT;
        sectors.saturating_mul(pipeline.deflate_ratio(dva.vdev()))
    };
    pointer.dvas().map(size).fold(0, u64::saturating_add)
}

/// An empty dnode on disk, as the `old` of a new object.
pub(crate) fn empty_dnode(new: &Dnode) -> Dnode {
    Dnode {
        levels: match new.object_type {
            ObjectType::DNODE => new.levels,
            _ => 1,
        },
        pointers: vec![BlockPointer::HOLE; new.pointers.len()],
        used: 0,
        spill: None,
        max_block_id: BlockId(0),
        ..new.clone()
    }
}
