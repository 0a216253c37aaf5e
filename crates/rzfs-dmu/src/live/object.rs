//! Live objects.

use super::buffer::DirtyBuffer;
use super::checked::CheckedBlocks;
use super::objset::LiveObjset;
use super::state::{ObjectCore, ObjectState, Outline};
use super::transaction::Transaction;
use super::version::{Existence, SpillChange, Version};
use crate::contents::dirty_cost;
use crate::txg::Gate;
use crate::{Block, DmuError, Object};
use bytes::Bytes;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, ByteOrder, Level, ObjectId, Txg};
use std::ops::Range;
use std::sync::Arc;

/// An object of a live object set; a handle that can be cloned and shared.
#[derive(Clone, Debug)]
pub struct LiveObject {
    objset: LiveObjset,
    core: Arc<ObjectCore>,
}

/// A range of bytes to free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// This many bytes.
    Bytes(u64),
    /// Everything up to the end of the object, which becomes shorter.
    ToEnd,
}

impl LiveObject {
    pub(super) const fn new(objset: LiveObjset, core: Arc<ObjectCore>) -> Self {
        Self { objset, core }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.core.gate
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.core.id
    }

    /// The set it belongs to.
    #[must_use]
    pub const fn objset(&self) -> &LiveObjset {
        &self.objset
    }

    /// The error when it does not exist.
    pub(super) fn not_allocated(&self) -> DmuError {
        let (objset, object) = (self.objset.id(), self.core.id);
        self.objset.require_current().err().unwrap_or(DmuError::NotAllocated { objset, object })
    }

    fn outline(&self) -> Result<Outline, DmuError> {
        self.core.state.read().outline().ok_or_else(|| self.not_allocated())
    }

