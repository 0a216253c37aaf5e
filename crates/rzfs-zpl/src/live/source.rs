//! Files of a live set.

use super::directory::OpenNames;
use super::node::{LiveNode, NodeState, NodeTable};
use super::options::LiveOptions;
use super::quotas::Quotas;
use super::replay::state::Replay;
use super::schema::LiveSchema;
use crate::error::{Place, ZplError};
use crate::master::MasterNode;
use crate::node::{Attributes, decode_znode};
use crate::options::FileSystemOptions;
use crate::quota::{QuotaOwner, QuotaUnit};
use crate::source::Source;
use crate::sync::{Arc, RwLock};
use rzfs_dmu::live::{LiveObject, LiveObjset};
use rzfs_dsl::live::SpaceUse;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::Schema;
use rzfs_format::znode::FileFlags;
use rzfs_zap::Zap;

/// A live set of objects. Readers of a file keep others from changing it.
#[derive(Debug)]
pub struct Live {
    pub(super) objset: LiveObjset,
    pub(super) options: RwLock<Arc<LiveOptions>>,
    pub(super) schema: LiveSchema,
    pub(super) nodes: NodeTable,
    /// Directories whose names are kept open.
    pub(super) open_names: Arc<OpenNames>,
    pub(super) quotas: Quotas,
    pub(super) replay: Replay,
}

impl Live {
    pub(super) fn open(
        objset: LiveObjset,
        options: LiveOptions,
        master: &MasterNode,
        salt: u64,
    ) -> Result<Self, ZplError> {
        Ok(Self {
            schema: LiveSchema::open(&objset, master, salt)?,
            nodes: NodeTable::default(),
            open_names: Arc::new(options.reading.caches.live_directories.part()),
            quotas: Quotas::open(&objset)?,
            replay: Replay::default(),
            options: RwLock::new(Arc::new(options)),
            objset,
        })
    }

    /// The file with this number, even if it is unlinked. Files of extended attributes are not
    /// included: they are protected by the lock of their owner.
    pub(super) fn node(&self, id: ObjectId) -> Result<Arc<LiveNode>, ZplError> {
        // Files are cached longer than they exist in a superseded set.
        self.objset.require_current()?;
        let node = self.nodes.get_or_open(id, || self.file_state(self.objset.object(id)?))?;
        if node.is_gone() {
            let place = Place { objset: self.objset.id(), object: id };
            return Err(ZplError::NotFound { place });
        }
        Ok(node)
    }

    fn file_state(&self, object: LiveObject) -> Result<NodeState, ZplError> {
        let state = self.state_of(object)?;
        if state.znode().flags.contains(FileFlags::XATTR) && !self.replay.is_on() {
            return Err(ZplError::NotFound { place: state.place() });
        }
        Ok(state)
    }

    /// Reads a file's attributes.
    pub(super) fn state_of(&self, object: LiveObject) -> Result<NodeState, ZplError> {
        let znode = decode_znode(&object, &self.schema.read())?;
        Ok(NodeState::new(object, znode, &self.open_names))
    }
}

impl Source for Live {
    type Objset = LiveObjset;
    type File = NodeState;
    type Names<'a> = Arc<Zap<LiveObject>>;

    fn objset(&self) -> &LiveObjset {
        &self.objset
    }

    fn option<R>(&self, ask: impl FnOnce(&FileSystemOptions) -> R) -> R {
        ask(&self.options.read().reading)
    }

    fn schema(&self) -> Arc<Schema> {
        self.schema.read()
    }

    fn with_file<R>(
        &self,
        id: ObjectId,
        look: impl FnOnce(&NodeState) -> Result<R, ZplError>,
    ) -> Result<R, ZplError> {
        let node = self.node(id)?;
        let state = node.state().read();
        look(&state)
    }

    fn kind(&self, id: ObjectId) -> Result<FileKind, ZplError> {
        Ok(self.node(id)?.kind())
    }

    fn xattr_part(&self, id: ObjectId) -> Result<NodeState, ZplError> {
        self.state_of(self.objset.object(id)?)
    }

    fn names(&self, directory: &NodeState) -> Result<Arc<Zap<LiveObject>>, ZplError> {
        directory.names()
    }

    fn attributes(&self, file: &NodeState) -> Result<Attributes, ZplError> {
        file.attributes()
    }

    fn prefetch(&self, ids: &[ObjectId]) {
        let is_missing = |id: &ObjectId| !self.nodes.contains(*id);
        let missing: Vec<ObjectId> = ids.iter().copied().filter(is_missing).collect();
        for object in self.objset.objects_of(&missing) {
            // Errors are reported when the file is accessed.
            let _ = self.nodes.get_or_open(object.id(), || self.file_state(object.clone()));
        }
    }

    fn space(&self) -> SpaceUse {
        let space = Arc::clone(&self.options.read().space);
        space.usage()
    }

    fn quota(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<Option<u64>, ZplError> {
        self.quotas.limit(owner, unit, id)
    }

    fn usage(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<u64, ZplError> {
        self.quotas.used(&self.objset, owner, unit, id)
    }
}
