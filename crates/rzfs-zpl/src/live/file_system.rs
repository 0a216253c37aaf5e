//! A file system that changes: opening it, and reading what it is at this moment.

use super::node::{LiveNode, NodeState, NodeTable};
use super::options::LiveOptions;
use super::quotas::Quotas;
use super::reclaimer::Reclaimer;
use super::replay::state::Replay;
use super::salts::Salts;
use super::schema::LiveSchema;
use super::seed::keeps_projects;
use super::unlinked_set::UnlinkedSet;
use crate::directory::{dangling_at, entry_value};
use crate::entry::{CONTROL_NAME, DirCookie, DirEntry, Found, control_entry, dot_entries};
use crate::error::{Place, ZplError};
use crate::master::MasterNode;
use crate::name::NameRules;
use crate::node::{Attributes, decode_znode};
use crate::object::FileObject;
use crate::options::{AclType, MAX_LONG_NAME, SnapshotDirectory};
use crate::read_ahead::Streams;
use crate::space::Statistics;
use crate::sync::{Arc, Mutex, RwLock};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::{Patience, TxgEngine};
use rzfs_dsl::live::HeadLog;
use rzfs_format::acl::Ace;
use rzfs_format::dirent::DirectoryEntry;
use rzfs_format::znode::{FileFlags, ZplVersion};
use rzfs_format::{ByteOrder, FormatError, ObjectId};
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// A file system that changes.
///
/// Files are addressed by object number, which is the inode number. All methods take `&self`, may
/// be called from any number of threads and return when what they do is done in memory; it is on
/// disk when the transaction group is. Whoever calls has checked that the user may do this: modes
/// and access control lists are kept here, not enforced. Flags such as `immutable` are.
#[derive(Debug)]
pub struct LiveFileSystem {
    pub(super) objset: LiveObjset,
    pub(super) engine: Arc<TxgEngine>,
    options: RwLock<Arc<LiveOptions>>,
    pub(super) master: MasterNode,
    pub(super) name_rules: NameRules,
    pub(super) schema: LiveSchema,
    pub(super) nodes: NodeTable,
    /// Files without names, by number.
    pub(super) unlinked: Mutex<UnlinkedSet>,
    pub(super) reclaimer: Arc<Reclaimer>,
    /// Held while a directory moves, so that the tree above a directory stays what it is.
    pub(super) renaming: Mutex<()>,
    pub(super) streams: Streams,
    pub(super) quotas: Quotas,
    pub(super) replay: Replay,
    salts: Mutex<Salts>,
    /// The intent log of the dataset.
    pub(super) log: OnceLock<HeadLog>,
    /// Callers wait for a suspended pool, not operations.
    callers_wait: OnceLock<()>,
}

impl LiveFileSystem {
    /// Opens the file system on a set that changes. Files that lost their last names before it
    /// was closed the last time wait for [`LiveFileSystem::drain_unlinked`].
    ///
    /// # Errors
    /// The set holds no file system of version 5, its byte order is not that of this machine, or
    /// its master node, the schema of its attributes or its root directory is damaged.
    pub fn open(
        objset: LiveObjset,
        engine: Arc<TxgEngine>,
        options: LiveOptions,
    ) -> Result<Arc<Self>, ZplError> {
        let master = MasterNode::read_from(&objset, options.reading.pool_version)?;
        if master.version < ZplVersion::SA {
            let version = master.version.number();
            return Err(ZplError::Version { objset: objset.id(), version });
        }
        let mut salts = Salts::new(options.seed);
        let schema = LiveSchema::open(&objset, &master, salts.next())?;
        let unlinked = UnlinkedSet::open(&objset, master.delete_queue)?;
        let reading = &options.reading;
        let this = Self {
            name_rules: NameRules::new(&master),
            streams: Streams::new(reading.read_ahead.clone(), reading.caches.streams.part()),
            quotas: Quotas::open(&objset)?,
            replay: Replay::default(),
            nodes: NodeTable::default(),
            unlinked: Mutex::new(unlinked),
            reclaimer: Arc::default(),
            renaming: Mutex::new(()),
            salts: Mutex::new(salts),
            log: OnceLock::new(),
            callers_wait: OnceLock::new(),
            objset,
            engine,
            options: RwLock::new(Arc::new(options)),
            master,
            schema,
        };
        let root = this.node(this.root())?;
        let state = root.state().read();
        state.node.require_directory()?;
        if state.object().bonus_order() != ByteOrder::NATIVE {
            let source = FormatError::invalid("dnode", "it has the byte order of another machine");
            return Err(state.node.corrupt(source));
        }
        drop(state);
        let this = Arc::new(this);
        let files = Arc::downgrade(&this);
        this.reclaimer.attach(move |object| Some(files.upgrade()?.reclaim_or_leave_rest(object)));
        Ok(this)
    }