    /// Its type.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn object_type(&self) -> Result<ObjectType, DmuError> {
        Ok(self.outline()?.object_type)
    }

    /// The bonus, in the order [`LiveObject::bonus_order`].
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn bonus(&self) -> Result<Arc<[u8]>, DmuError> {
        let shape = self.core.state.read().shape();
        Ok(shape.ok_or_else(|| self.not_allocated())?.bonus)
    }

    /// log2 of the size of its indirect blocks.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn indirect_shift(&self) -> Result<u8, DmuError> {
        Ok(self.outline()?.indirect_shift)
    }

    /// The byte order of the bonus.
    #[must_use]
    pub fn bonus_order(&self) -> ByteOrder {
        let state = self.core.state.read();
        state.synced.as_ref().map_or(ByteOrder::NATIVE, |dnode| dnode.order)
    }

    /// The type of the bonus.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn bonus_type(&self) -> Result<ObjectType, DmuError> {
        Ok(self.outline()?.bonus_type)
    }

    /// 512-byte slots of its dnode.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn slots(&self) -> Result<u8, DmuError> {
        Ok(self.outline()?.slots)
    }

    /// Block pointers of its dnode.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn pointer_count(&self) -> Result<u8, DmuError> {
        let shape = self.core.state.read().shape();
        Ok(shape.ok_or_else(|| self.not_allocated())?.pointer_count)
    }

    /// Whether it has a spill block.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn has_spill(&self) -> Result<bool, DmuError> {
        Ok(self.outline()?.has_spill)
    }

    /// The object on disk, if nothing of it is dirty. The result stays valid while the caller keeps
    /// others from changing the object.
    #[must_use]
    pub fn clean(&self) -> Option<Object> {
        let is_clean = self.core.state.read().versions.is_empty();
        if is_clean { self.on_disk() } else { None }
    }

    /// The object on disk, regardless of dirty data; `None` if it is not on disk.
    #[must_use]
    pub fn on_disk(&self) -> Option<Object> {
        let dnode = self.core.state.read().synced.clone()?;
        Some(Object::new(self.objset.synced(), self.core.id, dnode))
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, ObjectState> {
        self.core.state.read()
    }

    /// Whether it has dirty data in a txg.
    #[must_use]
    pub fn is_dirty_in(&self, txg: Txg) -> bool {
        self.core.state.read().versions.iter().any(|version| version.txg == txg)
    }

    /// Total size of these blocks that are dirty in a txg.
    #[must_use]
    pub fn dirty_bytes(&self, txg: Txg, blocks: Range<u64>) -> u64 {
        let state = self.core.state.read();
        let version = state.versions.iter().find(|version| version.txg == txg);
        let dirty = version.into_iter().flat_map(|version| version.blocks.range(blocks.clone()));
        dirty.map(|(_, buffer)| buffer.len() as u64).sum()
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, ObjectState> {
        self.core.state.write()
    }

    /// Size of a data block in bytes.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn data_block_size(&self) -> Result<u32, DmuError> {
        Ok(self.outline()?.data_block_size)
    }

    /// The last block; also 0 for an empty object.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn max_block_id(&self) -> Result<BlockId, DmuError> {
        Ok(self.outline()?.max_block_id)
    }

    /// Space used on disk, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.core.state.read().synced.as_ref().map_or(0, |dnode| dnode.used)
    }

    /// Changes the object in a transaction: calls `change` with the version of its txg.
    pub(super) fn modify<R>(
        &self,
        tx: &dyn Transaction,
        change: impl FnOnce(&mut Version) -> R,
    ) -> Result<R, DmuError> {
        let txg = tx.txg();
        let mut state = self.core.state.write();
        let newest = state.versions.back();
        let is_first = newest.is_none_or(|version| version.txg != txg);
        if newest.is_some_and(|version| version.existence == Existence::Freed) {
            return Err(self.not_allocated());
        }
        if is_first {
            debug_assert!(newest.is_none_or(|version| version.txg < txg));
            let shape = state.shape().ok_or_else(|| self.not_allocated())?;
            state.versions.push_back(Version::new(txg, shape));
        }
        let Some(version) = state.versions.back_mut() else { return Err(self.not_allocated()) };
        let before = if is_first { 0 } else { version.dirtied };
        let result = change(version);
        let more = version.dirtied - before;
        drop(state);
        if is_first {
            self.objset.mark_dirty(txg, &self.core);
        }
        tx.context().add_dirty(more);
        Ok(result)
    }

    /// Replaces the bonus.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn set_bonus(
        &self,
        tx: &dyn Transaction,
        bonus_type: ObjectType,
        bonus: &[u8],
    ) -> Result<(), DmuError> {
        self.modify(tx, |version| {
            version.shape.bonus_type = bonus_type;
            version.shape.bonus = bonus.into();
        })
    }

    /// Changes the type of an object without contents.
    ///
    /// # Errors
    /// The object does not exist any more.
    pub fn set_object_type(
        &self,
        tx: &dyn Transaction,
        object_type: ObjectType,
    ) -> Result<(), DmuError> {
        self.modify(tx, |version| version.shape.object_type = object_type)
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// A partly overwritten block cannot be read, or the object does not exist.
    pub fn write(&self, tx: &dyn Transaction, offset: u64, data: &[u8]) -> Result<(), DmuError> {
        let block_size = u64::from(self.data_block_size()?);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % block_size) as usize;
            let len = (block_size as usize - start).min(rest.len());
            let (now, later) = rest.split_at(len);
            self.write_in_block(tx, BlockId(at / block_size), start, now)?;
            rest = later;
            at += len as u64;
        }
        Ok(())
    }

    /// Writes `data` into one block, starting at byte `start`.
    fn write_in_block(
        &self,
        tx: &dyn Transaction,
        block: BlockId,
        start: usize,
        data: &[u8],
    ) -> Result<(), DmuError> {
        let size = self.data_block_size()? as usize;
        let is_whole = start == 0 && data.len() == size;
        let base = if is_whole {
            self.check_above_block(block)?;
            Bytes::new()
        } else {
            self.base_for(tx.txg(), block)?.data
        };
        self.modify(tx, |version| {
            if !version.blocks.contains_key(&block.0) {
                version.put(block.0, DirtyBuffer::new(size, &base)?);
            }
            if let Some(buffer) = version.blocks.get_mut(&block.0)
                && let Some(place) = buffer.make_mut()?.get_mut(start..start + data.len())
            {
                place.copy_from_slice(data);
            }
            Ok(())
        })?
        .map_err(|source| self.no_memory(block, source))
    }

    /// Calls `edit` to change a block in place. It gets the byte order of the contents, and must
    /// leave them in the machine's.
    pub(super) fn modify_block<R>(
        &self,
        tx: &dyn Transaction,
        block: BlockId,
        edit: impl FnOnce(&mut [u8], &mut ByteOrder) -> R,
    ) -> Result<R, DmuError> {
        let size = self.data_block_size()? as usize;
        let base = self.base_for(tx.txg(), block)?;
        let mut order = base.order;
        self.modify(tx, |version| {
            if !version.blocks.contains_key(&block.0) {
                version.put(block.0, DirtyBuffer::new(size, &base.data)?);
            }
            let buffer = version.blocks.get_mut(&block.0);
            let bytes = buffer.map(DirtyBuffer::make_mut).transpose()?;
            Ok(edit(bytes.unwrap_or_default(), &mut order))
        })?
        .map_err(|source| self.no_memory(block, source))
    }

    /// The initial contents of a dirty block of `txg`; empty if it is dirty already.
    fn base_for(&self, txg: Txg, block: BlockId) -> Result<Block, DmuError> {
        let is_dirty = {
            let state = self.core.state.read();
            let newest = state.versions.back().filter(|version| version.txg == txg);
            newest.is_some_and(|version| version.blocks.contains_key(&block.0))
        };
        if is_dirty {
            return Ok(Block::zeros(0));
        }
        let is_new = {
            let state = self.core.state.read();
            state.synced.as_deref().is_some_and(|dnode| block > dnode.max_block_id)
        };
        // Reading a missing block does not check its parents.
        if is_new {
            self.check_above_block(block)?;
        }
        self.read_block(block)
    }

    fn no_memory(&self, block: BlockId, source: std::io::Error) -> DmuError {
        let (objset, object) = (self.objset.id(), self.core.id);
        let bookmark = Bookmark { objset, object, level: Level::DATA, block };
        DmuError::Memory { bookmark, source: Arc::new(source) }
    }

    /// Frees the bytes from `offset` on, which then read as zeros.
    ///
    /// # Errors
    /// Their parents, or a partly freed block, cannot be read, or the object does not exist.
    pub fn free(&self, tx: &dyn Transaction, offset: u64, len: Extent) -> Result<(), DmuError> {
        self.free_checked(tx, offset, len, &CheckedBlocks::NONE)
    }

    /// The same after a check: only parents that have changed since are rechecked.
    ///
    /// # Errors
    /// As [`LiveObject::free`].
    pub fn free_checked(
        &self,
        tx: &dyn Transaction,
        offset: u64,
        len: Extent,
        checked: &CheckedBlocks,
    ) -> Result<(), DmuError> {
        let outline = self.outline()?;
        let block_size = u64::from(outline.data_block_size);
        let extent = outline.max_block_id.0.saturating_add(1).saturating_mul(block_size);
        let end = match len {
            Extent::Bytes(len) => offset.saturating_add(len).min(extent),
            Extent::ToEnd => extent,
        };
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(block_size), end / block_size);
        if first > last {
            return self.zero(tx, offset, end - offset);
        }
        self.check_again(first..last, checked)?;
        self.zero(tx, offset, (first * block_size - offset).min(end - offset))?;
        self.zero(tx, last * block_size, end % block_size)?;
        self.modify(tx, |version| {
            version.punch(first..last);
            if len == Extent::ToEnd {
                version.shape.max_block_id = BlockId(first.saturating_sub(1));
            }
        })
    }

    /// Overwrites bytes with zeros, unless they are in a hole.
    fn zero(&self, tx: &dyn Transaction, offset: u64, len: u64) -> Result<(), DmuError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let block_size = u64::from(self.data_block_size()?);
        if len == 0 || self.is_hole(BlockId(offset / block_size))? {
            return Ok(());
        }
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let now = (end - at).min(ZEROS.len() as u64) as usize;
            self.write(tx, at, ZEROS.get(..now).unwrap_or_default())?;
            at += now as u64;
        }
        Ok(())
    }

    /// Changes the object's block size, which is possible while it has at most one block; its
    /// contents are kept, truncated or padded with zeros.
    ///
    /// # Errors
    /// The object has several blocks, its only one cannot be read, or it does not exist.
    pub fn set_data_block_size(&self, tx: &dyn Transaction, size: u32) -> Result<(), DmuError> {
        if self.max_block_id()?.0 > 0 {
            let (objset, object) = (self.objset.id(), self.core.id);
            return Err(DmuError::SeveralBlocks { objset, object });
        }
        let contents = match self.is_hole(BlockId(0))? {
            true => None,
            false => Some(self.read_block(BlockId(0))?.data),
        };
        let size_bytes = size as usize;
        let buffer = contents.map(|data| DirtyBuffer::new(size_bytes, &data)).transpose();
        let buffer = buffer.map_err(|source| self.no_memory(BlockId(0), source))?;
        self.modify(tx, |version| {
            version.shape.data_block_size = size;
            if let Some(buffer) = buffer {
                version.put(0, buffer);
            }
        })
    }

    /// The spill block's contents.
    ///
    /// # Errors
    /// It cannot be read, or the object does not exist.
    pub fn spill(&self) -> Result<Option<Block>, DmuError> {
        loop {
            let dnode = {
                let state = self.core.state.read();
                state.outline().ok_or_else(|| self.not_allocated())?;
                let changes = state.versions.iter().rev().map(|version| &version.spill);
                match changes.into_iter().find(|spill| !matches!(spill, SpillChange::Kept)) {
                    Some(SpillChange::Written(buffer)) => {
                        let block = Block { data: buffer.bytes(), order: ByteOrder::NATIVE };
                        return Ok(Some(block));
                    }
                    Some(_) => return Ok(None),
                    None => state.synced.clone(),
                }
            };
            let Some(dnode) = dnode else { return Ok(None) };
            let on_disk = self.with_dnode(dnode);
            match on_disk.tree().spill() {
                Err(_) if on_disk.is_replaced() => {}
                spill => return spill,
            }
        }
    }

    /// Writes the spill block; `contents` is padded to whole sectors.
    ///
    /// # Errors
    /// There is no memory, or the object does not exist.
    pub fn set_spill(&self, tx: &dyn Transaction, contents: &[u8]) -> Result<(), DmuError> {
        let buffer = DirtyBuffer::new(contents.len().max(1).next_multiple_of(512), contents)
            .map_err(|source| self.no_memory(BlockId::SPILL, source))?;
        self.modify(tx, |version| {
            version.shape.has_spill = true;
            version.dirtied += dirty_cost(buffer.len());
            version.spill = SpillChange::Written(buffer);
        })
    }

    /// Removes the spill block.
    ///
    /// # Errors
    /// The object does not exist.
    pub fn remove_spill(&self, tx: &dyn Transaction) -> Result<(), DmuError> {
        self.modify(tx, |version| {
            version.shape.has_spill = false;
            version.spill = SpillChange::Removed;
        })
    }

    /// Frees the object: all its blocks and its number. Blocks below damage are leaked: see
    /// [`LiveObject::check_tree`].
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy(&self, tx: &dyn Transaction) -> Result<(), DmuError> {
        self.modify(tx, |version| {
            version.blocks.clear();
            version.clones.clear();
            version.spill = SpillChange::Kept;
            version.existence = Existence::Freed;
        })
    }
}
