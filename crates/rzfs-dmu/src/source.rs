//! Objects for reading: of a read-only set, or of a live one.

use crate::live::{CloneSource, LiveObject, LiveObjset};
use crate::{Block, DmuError, Object, Objset};
use bytes::Bytes;
use rzfs_cache::AccessOutcome;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId, ObjsetId};
use rzfs_zap::{Zap, ZapBlocks};
use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A set of objects, read-only or live.
pub trait ObjectSource {
    /// Its objects.
    type Object: SourceObject;

    /// Its number.
    fn id(&self) -> ObjsetId;
    /// The set on disk.
    fn on_disk(&self) -> Objset;
    /// The object with this number.
    fn object(&self, id: ObjectId) -> Result<Self::Object, DmuError>;
}

/// An object of an [`ObjectSource`].
pub trait SourceObject: ZapBlocks<Error = DmuError> + Sized {
    /// Its bonus.
    type Bonus<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// Its number.
    fn id(&self) -> ObjectId;
    /// The number of its set.
    fn objset_id(&self) -> ObjsetId;
    /// Its type.
    fn object_type(&self) -> Result<ObjectType, DmuError>;
    /// The type of its bonus.
    fn bonus_type(&self) -> Result<ObjectType, DmuError>;
    /// Its bonus.
    fn bonus(&self) -> Result<Self::Bonus<'_>, DmuError>;
    /// The byte order of its bonus.
    fn bonus_order(&self) -> ByteOrder;
    /// Whether it has a spill block.
    fn has_spill(&self) -> Result<bool, DmuError>;
    /// Its spill block.
    fn spill(&self) -> Result<Option<Block>, DmuError>;
    /// Space used by its blocks on disk, in bytes.
    fn used(&self) -> u64;
    /// 512-byte slots of its dnode.
    fn slots(&self) -> Result<u8, DmuError>;
    /// Size of its blocks, in bytes.
    fn data_block_size(&self) -> Result<u32, DmuError>;
    /// Bytes up to the end of its last block.
    fn extent(&self) -> Result<u64, DmuError>;
    /// The object on disk, if it is there.
    fn on_disk(&self) -> Option<Cow<'_, Object>>;
    /// Reads blocks together; the caller bounds the range. `begun` is called with how they were
    /// found before this thread waits for them.
    fn read_blocks(
        &self,
        blocks: Range<u64>,
        begun: impl FnOnce(AccessOutcome),
    ) -> Result<Vec<Result<Block, DmuError>>, DmuError>;
    /// The `len` bytes from `offset` on; the caller bounds `len`.
    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError>;
    /// The first byte at or after `offset` that is not in a hole; `None` up to the end of the last
    /// block.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError>;
    /// The first byte at or after `offset` that is in a hole; `None` when the data reaches to the
    /// end of the last block.
    fn next_hole(&self, offset: u64) -> Result<Option<u64>, DmuError>;
    /// The blocks in a range, up to the first that cannot be shared.
    fn clone_sources(&self, blocks: Range<u64>) -> Result<Vec<CloneSource>, DmuError>;
    /// Another object of the same set.
    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError>;
    /// Fails when its set was destroyed or replaced.
    ///
    /// # Errors
    /// [`DmuError::Superseded`].
    fn require_current(&self) -> Result<(), DmuError>;

    /// The error for an object of the wrong type.
    fn is_not(&self, found: ObjectType, wanted: &'static str) -> DmuError {
        let (objset, object, found) = (self.objset_id(), self.id(), found.name());
        DmuError::WrongType { objset, object, found, wanted }
    }

    /// The ZAP in it.
    fn into_zap(self) -> Result<Zap<Self>, DmuError> {
        let found = self.object_type()?;
        if !found.is_zap() {
            return Err(self.is_not(found, "a ZAP"));
        }
        let (objset, object) = (self.objset_id(), self.id());
        let failure = |source| DmuError::Zap { objset, object, source: Box::new(source) };
        Zap::open(self).map_err(failure)
    }
}

impl ObjectSource for Objset {
    type Object = Object;

    fn id(&self) -> ObjsetId {
        Self::id(self)
    }

    fn on_disk(&self) -> Objset {
        self.clone()
    }

    fn object(&self, id: ObjectId) -> Result<Object, DmuError> {
        Self::object(self, id)
    }
}

impl ObjectSource for LiveObjset {
    type Object = LiveObject;

    fn id(&self) -> ObjsetId {
        Self::id(self)
    }

    fn on_disk(&self) -> Objset {
        self.synced()
    }

