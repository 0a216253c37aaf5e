//! Files that are about to be made: everything about them but their numbers is known before the
//! transaction begins (spec 05, sections 5.1 and 5.2).

use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::replay::LoggedObject;
use super::tables::{FIRST_BLOCK_SIZE, INDIRECT_SHIFT};
use super::values::{Split, Values};
use crate::error::{Place, ZplError};
use crate::node::decode_znode;
use crate::object::FileObject;
use crate::sync::Arc;
use rzfs_dmu::live::{LiveObject, LiveObjset, NewObject, Transaction};
use rzfs_format::acl::trivial;
use rzfs_format::dirent::FileKind;
use rzfs_format::dnode::{CORE_SIZE, SLOT_SIZE};
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::znode::{DeviceNumber, FileFlags, Timestamp};
use rzfs_format::{BlockPointer, ObjectId, Txg};
use rzfs_zap::NewZap;

/// Flag of an object set whose files have project ids.
const PROJECTS_KEPT: u64 = 4;
/// Who may execute: owner, group and others.
const EXECUTE: u32 = 0o111;

/// Whether the files of a set have project ids.
pub(super) fn keeps_projects(objset: &LiveObjset) -> bool {
    objset.synced().block().flags & PROJECTS_KEPT != 0
}

/// Room for a bonus beside one block pointer, in a dnode of so many slots.
pub(super) const fn bonus_capacity(slots: u8) -> usize {
    (slots as usize * SLOT_SIZE).saturating_sub(CORE_SIZE + BlockPointer::SIZE)
}

/// The flags that follow from the mode of a file with the trivial access control list.
pub(super) const fn mode_flags(permissions: u32) -> FileFlags {
    if permissions & EXECUTE == EXECUTE { FileFlags::NO_EXECS_DENIED } else { FileFlags(0) }
}

/// The attributes that a new file begins with.
#[derive(Clone, Debug)]
pub(super) struct NodeSeed<'a> {
    pub(super) kind: FileKind,
    /// The twelve permission bits.
    pub(super) permissions: u32,
    pub(super) uid: Fuid,
    pub(super) gid: Fuid,
    pub(super) parent: ObjectId,
    /// `None` where files of this kind have no project id.
    pub(super) project: Option<u64>,
    /// Flags that do not follow from the rest.
    pub(super) flags: FileFlags,
    pub(super) device: Option<DeviceNumber>,
    /// The target of a symbolic link.
    pub(super) target: Option<&'a [u8]>,
    pub(super) links: u64,
    pub(super) now: Timestamp,
    /// What a log says about it, when it is made again.
    pub(super) logged: Option<LoggedObject>,
}

impl NodeSeed<'_> {
    fn flags(&self) -> FileFlags {
        let mut flags = self
            .flags
            .with(FileFlags::ARCHIVE)
            .with(FileFlags::AV_MODIFIED)
            .with(FileFlags::ACL_TRIVIAL)
            .with(mode_flags(self.permissions));
        if self.kind == FileKind::Directory {
            flags = flags.with(FileFlags::ACL_AUTO_INHERIT);
        }
        if self.project.is_some() {
            flags = flags.with(FileFlags::PROJID);
        }
        flags
    }

    fn size(&self) -> u64 {
        match (self.kind, self.target) {
            (FileKind::Directory, _) => 2,
            (_, Some(target)) => target.len() as u64,
            _ => 0,
        }
    }

    /// The attributes, in the order in which OpenZFS stores them.
    pub(super) fn values(&self, schema: &Schema, generation: Txg) -> Values {
        let mut values = Values::default();
        let mode = self.kind.mode_bits() | self.permissions;
        for (attribute, number) in [
            (Attribute::Mode, u64::from(mode)),
            (Attribute::Size, self.size()),
            (Attribute::Gen, generation.get()),
            (Attribute::Uid, self.uid.0),
            (Attribute::Gid, self.gid.0),
            (Attribute::Parent, self.parent.0),
            (Attribute::Flags, self.flags().0),
        ] {
            values.set_u64(schema, attribute, number);
        }
        for time in [Attribute::Atime, Attribute::Mtime, Attribute::Ctime, Attribute::Crtime] {
            values.set_time(schema, time, self.now);
        }
        if let Some(logged) = &self.logged {
            values.set_time(schema, Attribute::Crtime, logged.create_time);
        }
        values.set_u64(schema, Attribute::Links, self.links);
        if let Some(project) = self.project {
            values.set_u64(schema, Attribute::Projid, project);
        }
        if let Some(device) = self.device {
            values.set_u64(schema, Attribute::Rdev, device.encode());
        }
        values.set_acl(schema, &trivial(self.kind, mode));
        if let Some(target) = self.target {
            values.set(schema, Attribute::Symlink, target);
        }
        values
    }
}

