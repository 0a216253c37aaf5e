//! A file system, for reading.

use crate::error::{Place, ZplError};
use crate::fixed::Fixed;
use crate::master::MasterNode;
use crate::name::NameRules;
use crate::node::Attributes;
use crate::options::{AclType, FileSystemOptions, SnapshotDirectory};
use crate::read_ahead::Streams;
use crate::source::Source;
use crate::sync::Arc;
use rzfs_dmu::{ObjectSource, Objset};
use rzfs_dsl::dataset::{Dataset, ObjsetCounters, ObjsetStats};
use rzfs_format::ObjectId;
use rzfs_format::acl::Ace;
use rzfs_format::sa::Schema;

/// A file system, for reading: a [read-only](Fixed) one, or the current state of a
/// [live](crate::live::LiveFileSystem) one.
///
/// Files are addressed by object number, which is the inode number. All methods take `&self` and
/// may be called from any number of threads.
#[derive(Debug)]
pub struct FileSystem<S: Source = Fixed> {
    pub(crate) source: S,
    pub(crate) master: MasterNode,
    pub(crate) name_rules: NameRules,
    pub(crate) streams: Streams,
    pub(crate) counters: Arc<ObjsetCounters>,
}

impl FileSystem {
    /// Opens the file system on an object set.
    ///
    /// # Errors
    /// The set is not a file system, its key is not loaded, its version is not supported, or its
    /// master node, attribute schema or root directory is damaged.
    pub fn open(objset: Objset, options: FileSystemOptions) -> Result<Self, ZplError> {
        let master = MasterNode::read(&objset, options.pool_version)?;
        let this = Self::new(Fixed::open(objset, options, &master)?, master);
        this.source.with_file(this.root(), |root| root.require_directory())?;
        Ok(this)
    }

    /// Opens the file system of a dataset in a pool of version `pool_version`, with options from
    /// its properties.
    ///
    /// # Errors
    /// As [`FileSystem::open`], or the dataset cannot be read.
    pub fn of_dataset(dataset: &Dataset, pool_version: u64) -> Result<Self, ZplError> {
        dataset.require_consistent()?;
        let options = FileSystemOptions::of_dataset(dataset, pool_version)?;
        Self::open(dataset.open_objset()?, options)
    }

    /// The options it was opened with.
    #[must_use]
    pub const fn options(&self) -> &FileSystemOptions {
        &self.source.options
    }

    /// The registry and the layouts of its system attributes.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.source.schema
    }

    /// Drops a changed file from the caches.
    pub fn forget(&self, object: ObjectId) {
        self.source.forget(object);
        self.streams.forget(object);
    }

    /// Clears the caches.
    pub fn forget_all(&self) {
        self.source.forget_all();
        self.streams.forget_all();
    }
}

impl<S: Source> FileSystem<S> {
    pub(crate) fn new(source: S, master: MasterNode) -> Self {
        let streams = source.option(|options| {
            Streams::new(options.read_ahead.clone(), options.caches.streams.part())
        });
        let counters = source.option(|options| Arc::clone(&options.counters));
        Self { name_rules: NameRules::new(&master), streams, counters, source, master }
    }

    /// The object set.
    #[must_use]
    pub fn objset(&self) -> &S::Objset {
        self.source.objset()
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> ObjsetStats {
        self.counters.read()
    }

    /// The access control lists visible to users.
    #[must_use]
    pub fn acl_type(&self) -> AclType {
        self.source.option(|options| options.acl_type)
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
        self.snapshot_directory() != SnapshotDirectory::Absent
    }

    /// Whether `.zfs` in this directory names the control directory.
    pub(crate) fn has_control_in(&self, directory: ObjectId) -> bool {
        directory == self.root() && self.has_control_directory()
    }

    pub(crate) fn snapshot_directory(&self) -> SnapshotDirectory {
        self.source.option(|options| options.snapshot_directory)
    }

    pub(crate) fn place(&self, object: ObjectId) -> Place {
        Place { objset: self.source.objset().id(), object }
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// The number is not that of a file, or its attributes are damaged.
    pub fn attributes(&self, object: ObjectId) -> Result<Attributes, ZplError> {
        let attributes = self.source.with_file(object, |file| self.source.attributes(file));
        let mut attributes = attributes?;
        if object == self.root() && self.snapshot_directory() == SnapshotDirectory::Visible {
            // `.zfs` is a subdirectory.
            attributes.links = attributes.links.saturating_add(1);
        }
        Ok(attributes)
    }

    /// Reads what [`FileSystem::attributes`] of these files needs, all at once. Errors are left to
    /// later calls.
    pub fn prefetch_attributes(&self, objects: &[ObjectId]) {
        self.source.prefetch(objects);
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The file is not a symbolic link, or is damaged.
    pub fn read_link(&self, object: ObjectId) -> Result<Vec<u8>, ZplError> {
        self.source.with_file(object, |file| file.link_target(&self.source.schema()))
    }

    /// The NFSv4 access control list of a file.
    ///
    /// # Errors
    /// The list is damaged; the file's mode remains usable.
    pub fn acl(&self, object: ObjectId) -> Result<Vec<Ace>, ZplError> {
        self.source.with_file(object, |file| file.acl(&self.source.schema()))
    }
}
