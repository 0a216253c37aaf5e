//! The block pipeline: from a block pointer to the block's contents.
//!
//! It is the one place where pointers are followed. A batch goes through these steps, each for
//! the whole batch before the next:
//!
//! 1. holes and embedded data need no device;
//! 2. what the cache has is taken from it;
//! 3. the first copies of the rest are read together; the vdev layer repairs what redundancy can
//!    repair, with the block's checksum as the judge;
//! 4. blocks whose copy is lost go on with their next copy;
//! 5. each block is decrypted and decompressed, and enters the cache.

use crate::gang::GangReader;
use crate::{Block, BlockError};
use bytes::Bytes;
use rzfs_cache::{AdaptiveCache, BlockKey, BlockKind};
use rzfs_codec::checksum::{self, Salt};
use rzfs_codec::compress;
use rzfs_codec::crypto::{self, DatasetKey};
use rzfs_format::block_pointer::{PointerKind, Protection};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::{Bookmark, SECTOR_SIZE};
use rzfs_format::{BlockPointer, Dva, VdevId};
use rzfs_vdev::{BlockRead, VdevTree};
use std::fmt;
use std::sync::Arc;

/// Changes blocks after they were verified and decoded, before anyone sees them: how tests find
/// out what a damaged structure with a right checksum does to everything above.
pub trait BlockInjector: Send + Sync {
    /// The contents to use instead of `block`; of the same length.
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes;
}

/// What a pipeline needs to know about its pool.
#[derive(Clone)]
pub struct PipelineOptions {
    /// The salt of keyed checksums.
    pub salt: Salt,
    /// Whether gang headers can be larger than a sector (feature `dynamic_gang_header`).
    pub dynamic_gang_headers: bool,
    /// Most bytes of block contents to keep in memory (`zfs_arc_max`).
    pub arc_max: u64,
    /// Fault injection for tests.
    pub injector: Option<Arc<dyn BlockInjector>>,
}

/// A block to read.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest<'a> {
    /// Where it is.
    pub pointer: &'a BlockPointer,
    /// What it is.
    pub bookmark: Bookmark,
    /// The key of its objset; `None` if the objset is not encrypted or the key not loaded.
    ///
    /// Without the key an encrypted block is an error, but for a block of dnodes: its dnodes are
    /// readable, only those of their bonuses that are encrypted stay ciphertext.
    pub key: Option<&'a DatasetKey>,
}

impl BlockRequest<'_> {
    /// Whether the block is encrypted and the key not at hand.
    fn is_locked(&self) -> bool {
        self.key.is_none() && self.pointer.protection() == Protection::Encrypted
    }
}

fn is_dnode_block(bp: &BlockPointer) -> bool {
    bp.object_type_number() == ObjectType::DNODE.number()
}

/// Reads blocks of one pool.
pub struct BlockPipeline {
    vdevs: Arc<VdevTree>,
    cache: AdaptiveCache<Block>,
    salt: Salt,
    dynamic_gang_headers: bool,
    injector: Option<Arc<dyn BlockInjector>>,
}

impl fmt::Debug for BlockPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPipeline").field("vdevs", &self.vdevs).finish_non_exhaustive()
    }
}

impl BlockPipeline {
    /// A pipeline over the vdevs of a pool.
    #[must_use]
    pub fn new(vdevs: Arc<VdevTree>, options: PipelineOptions) -> Arc<Self> {
        Arc::new(Self {
            vdevs,
            cache: AdaptiveCache::new(options.arc_max),
            salt: options.salt,
            dynamic_gang_headers: options.dynamic_gang_headers,
            injector: options.injector,
        })
    }

