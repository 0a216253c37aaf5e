//! Changing attributes: modes, owners, times, projects, flags (spec 05, sections 6.1, 6.2, 9.5).

use super::acl::ACCESS;
use super::admission::DNODE_BYTES;
use super::admission::Progress;
use super::caller::{Caller, Privilege};
use super::change::{Prepared, Touch};
use super::creation::{SET_GROUP_ID, SET_USER_ID};
use super::file_system::LiveFileSystem;
use super::log::LoggedAttributes;
use super::node::NodeState;
use super::values::{ModeChange, Values};
use super::xattr_change::XattrChange;
use crate::error::ZplError;
use crate::node::Attributes;
use crate::quota::{QuotaOwner, QuotaUnit};
use crate::source::Source;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::fuid::Fuid;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::zil::SetAttr;
use rzfs_format::znode::{FileFlags, Timestamp};

const PERMISSION_BITS: u32 = 0o7777;
const GROUP_EXECUTE: u32 = 0o010;

/// A new time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeChange {
    /// The current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Flags that users set and clear.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlagChange {
    /// Flags to set.
    pub set: FileFlags,
    /// Flags to clear.
    pub clear: FileFlags,
}

/// The attributes of a file to change; those that are `None` stay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AttributeChange {
    /// The twelve permission bits.
    pub permissions: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeChange>,
    /// Last change of the contents.
    pub mtime: Option<TimeChange>,
    /// The project.
    pub project: Option<u32>,
    /// Flags.
    pub flags: Option<FlagChange>,
}

impl AttributeChange {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The log record's attributes, including the mode, if that changes too.
    fn logged(&self, changes_mode: bool) -> LoggedAttributes {
        let bits = [
            (changes_mode || self.permissions.is_some(), SetAttr::MODE),
            (self.uid.is_some(), SetAttr::UID),
            (self.gid.is_some(), SetAttr::GID),
            (self.atime.is_some(), SetAttr::ATIME),
            (self.mtime.is_some(), SetAttr::MTIME),
        ];
        LoggedAttributes {
            mask: bits.iter().filter(|(is_set, _)| *is_set).fold(0, |mask, (_, bit)| mask | bit),
            flags: self.flags.map(|flags| (flags.set, flags.clear)),
            project: self.project.map(u64::from),
        }
    }

    /// Whether it changes something that an immutable file protects.
    fn changes_immutable(&self) -> bool {
        let others = Self { flags: None, project: None, ..*self };
        !others.is_nothing()
    }

    /// Whether it changes something that an append-only file protects. Setting times to the current
    /// time is allowed.
    fn changes_append_only(&self) -> bool {
        let is_touched = [self.atime, self.mtime] == [Some(TimeChange::Now); 2];
        let sets_times = (self.atime.is_some() || self.mtime.is_some()) && !is_touched;
        sets_times || self.permissions.is_some() || self.uid.is_some() || self.gid.is_some()
    }
}

/// The flags that restrict everybody, so that only the superuser may change them.
fn binding() -> FileFlags {
    FileFlags::IMMUTABLE.with(FileFlags::APPENDONLY).with(FileFlags::NOUNLINK)
}

/// The flags that users may change.
pub(super) fn settable() -> FileFlags {
    [
        FileFlags::READONLY,
        FileFlags::HIDDEN,
        FileFlags::SYSTEM,
        FileFlags::ARCHIVE,
        FileFlags::IMMUTABLE,
        FileFlags::NOUNLINK,
        FileFlags::APPENDONLY,
        FileFlags::NODUMP,
        FileFlags::OPAQUE,
        FileFlags::AV_QUARANTINED,
        FileFlags::AV_MODIFIED,
        FileFlags::REPARSE,
        FileFlags::OFFLINE,
        FileFlags::SPARSE,
        FileFlags::PROJINHERIT,
    ]
    .into_iter()
    .fold(FileFlags::default(), FileFlags::with)
}

