//! Objects: numbered arrays of blocks with a bonus.

use crate::tree::{Seek, Tree, TreeRead};
use crate::{Block, DmuError, Objset};
use bytes::Bytes;
use rzfs_cache::{AccessOutcome, ObjectShape};
use rzfs_format::dnode::Dnode;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, ObjectId};
use rzfs_zap::{Zap, ZapBlocks};
use std::ops::Range;
use std::sync::Arc;

/// Maximum bytes requested by one batch of reads.
const BATCH_BYTES: u64 = 16 << 20;

/// An object of an object set.
///
/// A handle: cheap to clone and share; its dnode is the one on disk when the handle was created.
#[derive(Clone, Debug)]
pub struct Object {
    objset: Objset,
    id: ObjectId,
    dnode: Arc<Dnode>,
}

impl Object {
    pub(crate) fn new(objset: Objset, id: ObjectId, dnode: Arc<Dnode>) -> Self {
        Self { objset, id, dnode }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The set it belongs to.
    #[must_use]
    pub fn objset(&self) -> &Objset {
        &self.objset
    }

    /// Its dnode.
    #[must_use]
    pub fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    pub(crate) fn shared_dnode(&self) -> Arc<Dnode> {
        Arc::clone(&self.dnode)
    }

    /// Its type.
    #[must_use]
    pub fn object_type(&self) -> ObjectType {
        self.dnode.object_type
    }

    /// The bonus, in byte order [`Object::order`]; empty when it is encrypted and the key is not
    /// loaded.
    #[must_use]
    pub fn bonus(&self) -> &[u8] {
        if self.objset.is_locked() && self.dnode.bonus_type.is_encrypted() {
            return &[];
        }
        &self.dnode.bonus
    }

    /// The byte order of the bonus.
    #[must_use]
    pub fn order(&self) -> ByteOrder {
        self.dnode.order
    }

    /// Size of a data block in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.dnode.data_block_size
    }

    pub(crate) fn tree(&self) -> Tree<'_> {
        Tree {
            pipeline: self.objset.pipeline(),
            key: self.objset.shared_key(),
            objset: self.objset.id(),
            object: self.id,
            dnode: &self.dnode,
            existence: Some(self.objset.existence()),
            owner: &self.objset,
        }
    }

    /// The error for an object of the wrong type.
    #[must_use]
    pub fn wrong_type(&self, wanted: &'static str) -> DmuError {
        DmuError::WrongType {
            objset: self.objset.id(),
            object: self.id,
            found: self.object_type().name(),
            wanted,
        }
    }

    /// The spill block.
    pub fn spill(&self) -> Result<Option<Block>, DmuError> {
        self.tree().spill()
    }

    /// The pointers to the blocks `range` of `level`, checked against the dnode. Blocks beyond the
    /// tree are holes.
    pub fn pointers(&self, level: u8, range: Range<u64>) -> Vec<Result<BlockPointer, DmuError>> {
        self.tree().pointers(level, range)
    }

    /// Reads a data block; holes and blocks beyond the end are zeros.
    pub fn read_block(&self, block: BlockId) -> Result<Block, DmuError> {
        let end = block.0.saturating_add(1);
        self.read_blocks(block.0..end).pop().unwrap_or_else(|| Ok(self.zeros()))
    }

    /// Reads data blocks together; the caller bounds the range.
    pub fn read_blocks(&self, range: Range<u64>) -> Vec<Result<Block, DmuError>> {
        self.begin_read(range).finish()
    }

    /// Begins to read data blocks together; the caller bounds the range.
    pub fn begin_read(&self, range: Range<u64>) -> ObjectRead<'_> {
        let tree = self.tree();
        let pointers = tree.pointers(0, range.clone());
        ObjectRead { object: self, read: tree.begin(0, range, pointers) }
    }

    /// Reads the missing ones of these blocks of `level` into the cache, with their parents; the
    /// caller bounds the range.
    pub fn prefetch(&self, level: u8, range: Range<u64>) {
        if level < self.dnode.levels {
            self.tree().prefetch(level, range);
        }
    }

    /// Its size and the shape of its tree, for prefetching.
    #[must_use]
    pub fn shape(&self) -> ObjectShape {
        ObjectShape {
            block_size: u64::from(self.dnode.data_block_size),
            blocks: self.dnode.max_block_id.0.saturating_add(1),
            indirect_shift: self.dnode.pointers_shift(),
        }
    }

    fn zeros(&self) -> Block {
        Block::zeros(self.dnode.data_block_size as usize)
    }

    /// Fills `buffer` with the bytes from `offset` on; holes and bytes beyond the last block read
    /// as zeros.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DmuError> {
        let extent = self.dnode.extent();
        let have = extent.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (within, beyond) = buffer.split_at_mut(have);
        beyond.fill(0);
        let block_size = u64::from(self.dnode.data_block_size);
        fill_from_blocks(block_size, offset, within, |blocks| Ok(self.read_blocks(blocks)))
    }

    /// The `len` bytes from `offset` on; without a copy when they lie in one block. The caller
    /// bounds `len`.
    pub fn read_bytes(&self, offset: u64, len: usize) -> Result<Bytes, DmuError> {
        let block_size = u64::from(self.dnode.data_block_size);
        let start = (offset % block_size) as usize;
        if len <= (block_size as usize).saturating_sub(start) {
            let block = self.read_block(BlockId(offset / block_size))?;
            if start + len <= block.data.len() {
                return Ok(block.data.slice(start..start + len));
            }
        }
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// The first byte at or after `offset` that is not in a hole; `None` up to the end of the
    /// object's last block.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.seek(Seek::Data, offset)
    }

    /// The first byte at or after `offset` that is in a hole; `None` when the data reaches to the
    /// end of the object's last block.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.seek(Seek::Hole, offset)
    }

    fn seek(&self, seek: Seek, offset: u64) -> Result<Option<u64>, DmuError> {
        let block_size = u64::from(self.dnode.data_block_size);
        let found = self.tree().seek(seek, offset / block_size).map_err(|damage| damage.error)?;
        Ok(found.map(|block| block.saturating_mul(block_size).max(offset)))
    }

    /// The ZAP in the object.
    pub fn zap(&self) -> Result<Zap<Self>, DmuError> {
        if !self.object_type().is_zap() {
            return Err(self.wrong_type("a ZAP"));
        }
        Zap::open(self.clone()).map_err(|source| self.zap_error(source))
    }

    /// Adds the location to an error of the object's ZAP.
    #[must_use]
    pub fn zap_error(&self, source: rzfs_zap::ZapError<DmuError>) -> DmuError {
        DmuError::Zap { objset: self.objset.id(), object: self.id, source: Box::new(source) }
    }
}

