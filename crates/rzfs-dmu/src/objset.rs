//! Object sets: numbered collections of objects (spec 03, sections 1 and 2.2).

mod changes;
mod holding;
mod objects;

pub use changes::ObjsetChanges;

use crate::in_force::InForce;
use crate::tree::{Seek, Tree, Visited};
use crate::{Block, BlockError, BlockPipeline, BlockRequest, DmuError, Existence, Traversal};
use bytes::Bytes;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::{self, Dnode, SLOT_SIZE};
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::units::Bookmark;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, FormatError, ObjectId, ObjsetId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Dnode blocks read together by an iteration.
const BLOCKS_AHEAD: u64 = 32;

/// An object set.
///
/// A handle: cheap to clone and share.
#[derive(Clone, Debug)]
pub struct Objset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pipeline: Arc<BlockPipeline>,
    id: ObjsetId,
    root: BlockPointer,
    block: ObjsetBlock,
    key: Option<Arc<DatasetKey>>,
    existence: Existence,
    /// Whether a sync has replaced it, so that the space of what only this one has may be reused.
    is_replaced: AtomicBool,
}

impl InForce for Objset {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        !self.is_replaced() && !self.inner.existence.has_ended()
    }
}

/// An object found by an iteration.
#[derive(Debug)]
pub struct DnodeEntry {
    /// Its number.
    pub id: ObjectId,
    /// Its dnode.
    pub dnode: Dnode,
}

impl Objset {
    /// Opens the object set whose root block `root` points to.
    ///
    /// Without the key of an encrypted set its dnodes are readable, as are objects of unencrypted
    /// types; the MACs are then not verified.
    pub fn open(
        pipeline: &Arc<BlockPipeline>,
        id: ObjsetId,
        root: &BlockPointer,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<Self, DmuError> {
        Self::open_while(pipeline, id, root, key, Existence::default())
    }

    /// The same for a set that may be destroyed: after that it is not read.
    pub fn open_while(
        pipeline: &Arc<BlockPipeline>,
        id: ObjsetId,
        root: &BlockPointer,
        key: Option<Arc<DatasetKey>>,
        existence: Existence,
    ) -> Result<Self, DmuError> {
        let bookmark = Bookmark::root(id);
        let corrupt = |source| DmuError::Corrupt { bookmark, source };
        if root.is_hole() {
            return Err(corrupt(FormatError::invalid("objset", "the root pointer is a hole")));
        }
        let request = BlockRequest { pointer: root, bookmark, key: key.as_ref() };
        let Block { data, order } =
            pipeline.read(request).map_err(|source| DmuError::Block { bookmark, source })?;
        let block = ObjsetBlock::decode(&data, order).map_err(corrupt)?;
        let pipeline = Arc::clone(pipeline);
        Ok(Self::new(Inner {
            pipeline,
            id,
            root: *root,
            block,
            key,
            existence,
            is_replaced: AtomicBool::new(false),
        }))
    }

    /// An object set that is not on disk.
    pub(crate) fn unwritten(
        pipeline: &Arc<BlockPipeline>,
        id: ObjsetId,
        block: ObjsetBlock,
        key: Option<Arc<DatasetKey>>,
    ) -> Self {
        let pipeline = Arc::clone(pipeline);
        let (root, existence) = (BlockPointer::HOLE, Existence::default());
        let is_replaced = AtomicBool::new(false);
        Self::new(Inner { pipeline, id, root, block, key, existence, is_replaced })
    }

    /// The set after its root block has been written.
    pub(crate) fn rewritten(&self, root: BlockPointer, block: ObjsetBlock) -> Self {
        let Inner { pipeline, id, key, existence, .. } = &*self.inner;
        let (pipeline, id, key) = (Arc::clone(pipeline), *id, key.clone());
        let (existence, is_replaced) = (existence.clone(), AtomicBool::new(false));
        Self::new(Inner { pipeline, id, root, block, key, existence, is_replaced })
    }

    fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The current set, for holders that keep its blocks from being reused, even if it is replaced.
    #[must_use]
    pub fn kept(&self) -> Self {
        self.rewritten(self.inner.root, self.inner.block.clone())
    }

    /// Marks it as replaced on disk.
    pub(crate) fn set_replaced(&self) {
        self.inner.is_replaced.store(true, Ordering::Release);
    }

    /// Whether it was replaced on disk.
    pub(crate) fn is_replaced(&self) -> bool {
        self.inner.is_replaced.load(Ordering::Acquire)
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ObjsetId {
        self.inner.id
    }

    /// The pointer to its root block.
    #[must_use]
    pub fn root(&self) -> &BlockPointer {
        &self.inner.root
    }

    /// Its root block.
    #[must_use]
    pub fn block(&self) -> &ObjsetBlock {
        &self.inner.block
    }

    /// The header of its intent log (spec 05, section 10.1).
    ///
    /// # Errors
    /// It is damaged.
    pub fn log_header(&self) -> Result<ZilHeader, DmuError> {
        let block = &self.inner.block;
        let corrupt = |source| DmuError::Corrupt { bookmark: Bookmark::root(self.id()), source };
        ZilHeader::decode(&block.zil_header, block.order).map_err(corrupt)
    }

    /// The type of its contents.
    #[must_use]
    pub fn objset_type(&self) -> ObjsetType {
        self.inner.block.objset_type
    }

    /// The pipeline that reads its blocks.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.inner.pipeline
    }

    /// Whether it is encrypted and the key is not loaded.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inner.key.is_none() && self.inner.root.has_crypt_bit()
    }

