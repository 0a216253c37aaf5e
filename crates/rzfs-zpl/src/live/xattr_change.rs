//! Storing and removing extended attributes, each change in one transaction.

use super::access_list::Inherited;
use super::admission::DNODE_BYTES;
use super::change::{Prepared, Touch};
use super::creation::Naming;
use super::draft::Draft;
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::options::XattrStore;
use super::quotas::Charged;
use super::seed::NodeSeed;
use super::values::{ModeChange, Values};
use crate::error::ZplError;
use rzfs_dmu::live::{Extent, LiveObject, Transaction};
use rzfs_dmu::txg::OpenTx;
use rzfs_dsl::live::{LogOrder, SpaceDemand};
use rzfs_format::ObjectId;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::xattr::{XattrList, stored_names};
use rzfs_format::znode::FileFlags;
use std::sync::OnceLock;

/// Maximum length of a value in a system attribute.
const MAX_SA_VALUE: usize = 32768;
/// Maximum length of a list that may grow and fits in a system attribute.
const MAX_GROWING_LIST: usize = 65536;
const MAX_LIST: usize = 65535;
const DIRECTORY_PERMISSIONS: u32 = 0o1777;
const FILE_PERMISSIONS: u32 = 0o644;

/// A change of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrChange<'a> {
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

impl<'a> XattrChange<'a> {
    pub(super) const fn set(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value: Some(value) }
    }

    pub(super) const fn remove(name: &'a [u8]) -> Self {
        Self { name, value: None }
    }
}

/// Adds an attribute to a list, if both fit; returns the packed list.
fn add_to_list(list: &mut XattrList, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let before = list.encode().ok()?.len();
    if value.len() > MAX_SA_VALUE || before > MAX_GROWING_LIST {
        return None;
    }
    list.insert(name, value).ok()?;
    list.encode().ok().filter(|packed| packed.len() <= MAX_LIST)
}

/// The extended attributes of a new file.
#[derive(Debug, Default)]
pub(super) struct Attached {
    /// Those in the system attribute.
    list: Option<Vec<u8>>,
    /// Those stored as files, in a directory.
    directory: Option<AttachedDirectory>,
    /// What was created already.
    made: Vec<LiveObject>,
    /// The same after all is created: the directory, then the files.
    nodes: Vec<NodeState>,
}

#[derive(Debug)]
struct AttachedDirectory {
    draft: Draft,
    files: Vec<(Vec<u8>, Vec<u8>, Draft)>,
}

impl Attached {
    /// Adds the attribute that refers to them.
    pub(super) fn complete(&self, values: &mut Values, schema: &Schema) {
        if let Some(list) = &self.list {
            values.set(schema, Attribute::Dxattr, list);
        }
        if self.directory.is_some() {
            values.set_u64(schema, Attribute::Xattr, 0);
        }
    }

    /// Logs those stored as files, after their owner.
    pub(super) fn log_files(
        &self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
        owner: ObjectId,
    ) -> Result<(), ZplError> {
        let (Some(directory), [made, files @ ..]) = (&self.directory, &self.nodes[..]) else {
            return Ok(());
        };
        file_system.log_attribute_node(tx, owner, b"", made)?;
        for ((name, value, _), file) in directory.files.iter().zip(files) {
            file_system.log_attribute_node(tx, made.object().id(), name, file)?;
            file_system.log_attribute_value(tx, file.object().id(), value);
        }
        Ok(())
    }

    /// Whether some are stored as files.
    pub(super) const fn has_files(&self) -> bool {
        self.directory.is_some()
    }

    /// Bytes written by creating them.
    pub(super) fn bytes(&self) -> u64 {
        let files = self.directory.as_ref().map_or(0, |directory| directory.files.len() + 1);
        files as u64 * 2 * DNODE_BYTES
    }

    /// Creates them for the new file of `owner`.
    pub(super) fn make(
        &mut self,
        file_system: &LiveFileSystem,
        tx: &dyn Transaction,
        owner: ObjectId,
        draft: &mut Draft,
    ) -> Result<(), ZplError> {
        let Some(AttachedDirectory { draft: directory, files }) = &mut self.directory else {
            return Ok(());
        };
        let object = directory.allocate(file_system, tx)?;
        self.made.push(object.clone());
        draft.set_u64(Attribute::Xattr, object.id().0);
        directory.set_u64(Attribute::Parent, owner.0);
        let mut state = directory.make(file_system, tx, object)?;
        let mut nodes = Vec::with_capacity(files.len() + 1);
        for (name, value, draft) in files {
            let file = file_system.make_xattr_file(tx, &mut state, name, value, draft)?;
            self.made.push(file.object().clone());
            nodes.push(file);
        }
        nodes.insert(0, state);
        self.nodes = nodes;
        Ok(())
    }