/// Data blocks of an object being read: their sources are known, but not waited for yet.
#[must_use = "others wait for its blocks"]
pub struct ObjectRead<'a> {
    object: &'a Object,
    read: TreeRead<'a>,
}

impl ObjectRead<'_> {
    /// How the blocks were found, for [`PrefetchStreams`](rzfs_cache::PrefetchStreams).
    #[must_use]
    pub fn outcome(&self) -> AccessOutcome {
        self.read.outcome()
    }

    /// Waits for the blocks; holes and blocks beyond the end are zeros.
    pub fn finish(self) -> Vec<Result<Block, DmuError>> {
        let blocks = self.read.finish().into_iter();
        let zeros = || self.object.zeros();
        blocks.map(|block| block.map(|block| block.unwrap_or_else(zeros))).collect()
    }
}

/// Fills `buffer` with the bytes from `offset` on, from blocks read in batches.
pub(crate) fn fill_from_blocks(
    block_size: u64,
    offset: u64,
    buffer: &mut [u8],
    read: impl Fn(Range<u64>) -> Result<Vec<Result<Block, DmuError>>, DmuError>,
) -> Result<(), DmuError> {
    let per_batch = (BATCH_BYTES / block_size).max(1);
    let (mut at, mut rest) = (offset, buffer);
    while !rest.is_empty() {
        let first = at / block_size;
        let end = (at + rest.len() as u64).div_ceil(block_size).min(first + per_batch);
        for block in read(first..end)? {
            let block = block?;
            let skipped = at % block_size;
            let len = ((block_size - skipped) as usize).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            let data = block.data.get(skipped as usize..).unwrap_or_default();
            let (read, missing) = now.split_at_mut(data.len().min(len));
            read.copy_from_slice(data.get(..read.len()).unwrap_or_default());
            missing.fill(0);
            rest = later;
            at += len as u64;
        }
    }
    Ok(())
}

impl ZapBlocks for Object {
    type Error = DmuError;

    fn block_size(&self) -> usize {
        self.dnode.data_block_size as usize
    }

    fn block_count(&self) -> Result<u64, DmuError> {
        Ok(self.dnode.max_block_id.0.saturating_add(1))
    }

    fn read_block(&self, block: BlockId) -> Result<(Bytes, ByteOrder), DmuError> {
        let block = Object::read_block(self, block)?;
        Ok((block.data, block.order))
    }
}