impl LiveFileSystem {
    /// Changes attributes. A new length, and a new mode of a file with an access control list, are
    /// set in separate transactions first. Whether the caller may change flags and projects is
    /// checked here.
    ///
    /// # Errors
    /// The file's flags or its kind forbid it, the caller lacks the right, a new owner's quota is
    /// exceeded, or files have no project ids here.
    pub fn set_attributes(
        &self,
        object: ObjectId,
        change: &AttributeChange,
        caller: Caller,
    ) -> Result<Attributes, ZplError> {
        let node = self.node(object)?;
        let attributes = loop {
            let progress = self.set_attributes_locked(&mut node.write(), *change, caller)?;
            match progress {
                Progress::Done(attributes) => break attributes,
                Progress::Paused { until, .. } => self.wait_for(until)?,
            }
        };
        self.commit_always(object)?;
        Ok(attributes)
    }

    fn set_attributes_locked(
        &self,
        state: &mut NodeState,
        mut change: AttributeChange,
        caller: Caller,
    ) -> Result<Progress<Attributes>, ZplError> {
        self.check_change(state, &change, caller)?;
        if let Some(size) = change.size.take()
            && let Progress::Paused { until, rest } = self.truncate_locked(state, size, caller)?
        {
            return Ok(Progress::Paused { until, rest });
        }
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if changes_owner && state.znode().kind == FileKind::Regular {
            self.drop_capabilities(state)?;
        }
        if let Some(permissions) = change.permissions {
            let permissions = permissions & PERMISSION_BITS;
            if let Some(list) = self.acl_of_mode(state, permissions)? {
                let list = XattrChange::set(ACCESS, &list);
                let mode = ModeChange::Rewrites(permissions);
                self.change_xattr(state, list, Some(mode))?;
                change.permissions = None;
            }
        }
        if !change.is_nothing() {
            self.change_attributes(state, &change)?;
        }
        // The caller gets all new attributes of the file.
        state.take_setid_cleared();
        state.attributes().map(Progress::Done)
    }

    /// Refuses changes of flags and projects by unprivileged callers: unlike for modes, the kernel
    /// does not check all paths to these.
    fn check_right(
        &self,
        state: &NodeState,
        change: &AttributeChange,
        caller: Caller,
    ) -> Result<(), ZplError> {
        let is_free = change.flags.is_none() && change.project.is_none();
        if is_free || caller.privilege == Privilege::Superuser || self.source.replay.is_on() {
            return Ok(());
        }
        let (znode, place) = (state.znode(), state.place());
        if let Some(FlagChange { set, clear }) = change.flags {
            let new = znode.flags.without(clear).with(set);
            if (new.0 ^ znode.flags.0) & binding().0 != 0 {
                return Err(ZplError::NotPermitted { place });
            }
        }
        if znode.uid != Fuid::posix(caller.uid) {
            return Err(ZplError::NotOwner { place });
        }
        Ok(())
    }

    fn check_change(
        &self,
        state: &NodeState,
        change: &AttributeChange,
        caller: Caller,
    ) -> Result<(), ZplError> {
        self.check_right(state, change, caller)?;
        let (znode, place) = (state.znode(), state.place());
        if change.changes_immutable() {
            self.check_flags(state, &[FileFlags::IMMUTABLE])?;
        }
        if change.changes_append_only() {
            self.check_flags(state, &[FileFlags::APPENDONLY])?;
        }
        if let Some(FlagChange { set, clear }) = change.flags
            && !settable().contains(set.with(clear))
        {
            return Err(ZplError::Unsupported { place, what: "such a flag" });
        }
        if let Some(project) = change.project {
            let has_projects = matches!(znode.kind, FileKind::Regular | FileKind::Directory);
            if !self.keeps_projects() || !has_projects {
                return Err(ZplError::Unsupported { place, what: "a project id" });
            }
            if project == u32::MAX {
                return Err(ZplError::Invalid { place, problem: "no project has this id" });
            }
        }
        let owners = [
            (QuotaOwner::User, change.uid.map(u64::from), znode.uid.0),
            (QuotaOwner::Group, change.gid.map(u64::from), znode.gid.0),
            (QuotaOwner::Project, change.project.map(u64::from), znode.project),
        ];
        for (owner, new, old) in owners {
            let Some(id) = new.filter(|id| *id != old) else { continue };
            for unit in [QuotaUnit::Bytes, QuotaUnit::Objects] {
                self.check_owner(owner, unit, id)?;
            }
        }
        Ok(())
    }

