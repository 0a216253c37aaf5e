//! A file as an object with attributes (spec 05, sections 2 to 4).

use crate::error::{Place, ZplError};
use crate::object::FileObject;
use rzfs_dmu::{Block, Object};
use rzfs_format::acl::{Ace, AclStore};
use rzfs_format::dirent::FileKind;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, SaBuffer, Schema};
use rzfs_format::xattr::XattrList;
use rzfs_format::znode::{
    DeviceNumber, FileFlags, LEGACY_SIZE, LegacyZnode, MAX_LINK_TARGET, Timestamp, Znode,
};
use rzfs_format::{FormatError, ObjectId};

/// Unit of `st_blocks`, in bytes.
const STAT_BLOCK: u64 = 512;

/// The attributes of a file shown by `stat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The object: the inode number.
    pub object: ObjectId,
    /// Generation: distinguishes files that had the same object number.
    pub generation: u64,
    /// What kind of file it is.
    pub kind: FileKind,
    /// The twelve permission bits.
    pub permissions: u16,
    /// Link count.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number; zero for other files.
    pub device: DeviceNumber,
    /// Length in bytes; the number of entries + 2 for a directory.
    pub size: u64,
    /// Space used in 512-byte units: its blocks and its dnode.
    pub blocks: u64,
    /// The preferred request size in bytes: that of its blocks.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of an attribute.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Flags.
    pub flags: FileFlags,
    /// Project id.
    pub project: u64,
}

/// A file: an object whose attributes are decoded.
#[derive(Debug)]
pub struct Node<O = Object> {
    object: O,
    znode: Znode,
}

/// Decodes and validates the attributes of a file (spec 05, section 3); a link count of zero is not
/// checked.
pub(crate) fn decode_znode<O: FileObject>(object: &O, schema: &Schema) -> Result<Znode, ZplError> {
    let place = object.place();
    let corrupt = |source| ZplError::Corrupt { place, source };
    let bonus = object.bonus()?;
    let znode = match object.bonus_type()? {
        ObjectType::SA => from_sa(object, &bonus, schema)?,
        ObjectType::ZNODE if bonus.len() >= LEGACY_SIZE => {
            LegacyZnode::decode(&bonus, object.bonus_order()).map_err(corrupt)?.znode
        }
        _ => return Err(ZplError::NotFile { place }),
    };
    let expected = match znode.kind {
        FileKind::Directory => ObjectType::DIRECTORY_CONTENTS,
        _ => ObjectType::PLAIN_FILE_CONTENTS,
    };
    if object.object_type()? != expected {
        let problem = "its mode contradicts the type of its object";
        return Err(corrupt(FormatError::invalid("znode", problem)));
    }
    Ok(znode)
}

/// The attributes are in the bonus; the spill block is read only when one of them is not.
fn from_sa<O: FileObject>(object: &O, bonus: &[u8], schema: &Schema) -> Result<Znode, ZplError> {
    let corrupt = |source| ZplError::Corrupt { place: object.place(), source };
    let bonus = schema.buffer(bonus).map_err(corrupt)?;
    match Znode::from_sa(&bonus, None) {
        Err(_) if object.has_spill()? => {
            let Some(block) = object.spill()? else {
                return Err(corrupt(FormatError::invalid("znode", "an attribute is missing")));
            };
            let spill = schema.buffer(&block.data).map_err(corrupt)?;
            Znode::from_sa(&bonus, Some(&spill)).map_err(corrupt)
        }
        result => result.map_err(corrupt),
    }
}

impl Node<Object> {
    /// Approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        let dnode = self.object.dnode();
        size_of::<Self>() + size_of_val(dnode) + dnode.bonus.len() + size_of_val(&*dnode.pointers)
    }
}

impl<O: FileObject> Node<O> {
    /// A file with already decoded attributes.
    pub(crate) fn new(object: O, znode: Znode) -> Self {
        Self { object, znode }
    }

    pub(crate) fn object(&self) -> &O {
        &self.object
    }

    pub(crate) fn znode(&self) -> &Znode {
        &self.znode
    }

    pub(crate) fn place(&self) -> Place {
        self.object.place()
    }

    pub(crate) fn corrupt(&self, source: FormatError) -> ZplError {
        ZplError::Corrupt { place: self.place(), source }
    }

    /// Refuses everything but directories.
    pub(crate) fn require_directory(&self) -> Result<(), ZplError> {
        if self.znode.is_directory() {
            Ok(())
        } else {
            Err(ZplError::NotDirectory { place: self.place() })
        }
    }

    /// Refuses everything but regular files.
    pub(crate) fn require_regular(&self) -> Result<(), ZplError> {
        let place = self.place();
        match self.znode.kind {
            FileKind::Directory => Err(ZplError::IsDirectory { place }),
            FileKind::Regular => Ok(()),
            _ => Err(ZplError::WrongFileKind { place }),
        }
    }

    /// Refuses everything but regular files that may be read.
    pub(crate) fn require_readable(&self) -> Result<(), ZplError> {
        self.require_regular()?;
        if self.znode.flags.contains(FileFlags::AV_QUARANTINED) {
            return Err(ZplError::Quarantined { place: self.place() });
        }
        Ok(())
    }