    /// Reverts the creation.
    pub(super) fn undo(&self, tx: &dyn Transaction) -> Result<(), ZplError> {
        self.made.iter().try_for_each(|object| object.destroy(tx)).map_err(ZplError::from)
    }
}

impl LiveFileSystem {
    /// Plans the extended attributes that a new file inherits.
    pub(super) fn plan_xattrs(
        &self,
        seed: &NodeSeed<'_>,
        inherited: &Inherited,
    ) -> Result<Attached, ZplError> {
        if inherited.xattrs.is_empty() {
            return Ok(Attached::default());
        }
        if self.options().xattr_store == XattrStore::SystemAttribute {
            let mut list = XattrList::default();
            let mut packed = None;
            for (name, value) in &inherited.xattrs {
                packed = add_to_list(&mut list, name, value);
            }
            if packed.is_some() {
                return Ok(Attached { list: packed, ..Attached::default() });
            }
        }
        let mut files = Vec::with_capacity(inherited.xattrs.len());
        for (name, value) in &inherited.xattrs {
            let draft = self.xattr_file_draft(seed, ObjectId(0), value)?;
            files.push((name.to_vec(), value.clone(), draft));
        }
        let count = files.len() as u64;
        let draft = self.xattr_directory_draft(seed, ObjectId(0), count)?;
        Ok(Attached { directory: Some(AttachedDirectory { draft, files }), ..Attached::default() })
    }

    fn xattr_directory_draft(
        &self,
        owner: &NodeSeed<'_>,
        parent: ObjectId,
        entries: u64,
    ) -> Result<Draft, ZplError> {
        let seed = NodeSeed {
            kind: FileKind::Directory,
            permissions: DIRECTORY_PERMISSIONS,
            parent,
            flags: FileFlags::XATTR,
            links: 2,
            logged: None,
            device: None,
            target: None,
            project: self.keeps_projects().then_some(owner.project.unwrap_or(0)),
            ..owner.clone()
        };
        self.draft(&seed, |values, schema| values.set_u64(schema, Attribute::Size, 2 + entries))
    }

    fn xattr_file_draft(
        &self,
        owner: &NodeSeed<'_>,
        parent: ObjectId,
        value: &[u8],
    ) -> Result<Draft, ZplError> {
        let seed = NodeSeed {
            kind: FileKind::Regular,
            permissions: FILE_PERMISSIONS,
            parent,
            flags: FileFlags::XATTR,
            links: 1,
            logged: None,
            device: None,
            target: None,
            project: self.keeps_projects().then_some(owner.project.unwrap_or(0)),
            ..owner.clone()
        };
        let size = value.len() as u64;
        self.draft(&seed, |values, schema| values.set_u64(schema, Attribute::Size, size))
    }

    /// Creates the file of an attribute, with its name and contents.
    fn make_xattr_file(
        &self,
        tx: &dyn Transaction,
        directory: &mut NodeState,
        name: &[u8],
        value: &[u8],
        draft: &mut Draft,
    ) -> Result<NodeState, ZplError> {
        let object = draft.allocate(self, tx)?;
        draft.set_u64(Attribute::Parent, directory.object().id().0);
        let file = draft.make(self, tx, object.clone())?;
        self.fill(tx, &object, value)?;
        let entry = DirectoryEntry { object: object.id(), kind: Some(FileKind::Regular) };
        self.add_name(tx, directory, name, entry)?;
        Ok(file)
    }

    /// Writes the contents of an empty file.
    fn fill(
        &self,
        tx: &dyn Transaction,
        object: &LiveObject,
        value: &[u8],
    ) -> Result<(), ZplError> {
        self.grow_block(tx, object, 0, value.len() as u64)?;
        Ok(object.write(tx, 0, value)?)
    }