    /// The object set.
    #[must_use]
    pub const fn objset(&self) -> &LiveObjset {
        &self.objset
    }

    /// What it was opened with, as it is at this moment.
    #[must_use]
    pub fn options(&self) -> Arc<LiveOptions> {
        Arc::clone(&self.options.read())
    }

    /// Changes what it was opened with; caches stay as they are.
    pub fn change_options(&self, change: impl FnOnce(&mut LiveOptions)) {
        let mut options = self.options.write();
        change(Arc::make_mut(&mut options));
    }

    /// Has operations that would wait until a suspended pool goes on, with files locked, end with
    /// [`ZplError::Suspended`] instead: their callers [wait](Self::wait_while_suspended), and try
    /// again. Nor do operations wait until they are durable: see
    /// [`LiveFileSystem::leaves_commits_to_callers`]. For good.
    pub fn leave_waiting_to_callers(&self) {
        let _ = self.callers_wait.set(());
    }

    /// Whether callers wait, not operations.
    pub(super) fn leaves_waiting_to_callers(&self) -> bool {
        self.callers_wait.get().is_some()
    }

    /// What becomes of operations that would wait until a suspended pool goes on.
    pub(super) fn patience(&self) -> Patience {
        match self.leaves_waiting_to_callers() {
            true => Patience::Leave,
            false => Patience::Wait,
        }
    }

    /// Waits while the pool is suspended, unless changes are refused meanwhile.
    pub fn wait_while_suspended(&self) {
        self.engine.wait_while_suspended();
    }

    /// Which access control lists users see.
    #[must_use]
    pub fn acl_type(&self) -> AclType {
        self.options().reading.acl_type
    }

    /// The master node.
    #[must_use]
    pub const fn master(&self) -> &MasterNode {
        &self.master
    }

    /// The root directory.
    #[must_use]
    pub const fn root(&self) -> ObjectId {
        self.master.root
    }

    /// Whether its root has the directory `.zfs`.
    #[must_use]
    pub fn has_control_directory(&self) -> bool {
        self.options().reading.snapshot_directory != SnapshotDirectory::Absent
    }

    pub(crate) fn place(&self, object: ObjectId) -> Place {
        Place { objset: self.objset.id(), object }
    }

    /// A random number for a new ZAP.
    pub(super) fn salt(&self) -> u64 {
        self.salts.lock().next()
    }

    /// Whether files have project ids.
    pub(super) fn keeps_projects(&self) -> bool {
        keeps_projects(&self.objset)
    }

    /// Reads a file's attributes.
    pub(super) fn open_state(&self, id: ObjectId) -> Result<NodeState, ZplError> {
        let object = self.objset.object(id)?;
        let znode = decode_znode(&object, &self.schema.read())?;
        Ok(NodeState::new(object, znode))
    }

    /// The file with this number, even if it has no name any more. Extended attributes are no
    /// files for this: they are behind the lock of the file that has them.
    pub(super) fn node(&self, id: ObjectId) -> Result<Arc<LiveNode>, ZplError> {
        let node = self.nodes.get_or_open(id, || {
            let state = self.open_state(id)?;
            if state.znode().flags.contains(FileFlags::XATTR) && !self.replay.is_on() {
                return Err(ZplError::NotFound { place: state.node.place() });
            }
            Ok(state)
        })?;
        if node.is_gone() {
            return Err(ZplError::NotFound { place: self.place(id) });
        }
        Ok(node)
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// No file has this number, or its attributes are damaged.
    pub fn attributes(&self, object: ObjectId) -> Result<Attributes, ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        let mut attributes = self.attributes_of(&state)?;
        let visible = self.options().reading.snapshot_directory == SnapshotDirectory::Visible;
        if object == self.root() && visible {
            // `.zfs` is a subdirectory.
            attributes.links = attributes.links.saturating_add(1);
        }
        Ok(attributes)
    }

    pub(super) fn attributes_of(&self, state: &NodeState) -> Result<Attributes, ZplError> {
        let mut attributes = state.node.attributes()?;
        attributes.atime = state.pending_atime.unwrap_or(attributes.atime);
        Ok(attributes)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The file is no symbolic link, or is damaged.
    pub fn read_link(&self, object: ObjectId) -> Result<Vec<u8>, ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        state.node.link_target(&self.schema.read())
    }

