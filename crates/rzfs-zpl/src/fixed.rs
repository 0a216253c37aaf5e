//! Files of a read-only set, with caches.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::master::MasterNode;
use crate::node::{Attributes, Node, decode_znode};
use crate::object::FileObject;
use crate::options::FileSystemOptions;
use crate::quota::{QuotaOwner, QuotaUnit, stored_quota, stored_usage};
use crate::schema;
use crate::source::Source;
use crate::sync::Arc;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::live::SpaceUse;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::Schema;
use rzfs_zap::Zap;

/// A read-only set of objects: a snapshot, or a pool not imported for writing.
#[derive(Debug)]
pub struct Fixed {
    pub(crate) objset: Objset,
    pub(crate) options: FileSystemOptions,
    pub(crate) schema: Arc<Schema>,
    nodes: ObjectCache<Arc<Node>>,
    directories: ObjectCache<Arc<Zap<Object>>>,
}

impl Fixed {
    pub(crate) fn open(
        objset: Objset,
        options: FileSystemOptions,
        master: &MasterNode,
    ) -> Result<Self, ZplError> {
        Ok(Self {
            schema: Arc::new(schema::read(&objset, master)?),
            nodes: options.caches.nodes.part(),
            directories: options.caches.directories.part(),
            objset,
            options,
        })
    }

    /// The file with this number, which must be linked.
    fn node(&self, id: ObjectId) -> Result<Arc<Node>, ZplError> {
        match self.nodes.get(id) {
            Some(node) => Ok(node),
            None => self.open_node(self.objset.object(id)?),
        }
    }

    fn open_node(&self, object: Object) -> Result<Arc<Node>, ZplError> {
        let (id, znode) = (object.id(), decode_znode(&object, &self.schema)?);
        if znode.links == 0 {
            return Err(ZplError::NotFound { place: object.place() });
        }
        let node = Arc::new(Node::new(object, znode));
        self.nodes.insert(id, Arc::clone(&node), node.weight());
        Ok(node)
    }

    pub(crate) fn forget(&self, id: ObjectId) {
        self.nodes.remove(id);
        self.directories.remove(id);
    }

    pub(crate) fn forget_all(&self) {
        self.nodes.clear();
        self.directories.clear();
    }
}

impl Source for Fixed {
    type Objset = Objset;
    type File = Arc<Node>;
    type Names<'a> = Arc<Zap<Object>>;

    fn objset(&self) -> &Objset {
        &self.objset
    }

    fn option<R>(&self, ask: impl FnOnce(&FileSystemOptions) -> R) -> R {
        ask(&self.options)
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn with_file<R>(
        &self,
        id: ObjectId,
        look: impl FnOnce(&Arc<Node>) -> Result<R, ZplError>,
    ) -> Result<R, ZplError> {
        look(&self.node(id)?)
    }

    fn kind(&self, id: ObjectId) -> Result<FileKind, ZplError> {
        Ok(self.node(id)?.znode().kind)
    }

    fn xattr_part(&self, id: ObjectId) -> Result<Arc<Node>, ZplError> {
        self.node(id)
    }

    fn names(&self, directory: &Arc<Node>) -> Result<Arc<Zap<Object>>, ZplError> {
        let id = directory.object().id();
        if let Some(zap) = self.directories.get(id) {
            return Ok(zap);
        }
        directory.require_directory()?;
        let zap = Arc::new(directory.object().zap()?);
        self.directories.insert(id, Arc::clone(&zap), zap.memory_bytes());
        Ok(zap)
    }

    fn attributes(&self, file: &Arc<Node>) -> Result<Attributes, ZplError> {
        file.attributes()
    }

    fn prefetch(&self, ids: &[ObjectId]) {
        let is_missing = |id: &ObjectId| self.nodes.get(*id).is_none();
        let missing: Vec<ObjectId> = ids.iter().copied().filter(is_missing).collect();
        for object in self.objset.objects_of(&missing) {
            // Errors are reported when the file is accessed.
            let _ = self.open_node(object);
        }
    }

    fn space(&self) -> SpaceUse {
        self.options.space
    }

    fn quota(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<Option<u64>, ZplError> {
        stored_quota(&self.objset, owner, unit, id)
    }

    fn usage(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<u64, ZplError> {
        stored_usage(&self.objset, owner, unit, id)
    }
}