    fn object(&self, id: ObjectId) -> Result<LiveObject, DmuError> {
        Self::object(self, id)
    }
}

impl SourceObject for Object {
    type Bonus<'a> = &'a [u8];

    fn id(&self) -> ObjectId {
        Self::id(self)
    }

    fn objset_id(&self) -> ObjsetId {
        self.objset().id()
    }

    fn object_type(&self) -> Result<ObjectType, DmuError> {
        Ok(Self::object_type(self))
    }

    fn bonus_type(&self) -> Result<ObjectType, DmuError> {
        Ok(self.dnode().bonus_type)
    }

    fn bonus(&self) -> Result<&[u8], DmuError> {
        Ok(Self::bonus(self))
    }

    fn bonus_order(&self) -> ByteOrder {
        self.order()
    }

    fn has_spill(&self) -> Result<bool, DmuError> {
        Ok(self.dnode().spill.is_some())
    }

    fn spill(&self) -> Result<Option<Block>, DmuError> {
        Self::spill(self)
    }

    fn used(&self) -> u64 {
        self.dnode().used
    }

    fn slots(&self) -> Result<u8, DmuError> {
        Ok(self.dnode().slots)
    }

    fn data_block_size(&self) -> Result<u32, DmuError> {
        Ok(self.block_size())
    }

    fn extent(&self) -> Result<u64, DmuError> {
        Ok(self.dnode().extent())
    }

    fn on_disk(&self) -> Option<Cow<'_, Object>> {
        Some(Cow::Borrowed(self))
    }

    fn read_blocks(
        &self,
        blocks: Range<u64>,
        begun: impl FnOnce(AccessOutcome),
    ) -> Result<Vec<Result<Block, DmuError>>, DmuError> {
        let read = self.begin_read(blocks);
        begun(read.outcome());
        Ok(read.finish())
    }

    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError> {
        self.read_bytes(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        Self::next_data(self, offset)
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        Self::next_hole(self, offset)
    }

    fn clone_sources(&self, blocks: Range<u64>) -> Result<Vec<CloneSource>, DmuError> {
        CloneSource::of_object(self, blocks)
    }

    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError> {
        self.objset().object(id)
    }

    fn require_current(&self) -> Result<(), DmuError> {
        self.objset().require_current()
    }
}

impl SourceObject for LiveObject {
    type Bonus<'a> = Arc<[u8]>;

    fn id(&self) -> ObjectId {
        Self::id(self)
    }

    fn objset_id(&self) -> ObjsetId {
        self.objset().id()
    }

    fn object_type(&self) -> Result<ObjectType, DmuError> {
        Self::object_type(self)
    }

    fn bonus_type(&self) -> Result<ObjectType, DmuError> {
        Self::bonus_type(self)
    }

    fn bonus(&self) -> Result<Arc<[u8]>, DmuError> {
        Self::bonus(self)
    }

    fn bonus_order(&self) -> ByteOrder {
        Self::bonus_order(self)
    }

    fn has_spill(&self) -> Result<bool, DmuError> {
        Self::has_spill(self)
    }

    fn spill(&self) -> Result<Option<Block>, DmuError> {
        Self::spill(self)
    }

    fn used(&self) -> u64 {
        Self::used(self)
    }

    fn slots(&self) -> Result<u8, DmuError> {
        Self::slots(self)
    }

    fn data_block_size(&self) -> Result<u32, DmuError> {
        Self::data_block_size(self)
    }

    fn extent(&self) -> Result<u64, DmuError> {
        let blocks = self.max_block_id()?.0.saturating_add(1);
        Ok(blocks.saturating_mul(Self::data_block_size(self)?.into()))
    }

    fn on_disk(&self) -> Option<Cow<'_, Object>> {
        Self::on_disk(self).map(Cow::Owned)
    }

    fn read_blocks(
        &self,
        blocks: Range<u64>,
        begun: impl FnOnce(AccessOutcome),
    ) -> Result<Vec<Result<Block, DmuError>>, DmuError> {
        let read = self.begin_read(blocks)?;
        begun(read.outcome());
        Ok(read.finish())
    }

    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError> {
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        Self::next_data(self, offset)
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        Self::next_hole(self, offset)
    }

    fn clone_sources(&self, blocks: Range<u64>) -> Result<Vec<CloneSource>, DmuError> {
        Self::clone_sources(self, blocks)
    }

    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError> {
        self.objset().object(id)
    }

    fn require_current(&self) -> Result<(), DmuError> {
        self.objset().require_current()
    }
}