    /// The NFSv4 access control list of a file.
    ///
    /// # Errors
    /// The list is damaged; the file's mode can be used still.
    pub fn acl(&self, object: ObjectId) -> Result<Vec<Ace>, ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        state.node.acl(&self.schema.read())
    }

    /// What a name in a directory leads to, `.` and `..` included.
    ///
    /// # Errors
    /// There is no such entry, no entry can have this name, `directory` is none, or what the
    /// entry names cannot be opened.
    pub fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<Found, ZplError> {
        let node = self.node(directory)?;
        let state = node.state().read();
        state.node.require_directory()?;
        let found = match name {
            b"." => directory,
            b".." if directory == self.root() => directory,
            b".." => state.znode().parent,
            CONTROL_NAME if directory == self.root() && self.has_control_directory() => {
                return Ok(Found::Control);
            }
            _ => {
                let entry = self.entry(&state, name)?;
                entry.ok_or(ZplError::NotFound { place: state.node.place() })?.object
            }
        };
        drop(state);
        self.node(found).map_err(|source| dangling_at(self.place(directory), found, source))?;
        Ok(Found::Object(found))
    }

    /// Refuses names that no new entry can have.
    pub(super) fn check_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        let max = self.options.read().reading.max_name;
        self.name_rules.check(directory, name, max)
    }

    /// Refuses names that no entry can have; there may be long ones from when they were allowed.
    pub(super) fn check_known_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        self.name_rules.check(directory, name, MAX_LONG_NAME)
    }

    /// The entry with this name.
    pub(super) fn entry(
        &self,
        directory: &NodeState,
        name: &[u8],
    ) -> Result<Option<DirectoryEntry>, ZplError> {
        let place = directory.node.place();
        self.check_known_name(place, name)?;
        let value = self.name_rules.lookup(directory.names()?, name);
        let value = value.map_err(|source| directory.object().zap_failure(source))?;
        if value.is_none() {
            self.check_name(place, name)?;
        }
        Ok(value.map(DirectoryEntry::decode))
    }

    /// Hands the entries of a directory from a position on to `visit`, until it breaks off or
    /// there are no more. Every entry has the position after it, from which a later call goes on.
    /// The directory does not change meanwhile: `visit` must not call back.
    ///
    /// # Errors
    /// `directory` is none, or an entry cannot be read; those before it were visited.
    pub fn read_dir(
        &self,
        directory: ObjectId,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ZplError> {
        let node = self.node(directory)?;
        let state = node.state().read();
        state.node.require_directory()?;
        let is_root = directory == self.root();
        let parent = if is_root { directory } else { state.znode().parent };
        let visible = self.options().reading.snapshot_directory == SnapshotDirectory::Visible;
        let control = (is_root && visible).then(control_entry);
        for entry in dot_entries(directory, parent).into_iter().chain(control) {
            if from < entry.next && visit(entry).is_break() {
                return Ok(());
            }
        }
        for entry in state.names()?.entries_from(from.zap()) {
            let entry = entry.map_err(|source| state.object().zap_failure(source))?;
            let value = entry_value(state.node.place(), &entry)?;
            let kind = match value.kind {
                Some(kind) => kind,
                None => self.kind_of(directory, value.object)?,
            };
            let next = DirCookie::after(entry.next);
            let listed = DirEntry { name: entry.name(), object: value.object, kind, next };
            if visit(listed).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The kind of a file that its entry does not say, from the object: its directory is locked.
    fn kind_of(
        &self,
        directory: ObjectId,
        object: ObjectId,
    ) -> Result<rzfs_format::dirent::FileKind, ZplError> {
        let found = self.objset.object(object).map_err(ZplError::from);
        let znode = found.and_then(|object| decode_znode(&object, &self.schema.read()));
        match znode {
            Ok(znode) => Ok(znode.kind),
            Err(source) => Err(dangling_at(self.place(directory), object, source)),
        }
    }

    /// Space and object counts.
    ///
    /// # Errors
    /// The file or its project's quota cannot be read.
    pub fn statistics(&self, object: ObjectId) -> Result<Statistics, ZplError> {
        let node = self.node(object)?;
        let znode = node.state().read().znode().clone();
        let used = self.objset.synced().root().fill();
        let options = self.options();
        let reading = &options.reading;
        let mut statistics =
            Statistics::new(options.space.usage(), reading.record_size, used, reading.max_name);
        if let Some(project) = Statistics::quota_project(&znode) {
            statistics.apply_quota(&self.quotas.of_project(&self.objset, project)?);
        }
        Ok(statistics)
    }
}
