//! Recreating files with their logged numbers.

use super::super::access_list::{AccessList, Inherited};
use super::super::admission::DNODE_BYTES;
use super::super::attributes::settable;
use super::super::creation::Naming;
use super::super::file_system::LiveFileSystem;
use super::super::node::NodeState;
use super::super::seed::NodeSeed;
use super::attributes::flag_changes;
use super::state::LoggedObject;
use crate::error::ZplError;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::Attribute;
use rzfs_format::zil::{Create, CreateAcl, NewObject, RecordKind, XattrBits};
use rzfs_format::znode::FileFlags;

const PERMISSION_BITS: u64 = 0o7777;
/// Maximum dnode slots.
const MAX_SLOTS: u16 = 32;

impl LiveFileSystem {
    /// The number and other parameters of a logged new file.
    pub(super) fn logged_object(&self, new: &NewObject) -> Result<LoggedObject, ZplError> {
        let slots = u8::try_from(new.slots).ok().filter(|_| new.slots <= MAX_SLOTS);
        let problem = "a dnode that is too large";
        let slots = slots.ok_or(ZplError::Invalid { place: self.place(new.object), problem })?;
        Ok(LoggedObject {
            object: new.object,
            slots,
            generation: new.generation,
            create_time: new.create_time,
        })
    }

    /// Creates a file, directory, link or extended attribute directory.
    pub(super) fn replay_create(
        &self,
        record: RecordKind,
        create: &Create<'_>,
    ) -> Result<(), ZplError> {
        if record == RecordKind::MkXattr {
            return self.replay_make_xattr_directory(create);
        }
        self.replay_make(record, create, None)
    }

    /// Creates a file or directory with an access control list.
    pub(super) fn replay_create_with_list(
        &self,
        record: RecordKind,
        create: &CreateAcl<'_>,
    ) -> Result<(), ZplError> {
        let list = self.logged_list(create.directory, &create.acl)?;
        let without = Create {
            directory: create.directory,
            new: create.new,
            attributes: create.attributes,
            domains: create.acl.domains.clone(),
            name: create.name,
            target: b"",
        };
        self.replay_make(record, &without, Some(list))
    }

    fn replay_make(
        &self,
        record: RecordKind,
        create: &Create<'_>,
        list: Option<AccessList>,
    ) -> Result<(), ZplError> {
        let place = self.place(create.directory);
        let kind = FileKind::from_mode(create.new.mode as u32);
        let fits = match (record, kind) {
            (
                RecordKind::Mkdir
                | RecordKind::MkdirAttr
                | RecordKind::MkdirAcl
                | RecordKind::MkdirAclAttr,
                kind,
            ) => kind == Some(FileKind::Directory),
            (RecordKind::Symlink, kind) => kind == Some(FileKind::Symlink),
            (_, kind) => !matches!(kind, Some(FileKind::Directory | FileKind::Symlink)),
        };
        let kind = kind.filter(|_| fits);
        let kind = kind.ok_or(ZplError::Invalid { place, problem: "a mode of another kind" })?;
        self.check_new_name(place, create.name)?;
        let parent = self.node(create.directory)?;
        let mut parent = parent.write();
        self.check_accepts_names(&parent)?;
        if self.entry(&parent, create.name)?.is_some() {
            return Err(ZplError::Exists { place });
        }
        let seed = self.logged_seed(&parent, kind, create)?;
        let inherited = Inherited { permissions: seed.permissions, xattrs: Vec::new(), list };
        self.make_seeded(&mut parent, Naming::Name(create.name), &seed, &inherited).map(drop)
    }

    fn logged_seed<'a>(
        &self,
        parent: &NodeState,
        kind: FileKind,
        create: &Create<'a>,
    ) -> Result<NodeSeed<'a>, ZplError> {
        let new = &create.new;
        let (znode, place) = (parent.znode(), parent.place());
        let may_inherit = matches!(kind, FileKind::Regular | FileKind::Directory);
        let inherits = may_inherit && znode.flags.contains(FileFlags::PROJINHERIT);
        let mut project = if inherits { znode.project } else { 0 };
        let mut flags = if inherits { FileFlags::PROJINHERIT } else { FileFlags::default() };
        if znode.flags.contains(FileFlags::XATTR) {
            flags = flags.with(FileFlags::XATTR);
        }
        let mut logged = self.logged_object(new)?;
        if let Some(attributes) = &create.attributes {
            let change = flag_changes(attributes);
            flags = flags.with(FileFlags(change.set.0 & settable().0));
            project = attributes.project.unwrap_or(project);
            if attributes.requested.has(XattrBits::CREATE_TIME) {
                logged.create_time = attributes.create_time;
            }
        }
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let target = (kind == FileKind::Symlink).then_some(create.target);
        if target.is_some_and(<[u8]>::is_empty) {
            return Err(ZplError::Invalid { place, problem: "a link to nothing" });
        }
        Ok(NodeSeed {
            kind,
            permissions: (new.mode & PERMISSION_BITS) as u32,
            uid: new.uid,
            gid: new.gid,
            parent: create.directory,
            project: (may_inherit && self.keeps_projects()).then_some(project),
            flags,
            device: is_device.then_some(new.device),
            target,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            now: new.create_time,
            logged: Some(logged),
        })
    }

    /// Creates the extended attribute directory of a file.
    fn replay_make_xattr_directory(&self, create: &Create<'_>) -> Result<(), ZplError> {
        let node = self.node(create.directory)?;
        let mut state = node.write();
        let place = state.place();
        if self.xattr_directory(&state)?.is_some() {
            return Err(ZplError::Exists { place });
        }
        let new = &create.new;
        let seed = NodeSeed {
            kind: FileKind::Directory,
            permissions: (new.mode & PERMISSION_BITS) as u32,
            uid: new.uid,
            gid: new.gid,
            parent: create.directory,
            project: self.keeps_projects().then_some(state.znode().project),
            flags: FileFlags::XATTR,
            device: None,
            target: None,
            links: 2,
            now: new.create_time,
            logged: Some(self.logged_object(new)?),
        };
        let mut draft = self.draft(&seed, |_, _| {})?;
        let owner = self.prepare(&state, |values, schema| {
            values.set_u64(schema, Attribute::Xattr, new.object.0);
        })?;
        let object = state.object().clone();
        let tx = self.begin(&[&object], SpaceDemand::Takes(2 * DNODE_BYTES))?;
        let made = draft.allocate(self, &tx)?;
        draft.make(self, &tx, made)?;
        owner.apply(&tx, &mut state)
    }
}