    /// Whether it was destroyed after it was opened.
    #[must_use]
    pub fn is_destroyed(&self) -> bool {
        self.inner.existence.has_ended()
    }

    /// Fails when it was destroyed after it was opened.
    ///
    /// # Errors
    /// [`DmuError::Superseded`].
    pub fn require_current(&self) -> Result<(), DmuError> {
        if self.is_destroyed() {
            return Err(DmuError::Superseded { objset: self.id() });
        }
        Ok(())
    }

    pub(crate) fn existence(&self) -> &Existence {
        &self.inner.existence
    }

    /// Its key, when it is encrypted and the key is loaded.
    #[must_use]
    pub fn key(&self) -> Option<&DatasetKey> {
        self.inner.key.as_deref()
    }

    pub(crate) fn shared_key(&self) -> Option<&Arc<DatasetKey>> {
        self.inner.key.as_ref()
    }

    /// A walk over all of its block pointers, parents first, starting at its [root](Self::root).
    #[must_use]
    pub fn traversal(&self) -> Traversal<'_> {
        let Inner { pipeline, id, key, .. } = &*self.inner;
        Traversal::parents_first(pipeline, *id).with_key(key.as_ref())
    }

    /// Reads blocks of this set, bypassing the cache: cached blocks are used, but none are added.
    /// Results are in the order of the blocks.
    pub fn read_past_cache(
        &self,
        blocks: &[(BlockPointer, Bookmark)],
    ) -> Vec<Result<Block, DmuError>> {
        let key = self.inner.key.as_ref();
        let requests: Vec<BlockRequest<'_>> = blocks
            .iter()
            .map(|(pointer, bookmark)| BlockRequest { pointer, bookmark: *bookmark, key })
            .collect();
        let read = self.inner.pipeline.read_past_cache(&requests, self);
        let result = |(read, (_, bookmark)): (Result<_, BlockError>, &(_, Bookmark))| {
            read.map_err(|source| self.block_error(*bookmark, source))
        };
        read.into_iter().zip(blocks).map(result).collect()
    }

    /// Reads stored blocks of this set, compressed and encrypted, bypassing the cache.
    pub fn read_stored(&self, blocks: &[(BlockPointer, Bookmark)]) -> Vec<Result<Bytes, DmuError>> {
        let pointers: Vec<&BlockPointer> = blocks.iter().map(|(pointer, _)| pointer).collect();
        let read = self.inner.pipeline.read_while(&pointers, self);
        let result = |(read, (_, bookmark)): (Result<_, BlockError>, &(_, Bookmark))| {
            read.map_err(|source| self.block_error(*bookmark, source))
        };
        read.into_iter().zip(blocks).map(result).collect()
    }

    /// The error for an unreadable block: blocks of a destroyed set may have been reused.
    fn block_error(&self, bookmark: Bookmark, source: BlockError) -> DmuError {
        self.require_current().err().unwrap_or(DmuError::Block { bookmark, source })
    }

    fn meta_tree(&self) -> Option<Tree<'_>> {
        Some(Tree {
            pipeline: &self.inner.pipeline,
            key: self.inner.key.as_ref(),
            objset: self.inner.id,
            object: ObjectId::META_DNODE,
            dnode: self.inner.block.meta_dnode.as_ref()?,
            existence: Some(&self.inner.existence),
            owner: self,
        })
    }

    fn read_dnode(&self, id: ObjectId) -> Result<Option<Dnode>, DmuError> {
        if id.0 == 0 || id >= ObjectId::END {
            return Err(DmuError::InvalidObject { object: id });
        }
        let Some(tree) = self.meta_tree() else { return Ok(None) };
        let block = id.0 / slots_of(&tree);
        let pointers = tree.pointers(0, block..block + 1);
        match tree.read(0, block, pointers).pop().transpose()?.flatten() {
            Some(block) => self.dnode_in(&block, id),
            None => Ok(None),
        }
    }

    /// The dnode of an object in its dnode block.
    fn dnode_in(&self, block: &Block, id: ObjectId) -> Result<Option<Dnode>, DmuError> {
        let slot = (id.0 % (block.data.len() / SLOT_SIZE).max(1) as u64) as usize;
        if !dnode::starts_at(&block.data, slot) {
            return Err(DmuError::InteriorSlot { objset: self.inner.id, object: id });
        }
        let bytes = block.data.get(slot * SLOT_SIZE..).unwrap_or_default();
        Dnode::decode(bytes, block.order).map_err(|source| self.dnode_error(id, source))
    }

    fn dnode_error(&self, object: ObjectId, source: FormatError) -> DmuError {
        DmuError::Dnode { objset: self.inner.id, object, source }
    }

    /// All objects from `first` on, in numeric order. Unreadable ones yield an error in their
    /// place, and the iteration continues.
    pub fn objects_from(
        &self,
        first: ObjectId,
    ) -> impl Iterator<Item = Result<DnodeEntry, DmuError>> + use<> {
        Dnodes::new(self.clone(), first)
    }

    /// All objects, in numeric order; see [`Objset::objects_from`].
    pub fn objects(&self) -> impl Iterator<Item = Result<DnodeEntry, DmuError>> + use<> {
        self.objects_from(ObjectId(1))
    }
}

