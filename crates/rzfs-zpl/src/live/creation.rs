//! Creating files and links (spec 05, sections 3.4 and 5).

use super::access_list::Inherited;
use super::admission::{DNODE_BYTES, claimed_dnodes};
use super::caller::{Caller, Privilege};
use super::change::Touch;
use super::file_system::LiveFileSystem;
use super::node::{LiveNode, NodeState, lock_in_order};
use super::quotas::Charged;
use super::seed::NodeSeed;
use super::values::Values;
use crate::entry::CONTROL_NAME;
use crate::error::{Place, ZplError};
use crate::node::Attributes;
use crate::sync::Arc;
use rzfs_dmu::live::Transaction;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::fuid::Fuid;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::znode::{DeviceNumber, FileFlags};
use rzfs_zap::{Tunables, ZapValue};

/// Set group id.
pub(super) const SET_GROUP_ID: u32 = 0o2000;
/// Set user id.
pub(super) const SET_USER_ID: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o010;
const PERMISSION_BITS: u32 = 0o7777;
/// Maximum number of links of a file.
pub(super) const MAX_LINKS: u64 = i32::MAX as u64;
/// Maximum length of a new symbolic link's target.
const MAX_TARGET: usize = 4095;

/// The kind of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NewKind<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

impl NewKind<'_> {
    const fn kind(self) -> FileKind {
        match self {
            Self::Regular => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::BlockDevice(_) => FileKind::BlockDevice,
        }
    }
}

/// The parameters of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NewFile<'a> {
    /// Its kind.
    pub kind: NewKind<'a>,
    /// The twelve requested permission bits.
    pub permissions: u32,
    /// The permissions to clear, unless the directory has a default access control list.
    pub umask: u32,
    /// Its owner.
    pub caller: Caller,
}

/// Whether a new file is linked at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Naming<'a> {
    /// This one.
    Name(&'a [u8]),
    /// None: `O_TMPFILE`.
    Unnamed,
}

/// A file that was created, and its attributes then.
pub(super) struct Made {
    pub(super) node: Arc<LiveNode>,
    attributes: Attributes,
}

