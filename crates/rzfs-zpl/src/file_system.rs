//! A file system on an object set.

use crate::cache::ObjectCache;
use crate::error::{Place, ZplError};
use crate::master::MasterNode;
use crate::name::NameRules;
use crate::node::{Attributes, Node};
use crate::options::{AclType, FileSystemOptions, SnapshotDirectory};
use crate::read_ahead::Streams;
use crate::schema;
use crate::sync::Arc;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::dataset::Dataset;
use rzfs_format::ObjectId;
use rzfs_format::acl::Ace;
use rzfs_format::sa::Schema;
use rzfs_zap::Zap;

/// A file system, live or a snapshot, for reading.
///
/// Files are addressed by object number, which is the inode number. All methods take `&self` and
/// may be called from any number of threads.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) objset: Objset,
    pub(crate) options: FileSystemOptions,
    pub(crate) master: MasterNode,
    pub(crate) schema: Schema,
    pub(crate) names: NameRules,
    pub(crate) streams: Streams,
    nodes: ObjectCache<Arc<Node>>,
    directories: ObjectCache<Arc<Zap<Object>>>,
}

impl FileSystem {
    /// Opens the file system on an object set.
    ///
    /// # Errors
    /// The set holds no file system, its key is not loaded, its version is not supported, or its
    /// master node, the schema of its attributes or its root directory is damaged.
    pub fn open(objset: Objset, options: FileSystemOptions) -> Result<Self, ZplError> {
        let master = MasterNode::read(&objset, options.pool_version)?;
        let schema = schema::read(&objset, &master)?;
        let file_system = Self {
            names: NameRules::new(&master),
            streams: Streams::new(options.read_ahead.clone(), options.caches.streams.part()),
            nodes: options.caches.nodes.part(),
            directories: options.caches.directories.part(),
            objset,
            options,
            master,
            schema,
        };
        file_system.node(file_system.master.root)?.require_directory()?;
        Ok(file_system)
    }

    /// Opens the file system of a dataset in a pool of version `pool_version`, with the options
    /// that its properties ask for.
    ///
    /// # Errors
    /// As [`FileSystem::open`], or the dataset cannot be read.
    pub fn of_dataset(dataset: &Dataset, pool_version: u64) -> Result<Self, ZplError> {
        let options = FileSystemOptions::of_dataset(dataset, pool_version)?;
        Self::open(dataset.open_objset()?, options)
    }

    /// The object set.
    #[must_use]
    pub fn objset(&self) -> &Objset {
        &self.objset
    }

    /// What it was opened with.
    #[must_use]
    pub fn options(&self) -> &FileSystemOptions {
        &self.options
    }

    /// Which access control lists users see.
    #[must_use]
    pub const fn acl_type(&self) -> AclType {
        self.options.acl_type
    }

    /// The master node.
    #[must_use]
    pub fn master(&self) -> &MasterNode {
        &self.master
    }

    /// The registry and the layouts of its system attributes.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.master.root
    }

    /// Whether its root has the directory `.zfs`.
    #[must_use]
    pub fn has_control_directory(&self) -> bool {
        self.options.snapshot_directory != SnapshotDirectory::Absent
    }

    pub(crate) fn place(&self, object: ObjectId) -> Place {
        Place { objset: self.objset.id(), object }
    }

    /// The file with this object number.
    pub(crate) fn node(&self, object: ObjectId) -> Result<Arc<Node>, ZplError> {
        if let Some(node) = self.nodes.get(object) {
            return Ok(node);
        }
        self.open_node(self.objset.object(object)?)
    }

    fn open_node(&self, object: Object) -> Result<Arc<Node>, ZplError> {
        let node = Arc::new(Node::open(object, &self.schema)?);
        self.nodes.insert(node.id(), Arc::clone(&node), node.weight());
        Ok(node)
    }

    /// The ZAP of a directory.
    pub(crate) fn directory_zap(&self, node: &Node) -> Result<Arc<Zap<Object>>, ZplError> {
        if let Some(zap) = self.directories.get(node.id()) {
            return Ok(zap);
        }
        node.require_directory()?;
        let zap = Arc::new(node.object().zap()?);
        self.directories.insert(node.id(), Arc::clone(&zap), zap.memory_bytes());
        Ok(zap)
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// No file has this number, or its attributes are damaged.
    pub fn attributes(&self, object: ObjectId) -> Result<Attributes, ZplError> {
        let mut attributes = self.node(object)?.attributes()?;
        let visible = self.options.snapshot_directory == SnapshotDirectory::Visible;
        if object == self.root() && visible {
            // `.zfs` is a subdirectory.
            attributes.links = attributes.links.saturating_add(1);
        }
        Ok(attributes)
    }

    /// Reads what [`FileSystem::attributes`] of these files will need, all at once. Files that
    /// cannot be read are left to the call that asks for them.
    pub fn prefetch_attributes(&self, objects: &[ObjectId]) {
        let missing: Vec<ObjectId> =
            objects.iter().copied().filter(|object| self.nodes.get(*object).is_none()).collect();
        for object in self.objset.objects_of(&missing) {
            // Whoever asks for a damaged file gets the error then.
            let _ = self.open_node(object);
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The file is no symbolic link, or is damaged.
    pub fn read_link(&self, object: ObjectId) -> Result<Vec<u8>, ZplError> {
        self.node(object)?.link_target(&self.schema)
    }

    /// The NFSv4 access control list of a file.
    ///
    /// # Errors
    /// The list is damaged; the file's mode can be used still.
    pub fn acl(&self, object: ObjectId) -> Result<Vec<Ace>, ZplError> {
        self.node(object)?.acl(&self.schema)
    }

    /// Forgets what is cached about a file: it has changed.
    pub fn forget(&self, object: ObjectId) {
        self.nodes.remove(object);
        self.directories.remove(object);
        self.streams.forget(object);
    }

    /// Forgets everything that is cached.
    pub fn forget_all(&self) {
        self.nodes.clear();
        self.directories.clear();
        self.streams.forget_all();
    }
}