/// Dnode slots per block of the meta-dnode.
fn slots_of(tree: &Tree<'_>) -> u64 {
    (u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64).max(1)
}

/// An iteration over the dnodes of an object set.
struct Dnodes {
    objset: Objset,
    first: ObjectId,
    next_block: Option<u64>,
    visited: Visited,
    found: VecDeque<Result<DnodeEntry, DmuError>>,
}

impl Dnodes {
    fn new(objset: Objset, first: ObjectId) -> Self {
        let next_block = objset.meta_tree().map(|tree| {
            first.0.saturating_mul(SLOT_SIZE as u64) / u64::from(tree.dnode.data_block_size)
        });
        Self { objset, first, next_block, visited: Visited::default(), found: VecDeque::new() }
    }

    /// Reads the next dnode blocks that are not holes.
    fn advance(&mut self) {
        let Some(from) = self.next_block.take() else { return };
        let objset = self.objset.clone();
        let Some(tree) = objset.meta_tree() else { return };
        let start = match tree.seek_on(Seek::Data, from, &mut self.visited) {
            Ok(None) => return,
            Ok(Some(start)) => start,
            Err(damage) => {
                self.found.push_back(Err(damage.error));
                self.next_block = Some(damage.end);
                return;
            }
        };
        let end =
            start.saturating_add(BLOCKS_AHEAD).min(tree.dnode.max_block_id.0.saturating_add(1));
        let pointers = tree.pointers(0, start..end);
        for (block, contents) in (start..end).zip(tree.read(0, start, pointers)) {
            match contents {
                Ok(None) => {}
                Ok(Some(contents)) => self.collect(&tree, block, &contents),
                Err(error) => self.found.push_back(Err(error)),
            }
        }
        self.next_block = Some(end);
    }

    fn collect(&mut self, tree: &Tree<'_>, block: u64, contents: &Block) {
        let slots = u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64;
        for (slot, dnode) in dnode::slots(&contents.data, contents.order) {
            let id = ObjectId(block * slots + slot as u64);
            if id < self.first {
                continue;
            }
            match dnode {
                Ok(None) => {}
                Ok(Some(dnode)) => self.found.push_back(Ok(DnodeEntry { id, dnode })),
                Err(source) => self.found.push_back(Err(self.objset.dnode_error(id, source))),
            }
        }
    }
}

impl Iterator for Dnodes {
    type Item = Result<DnodeEntry, DmuError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() && self.next_block.is_some() {
            self.advance();
        }
        self.found.pop_front()
    }
}