    /// Stores or removes an attribute, and changes the mode with it.
    pub(super) fn change_xattr(
        &self,
        state: &mut NodeState,
        change: XattrChange<'_>,
        mode: Option<ModeChange>,
    ) -> Result<(), ZplError> {
        if change.value.is_some() {
            self.check_bytes(&Charged::of(state.znode()))?;
        }
        let schema = self.source.schema.read();
        let mut list = state.xattr_list(&schema)?;
        let mut was_listed = false;
        for name in stored_names(change.name) {
            was_listed |= list.remove(name);
        }
        let mut packed = None;
        if let Some(value) = change.value
            && self.options().xattr_store == XattrStore::SystemAttribute
        {
            packed = add_to_list(&mut list.clone(), change.name, value);
        }
        let in_directory = change.value.filter(|_| packed.is_none());
        let listed = match packed {
            Some(packed) => Some(packed),
            None if was_listed => {
                let place = state.place();
                Some(list.encode().map_err(|source| ZplError::Corrupt { place, source })?)
            }
            None => None,
        };
        let plan = self.plan_directory_change(state, change.name, in_directory)?;
        let kind = state.znode().kind;
        let makes_directory = matches!(&plan, DirectoryChange { directory: Target::New(_), .. });
        let owner = self.prepare(state, |values, schema| {
            self.touch(values, schema, Touch::Attributes);
            if let Some(mode) = mode {
                values.change_mode(schema, kind, mode);
            }
            if let Some(listed) = &listed {
                values.set(schema, Attribute::Dxattr, listed);
            }
            if makes_directory {
                values.set_u64(schema, Attribute::Xattr, 0);
            }
        })?;
        state.has_capabilities = OnceLock::new();
        let was_listed = if was_listed { Listed::Gone } else { Listed::Never };
        self.perform(state, owner, plan, (change, was_listed))
    }
}

/// Whether an attribute to be stored as a file was in the system attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    Gone,
    Never,
}

/// The attribute directory that a change needs.
#[derive(Debug)]
enum Target {
    /// None: it neither exists nor is needed.
    Absent,
    /// The existing one.
    Present(Box<(NodeState, Prepared)>),
    /// A new one.
    New(Box<Draft>),
}

/// The changes in the attribute directory.
#[derive(Debug)]
struct DirectoryChange {
    directory: Target,
    /// Files to remove, with their stored names.
    goes: Vec<(Vec<u8>, LiveObject)>,
    comes: Option<ValueTarget>,
}

/// A value to store as a file.
#[derive(Debug)]
enum ValueTarget {
    /// A new one.
    New(Box<Draft>, Vec<u8>),
    /// The one with the attribute.
    Over(Box<(NodeState, Prepared)>, Vec<u8>),
}