impl LiveFileSystem {
    /// Refuses invalid names, and `.zfs` in the root.
    pub(super) fn check_new_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        let is_bad =
            matches!(name, b"" | b"." | b"..") || name.iter().any(|b| *b == b'/' || *b == 0);
        if is_bad {
            return Err(ZplError::BadName { directory });
        }
        self.check_name(directory, name)?;
        if name == CONTROL_NAME && self.has_control_in(directory.object) {
            return Err(ZplError::Exists { place: directory });
        }
        Ok(())
    }

    /// Refuses to add names to something that is not a directory, is removed, or is immutable.
    pub(super) fn check_accepts_names(&self, directory: &NodeState) -> Result<(), ZplError> {
        let place = directory.place();
        directory.require_directory()?;
        if directory.znode().links == 0 {
            return Err(ZplError::NotFound { place });
        }
        if directory.znode().flags.contains(FileFlags::IMMUTABLE) && !self.source.replay.is_on() {
            return Err(ZplError::NotPermitted { place });
        }
        Ok(())
    }

    /// Creates a file in a directory.
    ///
    /// # Errors
    /// The name exists or is invalid, `directory` is not a directory or is immutable, a quota or
    /// the space is exceeded.
    pub fn create(
        &self,
        directory: ObjectId,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<Attributes, ZplError> {
        self.check_new_name(self.place(directory), name)?;
        let made = self.make(directory, Naming::Name(name), new)?;
        self.commit_always(made.node.id())?;
        Ok(made.attributes)
    }

    /// Creates a file in a directory, with or without a name.
    pub(super) fn make(
        &self,
        directory: ObjectId,
        naming: Naming<'_>,
        new: &NewFile<'_>,
    ) -> Result<Made, ZplError> {
        let parent = self.node(directory)?;
        let mut parent = parent.write();
        self.check_accepts_names(&parent)?;
        let place = parent.place();
        let kind = new.kind.kind();
        if let Naming::Name(name) = naming {
            if self.entry(&parent, name)?.is_some() {
                return Err(ZplError::Exists { place });
            }
            if kind == FileKind::Directory && parent.znode().links >= MAX_LINKS {
                return Err(ZplError::TooManyLinks { place });
            }
        }
        let inherited = self.inherited_acl(&parent, kind, new.permissions, new.umask)?;
        let mut seed = self.seed(&parent, new, inherited.permissions)?;
        if naming == Naming::Unnamed {
            seed.links = 0;
        }
        self.check_objects(&Charged {
            uid: seed.uid,
            gid: seed.gid,
            project: seed.project.unwrap_or(0),
        })?;
        self.make_seeded(&mut parent, naming, &seed, &inherited)
    }

    pub(super) fn make_seeded(
        &self,
        parent: &mut NodeState,
        naming: Naming<'_>,
        seed: &NodeSeed<'_>,
        inherited: &Inherited,
    ) -> Result<Made, ZplError> {
        let mut attached = self.plan_xattrs(seed, inherited)?;
        let mut draft = self.draft(seed, |values, schema| {
            attached.complete(values, schema);
            if let Some(list) = &inherited.list {
                values.set_list(schema, seed.kind, seed.permissions, list);
            }
        })?;
        let named = match naming {
            Naming::Name(_) => Some(self.prepare(parent, |values, schema| {
                self.change_names(parent, values, schema, 1, seed.kind);
            })?),
            Naming::Unnamed => None,
        };
        let demand = 2 * DNODE_BYTES + attached.bytes() + self.naming_bytes(parent, naming)?;
        let unlinked = self.unlinked.lock().object().clone();
        let mut objects = vec![parent.object()];
        if naming == Naming::Unnamed {
            objects = vec![&unlinked];
        }
        let claimed = |txg| claimed_dnodes(&objects, txg);
        let tx = self.begin_unless_claimed(&objects, SpaceDemand::Takes(demand), claimed)?;
        let object = draft.allocate(self, &tx)?;
        let mut make = || {
            attached.make(self, &tx, object.id(), &mut draft)?;
            let state = draft.make(self, &tx, object.clone())?;
            match naming {
                Naming::Name(name) => {
                    let entry = DirectoryEntry { object: object.id(), kind: Some(seed.kind) };
                    self.add_name(&tx, parent, name, entry)?;
                }
                Naming::Unnamed => self.queue(&tx, object.id())?,
            }
            Ok(state)
        };
        let result = make();
        let state = match result {
            Ok(state) => state,
            Err(error) => {
                attached.undo(&tx)?;
                object.destroy(&tx)?;
                return Err(error);
            }
        };
        if let Some(named) = named {
            named.apply(&tx, parent)?;
        }
        if let Naming::Name(name) = naming {
            let listed = if attached.has_files() { &[][..] } else { &inherited.xattrs };
            self.log_creation(&tx, name, seed, &object, listed)?;
            attached.log_files(self, &tx, object.id())?;
        }
        // Others can remove it as soon as the directory is unlocked.
        let attributes = state.attributes()?;
        Ok(Made { node: self.source.nodes.insert(LiveNode::new(state)), attributes })
    }

    /// Maximum bytes written by adding a name to a directory.
    pub(super) fn naming_bytes(
        &self,
        directory: &NodeState,
        naming: Naming<'_>,
    ) -> Result<u64, ZplError> {
        let Naming::Name(name) = naming else { return Ok(DNODE_BYTES) };
        let value = ZapValue::from(0_u64);
        let cost = directory.names()?.insert_cost(name, &value, &Tunables::default());
        Ok(2 * cost.most_bytes())
    }

    /// The attributes of a new file in a directory.
    pub(super) fn seed<'a>(
        &self,
        parent: &NodeState,
        new: &NewFile<'a>,
        permissions: u32,
    ) -> Result<NodeSeed<'a>, ZplError> {
        let (znode, place) = (parent.znode(), parent.place());
        let kind = new.kind.kind();
        let (device, target) = match new.kind {
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => (Some(device), None),
            NewKind::Symlink(target) => (None, Some(target)),
            _ => (None, None),
        };
        if let Some(target) = target {
            if target.is_empty() || target.contains(&0) {
                return Err(ZplError::Invalid { place, problem: "a link to nothing" });
            }
            if target.len() > MAX_TARGET {
                return Err(ZplError::NameTooLong { directory: place, length: target.len() });
            }
        }
        let mut permissions = permissions & PERMISSION_BITS;
        let inherits_group = znode.mode & SET_GROUP_ID != 0;
        let gid = if inherits_group { znode.gid } else { Fuid::posix(new.caller.gid) };
        if inherits_group && kind == FileKind::Directory {
            permissions |= SET_GROUP_ID;
        }
        let is_foreign = gid != Fuid::posix(new.caller.gid);
        if kind == FileKind::Regular
            && is_foreign
            && new.caller.privilege == Privilege::Ordinary
            && permissions & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE
        {
            permissions &= !SET_GROUP_ID;
        }
        let may_inherit = matches!(kind, FileKind::Regular | FileKind::Directory);
        let inherits = may_inherit && znode.flags.contains(FileFlags::PROJINHERIT);
        Ok(NodeSeed {
            kind,
            permissions,
            uid: Fuid::posix(new.caller.uid),
            gid,
            parent: place.object,
            project: (may_inherit && self.keeps_projects()).then_some(if inherits {
                znode.project
            } else {
                0
            }),
            flags: if inherits { FileFlags::PROJINHERIT } else { FileFlags::default() },
            device,
            target,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            now: self.options().clock.now(),
            logged: None,
        })
    }

    /// Updates a directory for a file of this kind that was added (+1) or removed (-1).
    pub(super) fn change_names(
        &self,
        directory: &NodeState,
        values: &mut Values,
        schema: &Schema,
        count: i64,
        kind: FileKind,
    ) {
        let znode = directory.znode();
        values.set_u64(schema, Attribute::Size, znode.size.saturating_add_signed(count));
        if kind == FileKind::Directory {
            values.set_u64(schema, Attribute::Links, znode.links.saturating_add_signed(count));
        }
        self.touch(values, schema, Touch::Contents);
    }

    /// Adds an entry to a directory.
    pub(super) fn add_name(
        &self,
        tx: &dyn Transaction,
        directory: &mut NodeState,
        name: &[u8],
        entry: DirectoryEntry,
    ) -> Result<(), ZplError> {
        let object = directory.object().clone();
        let place = directory.place();
        directory.change_names(|zap| {
            let added = zap.writer(object.zap_blocks(tx)).insert(name, entry.encode());
            added.map_err(|source| place.zap_failure(source))
        })
    }

    /// Links a file under another name.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`]; or the file is a directory, is removed, is immutable, has too
    /// many links, or belongs to another project than the directory.
    pub fn link(
        &self,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes, ZplError> {
        self.check_new_name(self.place(directory), name)?;
        if object == directory {
            return Err(ZplError::NotPermitted { place: self.place(object) });
        }
        // Held, so that it is not reclaimed meanwhile if it is unlinked.
        let (file, parent) = (self.hold_node(object)?, self.node(directory)?);
        let result = self.link_held(&file, &parent, name);
        let result = result.and_then(|attributes| {
            self.commit_always(object)?;
            Ok(attributes)
        });
        if file.release() {
            self.reclaim_or_leave(object);
        }
        result
    }

    fn link_held(
        &self,
        file: &LiveNode,
        parent: &LiveNode,
        name: &[u8],
    ) -> Result<Attributes, ZplError> {
        let (object, directory) = (file.id(), parent.id());
        let mut locked = lock_in_order(&[file, parent]);
        let gone = || ZplError::NotFound { place: self.place(object) };
        let (state, into) =
            (locked.get(object).ok_or_else(gone)?, locked.get(directory).ok_or_else(gone)?);
        self.check_accepts_names(into)?;
        self.check_link(state, into)?;
        if self.entry(into, name)?.is_some() {
            return Err(ZplError::Exists { place: into.place() });
        }
        let kind = state.znode().kind;
        let was_unnamed = state.znode().links == 0;
        let new_file = self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Links, state.znode().links + 1);
            values.set_u64(schema, Attribute::Parent, directory.0);
            self.touch(values, schema, Touch::Attributes);
        })?;
        let new_parent = self.prepare(into, |values, schema| {
            self.change_names(into, values, schema, 1, FileKind::Regular);
        })?;
        let demand = 2 * DNODE_BYTES + self.naming_bytes(into, Naming::Name(name))?;
        let unlinked = self.unlinked.lock().object().clone();
        let mut objects = vec![state.object(), into.object()];
        if was_unnamed {
            objects.push(&unlinked);
        }
        let tx = self.begin(&objects, SpaceDemand::Takes(demand))?;
        let entry = DirectoryEntry { object, kind: Some(kind) };
        let into = locked.get_mut(directory).ok_or_else(gone)?;
        // In a damaged set the file would lose its space in spite of its name.
        if was_unnamed {
            self.unqueue(&tx, object)?;
        }
        if let Err(error) = self.add_name(&tx, into, name, entry) {
            if was_unnamed {
                self.queue(&tx, object)?;
            }
            return Err(error);
        }
        new_parent.apply(&tx, into)?;
        let state = locked.get_mut(object).ok_or_else(gone)?;
        new_file.apply(&tx, state)?;
        if was_unnamed {
            file.named();
            // Nothing was logged for an unlinked file.
            self.log_nothing(&tx);
        } else {
            self.log_link(&tx, directory, object, name);
        }
        state.attributes()
    }

    fn check_link(&self, state: &NodeState, into: &NodeState) -> Result<(), ZplError> {
        let (znode, place) = (state.znode(), state.place());
        let fixed = [FileFlags::IMMUTABLE, FileFlags::APPENDONLY];
        let is_fixed = fixed.into_iter().any(|flag| znode.flags.contains(flag));
        if znode.is_directory() || is_fixed && !self.source.replay.is_on() {
            return Err(ZplError::NotPermitted { place });
        }
        self.check_project(state, into)?;
        if znode.links >= MAX_LINKS {
            return Err(ZplError::TooManyLinks { place });
        }
        Ok(())
    }

    /// Refuses a file of another project in a directory with project inheritance.
    pub(super) fn check_project(
        &self,
        state: &NodeState,
        into: &NodeState,
    ) -> Result<(), ZplError> {
        let inherits = into.znode().flags.contains(FileFlags::PROJINHERIT);
        let is_other = into.znode().project != state.znode().project;
        if inherits && is_other && !self.source.replay.is_on() {
            return Err(ZplError::OtherProject { place: state.place() });
        }
        Ok(())
    }

    /// Creates an unlinked regular file, which is held until it is dropped or linked.
    ///
    /// # Errors
    /// As [`LiveFileSystem::create`].
    pub fn create_unnamed(
        self: &Arc<Self>,
        directory: ObjectId,
        new: &NewFile<'_>,
    ) -> Result<super::unlinked::Hold, ZplError> {
        let place = self.place(directory);
        if new.kind != NewKind::Regular {
            return Err(ZplError::Invalid { place, problem: "only regular files need no name" });
        }
        let made = self.make(directory, Naming::Unnamed, new)?;
        self.hold(made.node.id())
    }
}