    /// The vdevs below.
    #[must_use]
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.vdevs
    }

    /// The cache of block contents.
    #[must_use]
    pub fn cache(&self) -> &AdaptiveCache<Block> {
        &self.cache
    }

    /// The salt of keyed checksums.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    pub(crate) fn dynamic_gang_headers(&self) -> bool {
        self.dynamic_gang_headers
    }

    /// Reads one block.
    pub fn read(&self, request: BlockRequest<'_>) -> Result<Block, BlockError> {
        self.read_many(&[request]).pop().unwrap_or(Err(BlockError::NoCopy))
    }

    /// Reads blocks; the results are in the order of the requests.
    pub fn read_many(&self, requests: &[BlockRequest<'_>]) -> Vec<Result<Block, BlockError>> {
        let mut results: Vec<Option<Result<Block, BlockError>>> =
            Vec::with_capacity(requests.len());
        let mut missing = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let found = self.without_device(request).transpose();
            if found.is_none() {
                missing.push(index);
            }
            results.push(found);
        }
        let wanted: Vec<&BlockPointer> =
            missing.iter().filter_map(|&index| Some(requests.get(index)?.pointer)).collect();
        for (&index, stored) in missing.iter().zip(self.read_stored(&wanted)) {
            if let (Some(slot), Some(request)) = (results.get_mut(index), requests.get(index)) {
                *slot = Some(stored.and_then(|stored| self.finish(request, stored)));
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(BlockError::NoCopy))).collect()
    }

    /// Reads blocks as they are stored, compressed and encrypted, bypassing the cache. Checksums
    /// are verified.
    pub fn read_stored(&self, pointers: &[&BlockPointer]) -> Vec<Result<Bytes, BlockError>> {
        let mut results: Vec<Result<Bytes, BlockError>> =
            pointers.iter().map(|_| Err(BlockError::NoCopy)).collect();
        let mut copies: Vec<Vec<Dva>> = pointers.iter().map(|bp| self.copies(bp)).collect();
        let verifiers: Vec<_> = pointers
            .iter()
            .map(|bp| move |data: &[u8]| checksum::verify(bp, data, &self.salt).is_ok())
            .collect();
        for (slot, bp) in results.iter_mut().zip(pointers) {
            if bp.is_gang() {
                *slot = GangReader::new(self).read(bp);
            }
        }
        loop {
            let mut batch = Vec::new();
            let mut indices = Vec::new();
            for (index, (bp, verify)) in pointers.iter().zip(&verifiers).enumerate() {
                let failed = results.get(index).is_some_and(Result::is_err);
                let Some(copies) = copies.get_mut(index).filter(|_| failed && !bp.is_gang()) else {
                    continue;
                };
                if let Some(dva) = copies.pop() {
                    indices.push(index);
                    batch.push(BlockRead {
                        dva,
                        size: bp.physical_size(),
                        birth: bp.physical_birth(),
                        verify,
                    });
                }
            }
            if batch.is_empty() {
                return results;
            }
            for (index, result) in indices.into_iter().zip(self.vdevs.read(batch)) {
                if let Some(slot) = results.get_mut(index) {
                    *slot = result.map_err(BlockError::Device);
                }
            }
        }
    }

    /// The copies that lie inside of this pool's vdevs, the first to try last.
    pub(crate) fn copies(&self, bp: &BlockPointer) -> Vec<Dva> {
        let mut copies: Vec<Dva> = bp.dvas().filter(|dva| self.vdevs.contains(*dva)).collect();
        copies.reverse();
        copies
    }

    /// A hole, embedded data, or what the cache has.
    fn without_device(&self, request: &BlockRequest<'_>) -> Result<Option<Block>, BlockError> {
        let bp = request.pointer;
        bp.validate()?;
        match bp.kind() {
            PointerKind::Hole => Ok(Some(Block::zeros(bp.logical_size() as usize))),
            PointerKind::Redacted => Err(BlockError::Redacted),
            PointerKind::Embedded => {
                let (payload, len) = bp.embedded_payload();
                let payload = payload.get(..len).unwrap_or_default();
                Ok(Some(Block { data: decompress(bp, payload)?, order: bp.order() }))
            }
            PointerKind::Plain | PointerKind::Gang => {
                if request.is_locked() {
                    // The cache has plaintext, which is not for whoever has no key.
                    return if is_dnode_block(bp) {
                        Ok(None)
                    } else {
                        Err(BlockError::KeyNotLoaded)
                    };
                }
                let cached = block_key(bp).and_then(|key| self.cache.get(&key));
                Ok(cached.filter(|block| block.data.len() as u64 == bp.logical_size()))
            }
        }
    }

    /// By how much space on a vdev is to be shrunk to count data only, in 512ths.
    pub(crate) fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.vdevs.deflate_ratio(vdev).unwrap_or(SECTOR_SIZE)
    }

    /// Keeps the contents of a block that was just written, in place of what its key had.
    pub(crate) fn remember(&self, pointer: &BlockPointer, is_metadata: bool, block: Block) {
        let Some(key) = block_key(pointer) else { return };
        let kind = if is_metadata { BlockKind::Metadata } else { BlockKind::Data };
        self.cache.remove(&key);
        self.cache.insert(key, kind, block);
    }

    /// From stored bytes to contents.
    fn finish(&self, request: &BlockRequest<'_>, stored: Bytes) -> Result<Block, BlockError> {
        let bp = request.pointer;
        let mut data = decode(bp, request.key, stored)?;
        if let Some(injector) = &self.injector {
            data = injector.inject(request.bookmark, bp, data);
        }
        let block = Block { data, order: bp.order() };
        if let Some(key) = block_key(bp).filter(|_| !request.is_locked()) {
            let metadata = bp.level().0 > 0 || bp.object_type()?.is_metadata();
            let kind = if metadata { BlockKind::Metadata } else { BlockKind::Data };
            self.cache.insert(key, kind, block.clone());
        }
        Ok(block)
    }
}

/// The identity of a block in the cache: where its first copy was put, and when.
fn block_key(bp: &BlockPointer) -> Option<BlockKey> {
    let dva = bp.dvas().next()?;
    Some(BlockKey {
        vdev: dva.vdev().get(),
        offset: dva.offset(),
        birth: bp.physical_birth().get(),
    })
}

/// Decrypts or authenticates, then decompresses.
fn decode(bp: &BlockPointer, key: Option<&DatasetKey>, stored: Bytes) -> Result<Bytes, BlockError> {
    let stored = match (bp.protection(), key) {
        (Protection::Encrypted, Some(key)) => {
            let mut plain = Vec::from(stored);
            key.decrypt_block(bp, &mut plain)?;
            Bytes::from(plain)
        }
        (Protection::Encrypted, None) if is_dnode_block(bp) => stored,
        (Protection::Encrypted, None) => return Err(BlockError::KeyNotLoaded),
        (Protection::Authenticated, Some(key)) => {
            key.authenticate_block(bp, &stored)?;
            stored
        }
        _ => stored,
    };
    let data = if bp.compression()? == CompressionFunction::Off {
        stored
    } else {
        decompress(bp, &stored)?
    };
    match (bp.protection(), key) {
        (Protection::IndirectMac, Some(_)) => crypto::verify_indirect(bp, &data)?,
        (Protection::Objset, Some(key)) => key.verify_objset(&data, bp.order())?,
        _ => {}
    }
    Ok(data)
}

fn decompress(bp: &BlockPointer, stored: &[u8]) -> Result<Bytes, BlockError> {
    let size = bp.logical_size() as usize;
    let function = bp.compression()?;
    if function == CompressionFunction::Off {
        return Ok(Bytes::copy_from_slice(stored.get(..size).unwrap_or(stored)));
    }
    let mut data = vec![0; size];
    compress::decompress(function, stored, &mut data)?;
    Ok(Bytes::from(data))
}