impl LiveFileSystem {
    /// Plans how a change of an attribute affects the directory; `value` is the new value.
    fn plan_directory_change(
        &self,
        state: &NodeState,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<DirectoryChange, ZplError> {
        let seed = NodeSeed {
            kind: FileKind::Regular,
            permissions: FILE_PERMISSIONS,
            uid: state.znode().uid,
            gid: state.znode().gid,
            parent: state.object().id(),
            project: Some(state.znode().project),
            flags: FileFlags::XATTR,
            device: None,
            target: None,
            links: 1,
            now: self.options().clock.now(),
            logged: None,
        };
        let Some(directory) = self.xattr_directory(state)? else {
            let Some(value) = value else {
                return Ok(DirectoryChange {
                    directory: Target::Absent,
                    goes: Vec::new(),
                    comes: None,
                });
            };
            let made = self.xattr_directory_draft(&seed, state.object().id(), 1)?;
            let file = self.xattr_file_draft(&seed, ObjectId(0), value)?;
            return Ok(DirectoryChange {
                directory: Target::New(Box::new(made)),
                goes: Vec::new(),
                comes: Some(ValueTarget::New(Box::new(file), value.to_vec())),
            });
        };
        let (mut goes, mut comes) = (Vec::new(), None);
        for stored in stored_names(name) {
            let Some(file) = self.xattr_file(&directory, stored)? else { continue };
            match value.filter(|_| comes.is_none() && stored == name) {
                Some(value) => {
                    let over = self.prepare(&file, |values, schema| {
                        values.set_u64(schema, Attribute::Size, value.len() as u64);
                        self.touch(values, schema, Touch::Contents);
                    })?;
                    comes = Some(ValueTarget::Over(Box::new((file, over)), value.to_vec()));
                }
                None => goes.push((stored.to_vec(), file.object().clone())),
            }
        }
        if let (Some(value), None) = (value, &comes) {
            let id = directory.object().id();
            let draft = self.xattr_file_draft(&seed, id, value)?;
            comes = Some(ValueTarget::New(Box::new(draft), value.to_vec()));
        }
        let added = i64::from(matches!(comes, Some(ValueTarget::New(..)))) - goes.len() as i64;
        let prepared = self.prepare(&directory, |values, schema| {
            self.change_names(&directory, values, schema, added, FileKind::Regular);
        })?;
        let directory = Target::Present(Box::new((directory, prepared)));
        Ok(DirectoryChange { directory, goes, comes })
    }

    fn perform(
        &self,
        state: &mut NodeState,
        mut owner: Prepared,
        plan: DirectoryChange,
        (change, listed): (XattrChange<'_>, Listed),
    ) -> Result<(), ZplError> {
        let name = change.name;
        let mode = state.znode().mode;
        let owner_object = state.object().clone();
        let tx = self.begin_change(&owner_object, &plan, name)?;
        let DirectoryChange { directory, goes, comes } = plan;
        let logs = state.znode().links > 0;
        let (comes_file, goes_file) = (comes.is_some(), !goes.is_empty());
        if logs && (comes_file || goes_file) {
            // It is ordered with earlier changes of the attributes.
            self.promote_records(owner_object.id());
        }
        if logs && comes_file && listed == Listed::Gone {
            self.log_xattr(&tx, LogOrder::Names, owner_object.id(), name, None);
        }
        let (mut directory, changed) = match directory {
            Target::Absent => {
                owner.apply(&tx, state)?;
                self.log_listed(&tx, state, change, mode);
                return Ok(());
            }
            Target::Present(present) => (present.0, Some(present.1)),
            Target::New(mut draft) => {
                let object = draft.allocate(self, &tx)?;
                owner.set_u64(Attribute::Xattr, object.id().0);
                let made = draft.make(self, &tx, object)?;
                if logs {
                    self.log_attribute_node(&tx, owner_object.id(), b"", &made)?;
                }
                (made, None)
            }
        };
        match comes {
            Some(ValueTarget::New(mut draft, value)) => {
                let file = self.make_xattr_file(&tx, &mut directory, name, &value, &mut draft)?;
                if logs {
                    let id = directory.object().id();
                    self.log_attribute_node(&tx, id, name, &file)?;
                    self.log_attribute_value(&tx, file.object().id(), &value);
                }
            }
            Some(ValueTarget::Over(over, value)) => {
                let (mut file, prepared) = *over;
                file.object().free(&tx, 0, Extent::ToEnd)?;
                self.shrink_empty(&tx, file.object(), 0)?;
                self.fill(&tx, file.object(), &value)?;
                prepared.apply(&tx, &mut file)?;
                if logs {
                    self.log_attribute_value(&tx, file.object().id(), &value);
                }
            }
            None => {}
        }
        for (stored, object) in goes {
            self.remove_name(&tx, &mut directory, &stored)?;
            object.destroy(&tx)?;
            if logs {
                self.log_removal(&tx, directory.object().id(), &stored, FileKind::Regular);
            }
        }
        if let Some(changed) = changed {
            changed.apply(&tx, &mut directory)?;
        }
        owner.apply(&tx, state)?;
        if logs && !comes_file && (change.value.is_some() || listed == Listed::Gone) {
            let id = owner_object.id();
            let order = if goes_file { LogOrder::Names } else { LogOrder::File(id) };
            self.log_xattr(&tx, order, id, name, change.value);
        }
        if state.znode().mode != mode {
            self.log_mode(&tx, state);
        }
        Ok(())
    }

    /// Begins the transaction of a change.
    fn begin_change(
        &self,
        owner: &LiveObject,
        plan: &DirectoryChange,
        name: &[u8],
    ) -> Result<OpenTx, ZplError> {
        let mut demand = 3 * DNODE_BYTES;
        let mut objects = vec![owner];
        if let Target::Present(present) = &plan.directory {
            demand += self.naming_bytes(&present.0, Naming::Name(name))?;
            objects.push(present.0.object());
        }
        objects.extend(plan.goes.iter().map(|(_, object)| object));
        match &plan.comes {
            Some(ValueTarget::Over(over, value)) => {
                demand += value.len() as u64;
                objects.push(over.0.object());
            }
            Some(ValueTarget::New(_, value)) => demand += value.len() as u64,
            None => {}
        }
        let demand = match plan.comes {
            None if !plan.goes.is_empty() => SpaceDemand::Frees(demand),
            _ => SpaceDemand::Takes(demand),
        };
        self.begin(&objects, demand)
    }

    /// Logs a change of the system attribute, and of the mode if it changed.
    fn log_listed(
        &self,
        tx: &dyn Transaction,
        state: &NodeState,
        change: XattrChange<'_>,
        mode: u32,
    ) {
        let object = state.object().id();
        if state.znode().links > 0 {
            self.log_xattr(tx, LogOrder::File(object), object, change.name, change.value);
        }
        if state.znode().mode != mode {
            self.log_mode(tx, state);
        }
    }
}
