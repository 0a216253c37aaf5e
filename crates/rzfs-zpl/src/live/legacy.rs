//! Files of versions before 5, which get system attributes on a change (spec 05, section 4.3).
//!
//! A file system upgraded to version 5 has such files until each of them changes: their attributes
//! are in a bonus of another type. Any change of one rewrites all of them, in the order of new
//! files; attributes of newer versions are added when they get a value.

use super::node::NodeState;
use super::values::Values;
use crate::error::ZplError;
use rzfs_format::acl::AclStore;
use rzfs_format::dirent::FileKind;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::znode::{FileFlags, LegacyZnode};

impl NodeState {
    /// The attributes of a file of any version, in their new form.
    pub(super) fn values(&self, schema: &Schema) -> Result<Values, ZplError> {
        match self.object().bonus_type()? {
            ObjectType::SA => Values::of(self.object(), self.place(), schema),
            _ => self.converted_values(schema),
        }
    }

    fn converted_values(&self, schema: &Schema) -> Result<Values, ZplError> {
        let (place, object) = (self.place(), self.object());
        let bonus = object.bonus()?;
        let legacy = LegacyZnode::decode(&bonus, object.bonus_order())
            .map_err(|source| self.corrupt(source))?;
        if matches!(legacy.acl.store, AclStore::External(_)) {
            let what = "changing a file of an older version with a long access control list";
            return Err(ZplError::Unsupported { place, what });
        }
        let znode = self.znode();
        let has_stamp = znode.flags.contains(FileFlags::BONUS_SCANSTAMP);
        // A project needs its own attribute, which the file does not have yet.
        let flags = znode.flags.without(FileFlags::BONUS_SCANSTAMP.with(FileFlags::PROJID));
        let mut values = Values::default();
        for (attribute, number) in [
            (Attribute::Mode, u64::from(znode.mode)),
            (Attribute::Size, znode.size),
            (Attribute::Gen, znode.generation),
            (Attribute::Uid, znode.uid.0),
            (Attribute::Gid, znode.gid.0),
            (Attribute::Parent, znode.parent.0),
            (Attribute::Flags, flags.0),
        ] {
            values.set_u64(schema, attribute, number);
        }
        for (attribute, time) in [
            (Attribute::Atime, znode.atime),
            (Attribute::Mtime, znode.mtime),
            (Attribute::Ctime, znode.ctime),
            (Attribute::Crtime, znode.crtime),
        ] {
            values.set_time(schema, attribute, time);
        }
        values.set_u64(schema, Attribute::Links, znode.links);
        if matches!(znode.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            values.set_u64(schema, Attribute::Rdev, znode.device.encode());
        }
        values.set_acl(schema, &self.acl(schema)?);
        if znode.kind == FileKind::Symlink {
            // A long one also stays in the contents, and is freed with the object.
            values.set(schema, Attribute::Symlink, &self.link_target(schema)?);
        }
        if let Some(directory) = znode.xattr {
            values.set_u64(schema, Attribute::Xattr, directory.0);
        }
        if let Some(stamp) = legacy.tail.get(..SCANSTAMP).filter(|_| has_stamp) {
            values.set(schema, Attribute::Scanstamp, stamp);
        }
        Ok(values)
    }
}

/// Size of a virus scanner's stamp in bytes.
const SCANSTAMP: usize = 32;
