//! What a file is made from: an object of a set that is read, or of one that changes.

use crate::error::{Place, ZplError};
use bytes::Bytes;
use rzfs_dmu::live::{LiveObject, LiveObjset};
use rzfs_dmu::{Block, DmuError, Object, Objset};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, FormatError, ObjectId};
use rzfs_zap::{Zap, ZapBlocks, ZapError};
use std::ops::Deref;
use std::sync::Arc;

/// A set of objects: one that is read, or one that changes.
pub(crate) trait ObjectSource {
    type Object: FileObject;

    /// The set as it is on disk.
    fn on_disk(&self) -> Objset;
    fn object(&self, id: ObjectId) -> Result<Self::Object, DmuError>;

    /// The object with this number, which has to be of this type.
    fn typed_object(&self, id: ObjectId, kind: ObjectType) -> Result<Self::Object, ZplError> {
        let object = self.object(id)?;
        let found = object.object_type()?;
        if found == kind {
            return Ok(object);
        }
        let source = FormatError::field("object", "type", found.number());
        Err(ZplError::Corrupt { place: object.place(), source })
    }
}

impl ObjectSource for Objset {
    type Object = Object;

    fn on_disk(&self) -> Objset {
        self.clone()
    }

    fn object(&self, id: ObjectId) -> Result<Object, DmuError> {
        Self::object(self, id)
    }
}

impl ObjectSource for LiveObjset {
    type Object = LiveObject;

    fn on_disk(&self) -> Objset {
        self.synced()
    }

    fn object(&self, id: ObjectId) -> Result<LiveObject, DmuError> {
        Self::object(self, id)
    }
}

/// An object that may hold a file.
pub(crate) trait FileObject: ZapBlocks<Error = DmuError> + Sized {
    /// Its bonus.
    type Bonus<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    fn place(&self) -> Place;
    fn object_type(&self) -> Result<ObjectType, DmuError>;
    fn bonus_type(&self) -> Result<ObjectType, DmuError>;
    fn bonus(&self) -> Result<Self::Bonus<'_>, DmuError>;
    fn bonus_order(&self) -> ByteOrder;
    fn has_spill(&self) -> Result<bool, DmuError>;
    fn spill(&self) -> Result<Option<Block>, DmuError>;
    /// Space that its blocks take on disk, in bytes.
    fn used(&self) -> u64;
    fn slots(&self) -> Result<u8, DmuError>;
    fn data_block_size(&self) -> Result<u32, DmuError>;
    /// The `len` bytes from `offset` on; the caller bounds `len`.
    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError>;
    /// Another object of the same set.
    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError>;

    /// The ZAP that it holds.
    fn open_zap(self) -> Result<Zap<Self>, ZplError> {
        let place = self.place();
        Zap::open(self).map_err(|source| place.zap_failure(source))
    }

    /// Gives an error of the object's ZAP its place.
    fn zap_failure(&self, source: ZapError<DmuError>) -> ZplError {
        self.place().zap_failure(source)
    }
}

impl FileObject for Object {
    type Bonus<'a> = &'a [u8];

    fn place(&self) -> Place {
        Place { objset: self.objset().id(), object: self.id() }
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

    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError> {
        self.read_bytes(offset, len)
    }

    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError> {
        self.objset().object(id)
    }
}

impl FileObject for LiveObject {
    type Bonus<'a> = Arc<[u8]>;

    fn place(&self) -> Place {
        Place { objset: self.objset().id(), object: self.id() }
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

    fn bytes_at(&self, offset: u64, len: usize) -> Result<Bytes, DmuError> {
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    fn sibling(&self, id: ObjectId) -> Result<Self, DmuError> {
        self.objset().object(id)
    }
}