    /// The attributes shown by `stat`.
    pub(crate) fn attributes(&self) -> Result<Attributes, ZplError> {
        let znode = &self.znode;
        let used = self.object.used().saturating_add(STAT_BLOCK / 2) / STAT_BLOCK;
        Ok(Attributes {
            object: self.place().object,
            generation: znode.generation,
            kind: znode.kind,
            permissions: (znode.mode & 0o7777) as u16,
            links: znode.links,
            uid: znode.uid.to_posix(),
            gid: znode.gid.to_posix(),
            device: znode.device,
            size: znode.size,
            blocks: used.saturating_add(u64::from(self.object.slots()?)),
            block_size: self.object.data_block_size()?,
            atime: znode.atime,
            mtime: znode.mtime,
            ctime: znode.ctime,
            crtime: znode.crtime,
            flags: znode.flags,
            project: znode.project,
        })
    }

    /// The value of a system attribute, from the bonus or the spill block; `None` in legacy
    /// znodes.
    fn sa_value(&self, schema: &Schema, attribute: Attribute) -> Result<Option<Value>, ZplError> {
        if self.object.bonus_type()? != ObjectType::SA {
            return Ok(None);
        }
        let bonus = self.object.bonus()?;
        let bonus = schema.buffer(&bonus).map_err(|source| self.corrupt(source))?;
        if let Some(value) = bonus.get(attribute) {
            return Ok(Some(Value { bytes: value.bytes.to_vec(), order: value.order }));
        }
        let Some(Block { data, .. }) = self.object.spill()? else { return Ok(None) };
        let spill: SaBuffer<'_> = schema.buffer(&data).map_err(|source| self.corrupt(source))?;
        let value = spill.get(attribute);
        Ok(value.map(|value| Value { bytes: value.bytes.to_vec(), order: value.order }))
    }

    fn sa_number(&self, schema: &Schema, attribute: Attribute) -> Result<Option<u64>, ZplError> {
        let value = self.sa_value(schema, attribute)?;
        Ok(value.and_then(|value| Some(value.order.u64(*value.bytes.first_chunk()?))))
    }

    /// The target of a symbolic link, wherever it is stored.
    pub(crate) fn link_target(&self, schema: &Schema) -> Result<Vec<u8>, ZplError> {
        if self.znode.kind != FileKind::Symlink {
            return Err(ZplError::WrongFileKind { place: self.place() });
        }
        if self.object.bonus_type()? == ObjectType::SA {
            let value = self.sa_value(schema, Attribute::Symlink)?;
            let mut target = value
                .ok_or_else(|| self.corrupt(FormatError::invalid("znode", "a link to nothing")))?
                .bytes;
            target.truncate(usize::try_from(self.znode.size).unwrap_or(usize::MAX));
            return Ok(target);
        }
        if self.znode.size > MAX_LINK_TARGET {
            return Err(self.corrupt(FormatError::field("znode", "link size", self.znode.size)));
        }
        let bonus = self.object.bonus()?;
        let legacy = LegacyZnode::decode(&bonus, self.object.bonus_order())
            .map_err(|source| self.corrupt(source))?;
        match legacy.link_target() {
            Some(target) => Ok(target.to_vec()),
            None => Ok(self.object.bytes_at(0, self.znode.size as usize)?.to_vec()),
        }
    }

    /// The extended attributes in the system attribute.
    pub(crate) fn xattr_list(&self, schema: &Schema) -> Result<XattrList, ZplError> {
        match self.sa_value(schema, Attribute::Dxattr)? {
            None => Ok(XattrList::default()),
            Some(value) if value.bytes.is_empty() => Ok(XattrList::default()),
            Some(value) => XattrList::decode(&value.bytes).map_err(|source| self.corrupt(source)),
        }
    }

    /// The directory of extended attributes.
    pub(crate) fn xattr_directory(&self, schema: &Schema) -> Result<Option<ObjectId>, ZplError> {
        if self.znode.xattr.is_some() || !self.object.has_spill()? {
            return Ok(self.znode.xattr);
        }
        let number = self.sa_number(schema, Attribute::Xattr)?;
        Ok(number.map(ObjectId).and_then(ObjectId::non_zero))
    }

    /// The access control list.
    pub(crate) fn acl(&self, schema: &Schema) -> Result<Vec<Ace>, ZplError> {
        let corrupt = |source| self.corrupt(source);
        if self.object.bonus_type()? == ObjectType::SA {
            let count = self.sa_number(schema, Attribute::DaclCount)?.unwrap_or(0);
            let Some(aces) = self.sa_value(schema, Attribute::DaclAces)? else {
                return Err(corrupt(FormatError::invalid("znode", "no access control list")));
            };
            return Ace::decode_list(&aces.bytes, aces.order, count).map_err(corrupt);
        }
        let bonus = self.object.bonus()?;
        let legacy = LegacyZnode::decode(&bonus, self.object.bonus_order()).map_err(corrupt)?;
        match legacy.acl.store {
            AclStore::Inline(bytes) => legacy.acl.entries(bytes, legacy.acl.order).map_err(corrupt),
            AclStore::External(id) => {
                let object = self.object.sibling(id)?;
                let kind = object.object_type()?;
                if kind != ObjectType::ACL && kind != ObjectType::OLD_ACL {
                    let problem = FormatError::field("znode", "ACL object", kind.number());
                    return Err(corrupt(problem));
                }
                // The list has one block, or few; its size was bounded on decoding.
                let (_, order) = object.read_block(rzfs_format::BlockId(0))?;
                let bytes = object.bytes_at(0, legacy.acl.size as usize)?;
                legacy.acl.entries(&bytes, order).map_err(corrupt)
            }
        }
    }
}

/// A value with the byte order of its numbers.
struct Value {
    bytes: Vec<u8>,
    order: rzfs_format::ByteOrder,
}
