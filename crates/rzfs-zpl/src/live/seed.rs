//! Initial attributes of new files (spec 05, sections 5.1 and 5.2).

use super::access_list::mode_flags;
use super::replay::state::LoggedObject;
use super::values::Values;
use rzfs_dmu::live::LiveObjset;
use rzfs_format::acl::trivial;
use rzfs_format::dirent::FileKind;
use rzfs_format::fuid::Fuid;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::znode::{DeviceNumber, FileFlags, Timestamp};
use rzfs_format::{ObjectId, Txg};

/// Flag of an object set whose files have project ids.
const PROJECTS_KEPT: u64 = 4;
/// Whether the files of a set have project ids.
pub(super) fn keeps_projects(objset: &LiveObjset) -> bool {
    objset.synced().block().flags & PROJECTS_KEPT != 0
}

/// The initial attributes of a new file.
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
    /// Flags that are not implied by the rest.
    pub(super) flags: FileFlags,
    pub(super) device: Option<DeviceNumber>,
    /// The target of a symbolic link.
    pub(super) target: Option<&'a [u8]>,
    pub(super) links: u64,
    pub(super) now: Timestamp,
    /// What the log says about it, when it is recreated.
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

    /// The attributes, in OpenZFS's storage order.
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