    fn change_attributes(
        &self,
        state: &mut NodeState,
        change: &AttributeChange,
    ) -> Result<(), ZplError> {
        let mut hidden = self.plan_hidden(state, change)?;
        let changed = self.prepare(state, |values, schema| {
            self.touch(values, schema, Touch::Attributes);
            self.change_values(state, values, schema, change);
        })?;
        let mut objects: Vec<_> =
            hidden.iter().map(|(hidden, _)| hidden.object().clone()).collect();
        objects.push(state.object().clone());
        let demand = SpaceDemand::Takes(DNODE_BYTES * objects.len() as u64);
        let tx = self.begin(&objects.iter().collect::<Vec<_>>(), demand)?;
        for (state, changed) in hidden.drain(..) {
            let mut state = state;
            changed.apply(&tx, &mut state)?;
        }
        let mode = state.znode().mode;
        changed.apply(&tx, state)?;
        self.log_attributes(&tx, state, &change.logged(state.znode().mode != mode));
        Ok(())
    }

    fn change_values(
        &self,
        state: &NodeState,
        values: &mut Values,
        schema: &Schema,
        change: &AttributeChange,
    ) {
        let kind = state.znode().kind;
        change_owner(values, schema, change);
        let mut permissions = change.permissions.map(|bits| bits & PERMISSION_BITS);
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if changes_owner && kind != FileKind::Directory && permissions.is_none() {
            permissions = without_set_ids(state.znode().mode & PERMISSION_BITS);
        }
        if let Some(permissions) = permissions {
            values.set_permissions(schema, kind, permissions);
        }
        let now = self.options().clock.now();
        let times = [(Attribute::Atime, change.atime), (Attribute::Mtime, change.mtime)];
        for (attribute, time) in times {
            match time {
                Some(TimeChange::Now) => values.set_time(schema, attribute, now),
                Some(TimeChange::At(time)) => values.set_time(schema, attribute, time),
                None => {}
            }
        }
        if let Some(FlagChange { set, clear }) = change.flags {
            values.change_flags(schema, |flags| flags.without(clear).with(set));
        }
    }

    /// The changes of the extended attribute directory and its files: they have the same owner as
    /// their file.
    fn plan_hidden(
        &self,
        state: &NodeState,
        change: &AttributeChange,
    ) -> Result<Vec<(NodeState, Prepared)>, ZplError> {
        let owners =
            AttributeChange { permissions: None, atime: None, mtime: None, flags: None, ..*change };
        if owners.is_nothing() {
            return Ok(Vec::new());
        }
        let Some(directory) = self.xattr_directory(state)? else { return Ok(Vec::new()) };
        let files = self.entries_of(&directory)?;
        let mut hidden = vec![directory];
        for file in files {
            hidden.push(self.source.xattr_part(file.id())?);
        }
        let prepare = |state: NodeState| {
            let prepared = self.prepare(&state, |values, schema| {
                change_owner(values, schema, &owners);
            })?;
            Ok((state, prepared))
        };
        hidden.into_iter().map(prepare).collect()
    }
}

/// Changes owner, group and project.
fn change_owner(values: &mut Values, schema: &Schema, change: &AttributeChange) {
    if let Some(uid) = change.uid {
        values.set_u64(schema, Attribute::Uid, Fuid::posix(uid).0);
    }
    if let Some(gid) = change.gid {
        values.set_u64(schema, Attribute::Gid, Fuid::posix(gid).0);
    }
    if let Some(project) = change.project {
        values.insert_after(schema, Attribute::Links, Attribute::Projid, u64::from(project));
        values.change_flags(schema, |flags| flags.with(FileFlags::PROJID));
    }
}

/// The permissions of a file after a change of owner, if they change.
fn without_set_ids(permissions: u32) -> Option<u32> {
    let mut without = permissions & !SET_USER_ID;
    if permissions & GROUP_EXECUTE != 0 {
        without &= !SET_GROUP_ID;
    }
    (without != permissions).then_some(without)
}