/// A file that is about to be made.
#[derive(Debug)]
pub(super) struct Draft {
    kind: FileKind,
    slots: u8,
    values: Values,
    split: Split,
    schema: Arc<Schema>,
    logged: Option<LoggedObject>,
}

impl LiveFileSystem {
    /// Drafts a file; `complete` may add attributes.
    pub(super) fn draft(
        &self,
        seed: &NodeSeed<'_>,
        complete: impl FnOnce(&mut Values, &Schema),
    ) -> Result<Draft, ZplError> {
        let schema = self.schema.registered(&self.objset, &self.engine)?;
        let mut values = seed.values(&schema, Txg(0));
        complete(&mut values, &schema);
        let slots = seed.logged.map_or(self.options().dnode_size.slots(), |logged| logged.slots);
        let (split, schema) = self.plan(self.place(seed.parent), &values, slots)?;
        Ok(Draft { kind: seed.kind, slots, values, split, schema, logged: seed.logged })
    }

    /// Which attributes go where, and the schema with the layouts that this needs.
    pub(super) fn plan(
        &self,
        place: Place,
        values: &Values,
        slots: u8,
    ) -> Result<(Split, Arc<Schema>), ZplError> {
        let schema = self.schema.read();
        let split = values.split(&schema.registry, bonus_capacity(slots));
        let split = split.ok_or(ZplError::TooBig { place })?;
        let (bonus, spill) = values.lists(split);
        let schema = self.schema.with_layouts(&self.objset, &self.engine, &[&bonus, &spill])?;
        Ok((split, schema))
    }
}

impl Draft {
    /// Gives the file a number: a free one, or the one that it had.
    pub(super) fn allocate(
        &self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
    ) -> Result<LiveObject, ZplError> {
        let object_type = match self.kind {
            FileKind::Directory => ObjectType::DIRECTORY_CONTENTS,
            _ => ObjectType::PLAIN_FILE_CONTENTS,
        };
        let new = NewObject {
            object_type,
            data_block_size: FIRST_BLOCK_SIZE,
            indirect_shift: INDIRECT_SHIFT,
            bonus_type: ObjectType::SA,
            bonus: &[],
            slots: self.slots,
        };
        let Some(logged) = self.logged else { return Ok(file_system.objset.allocate(tx, new)?) };
        let place = file_system.place(logged.object);
        file_system.objset.claim(tx, logged.object, new)?.ok_or(ZplError::Exists { place })
    }

    /// Changes an attribute that has a value; its length stays.
    pub(super) fn set_u64(&mut self, attribute: Attribute, value: u64) {
        self.values.set_u64(&self.schema, attribute, value);
    }

    /// Makes the file of an object that was allocated for it.
    pub(super) fn make(
        &mut self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
        object: LiveObject,
    ) -> Result<NodeState, ZplError> {
        let generation = self.logged.map_or(tx.txg().get(), |logged| logged.generation);
        self.set_u64(Attribute::Gen, generation);
        let place = FileObject::place(&object);
        let corrupt = |source| ZplError::Corrupt { place, source };
        let encoded = self.values.encode(&self.schema, self.split).map_err(corrupt)?;
        object.set_bonus(tx, ObjectType::SA, &encoded.bonus)?;
        if let Some(spill) = encoded.spill {
            object.set_spill(tx, &spill)?;
        }
        if self.kind == FileKind::Directory {
            let master = &file_system.master;
            let normalization = master.case.normalization(master.normalization);
            let new = NewZap::new(file_system.salt()).normalization(normalization);
            object.create_zap(tx, &new).map_err(|source| object.zap_failure(source))?;
        }
        let znode = decode_znode(&object, &self.schema)?;
        Ok(NodeState::new(object, znode))
    }
}
