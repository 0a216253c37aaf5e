//! The block pipeline: from a block pointer to the block's contents.
//!
//! It is the one place where pointers are followed. A batch goes through these steps, each for
//! the whole batch before the next:
//!
//! 1. holes and embedded data need no device; what the cache has is taken from it; what another
//!    thread is reading already is waited for at the end;
//! 2. the first copies of the rest are read together; the vdev layer repairs what redundancy can
//!    repair, with the block's checksum as the judge;
//! 3. blocks whose copy is lost go on with their next copy;
//! 4. each block is decrypted and decompressed, by several threads when there is much of it, and
//!    enters the cache, where it reaches those who wait for it.
//!
//! A block that several threads want at the same time is read by the first of them.

mod batch;
mod decode;
mod held;
mod patience;
mod workers;

pub use batch::Batch;
pub use patience::{DeviceWaiter, Patience, PatienceGuard};

use crate::gang::GangReader;
use crate::in_flight::InFlight;
use crate::{Block, BlockError, Damage};
use batch::{Pending, Wanted, is_like};
use bytes::Bytes;
use decode::{decompress, is_dnode_block};
use held::Held;
use rzfs_cache::{
    AdaptiveCache, BlockKey, BlockKind, Lookup, PrefetchActivity, PrefetchTunables, Purpose,
};
use rzfs_codec::checksum::{self, Salt};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::block_pointer::{PointerKind, Protection};
use rzfs_format::units::{Bookmark, SECTOR_SIZE};
use rzfs_format::{BlockPointer, Dva, VdevId};
use rzfs_vdev::{BlockRead, CurrentTree, VdevError, VdevTree};
use std::fmt;
use std::sync::Arc;
use workers::Workers;

/// Changes blocks after they were verified and decoded, before anyone sees them: how tests find
/// out what a damaged structure with a right checksum does to everything above.
pub trait BlockInjector: Send + Sync {
    /// The contents to use instead of `block`; of the same length.
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes;

    /// The bytes to use instead of what is stored, of the same length: of a block before it is
    /// decrypted and decompressed, of a gang header, of a block of an intent log.
    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        let _ = pointer;
        stored
    }
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
    pub key: Option<&'a Arc<DatasetKey>>,
}

impl BlockRequest<'_> {
    /// Whether the block is encrypted and the key not at hand.
    fn is_locked(&self) -> bool {
        self.key.is_none() && self.pointer.protection() == Protection::Encrypted
    }
}

/// Whether the blocks that are read have to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expectation {
    /// Somebody wrote them: a device that does not have them has made an error.
    Present,
    /// They may never have been written, or be wanted by nobody: nothing is counted.
    Possible,
}

/// Reads blocks of one pool.
pub struct BlockPipeline {
    vdevs: Arc<CurrentTree>,
    cache: AdaptiveCache<Block>,
    held: Held,
    salt: Salt,
    dynamic_gang_headers: bool,
    injector: Option<Arc<dyn BlockInjector>>,
    workers: Workers,
    prefetching: Arc<PrefetchActivity>,
    in_flight: Arc<InFlight>,
    damage: Damage,
    waiter: patience::Waiter,
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
            vdevs: CurrentTree::new(vdevs),
            cache: AdaptiveCache::new(options.arc_max),
            held: Held::new(options.arc_max),
            salt: options.salt,
            dynamic_gang_headers: options.dynamic_gang_headers,
            injector: options.injector,
            workers: Workers::default(),
            prefetching: PrefetchActivity::new(prefetch_tunables(options.arc_max), options.arc_max),
            in_flight: Arc::default(),
            damage: Damage::default(),
            waiter: patience::Waiter::default(),
        })
    }

    /// The vdevs below, as they are now.
    #[must_use]
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.vdevs.get()
    }

    /// Where the vdevs below are, which can become more.
    #[must_use]
    pub const fn current_vdevs(&self) -> &Arc<CurrentTree> {
        &self.vdevs
    }

    /// The cache of block contents.
    #[must_use]
    pub fn cache(&self) -> &AdaptiveCache<Block> {
        &self.cache
    }

    /// The blocks of the MOS that stay in memory besides.
    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    /// What all predictive prefetch of the pool shares.
    #[must_use]
    pub fn prefetching(&self) -> &Arc<PrefetchActivity> {
        &self.prefetching
    }

    /// The salt of keyed checksums.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    /// The blocks that somebody wanted and could not get, but for those that were only prefetched.
    #[must_use]
    pub const fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The blocks that are being written.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
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
        self.begin(requests).finish()
    }

    /// Finds out how each of these blocks will be had, without waiting for any.
    pub fn begin(&self, requests: &[BlockRequest<'_>]) -> Batch<'_> {
        self.batch(requests, Purpose::Demand)
    }

    /// Reads those of these blocks into the cache that are not there or on their way, because
    /// they may be wanted soon. What cannot be read is left to whoever wants it.
    pub fn prefetch(&self, requests: &[BlockRequest<'_>]) {
        self.batch(requests, Purpose::PredictivePrefetch).fetch();
    }

    fn batch(&self, requests: &[BlockRequest<'_>], purpose: Purpose) -> Batch<'_> {
        let blocks = requests.iter().map(|request| self.pending(request, purpose)).collect();
        Batch { pipeline: self, blocks, purpose }
    }

    /// Reads blocks as they are stored, compressed and encrypted, bypassing the cache. Checksums
    /// are verified.
    pub fn read_stored(&self, pointers: &[&BlockPointer]) -> Vec<Result<Bytes, BlockError>> {
        self.read_as_stored(pointers, Expectation::Present)
    }

    /// The same of blocks that need not be there, like the next one of an intent log: no device
    /// is to blame for those that are not.
    pub fn read_speculative(&self, pointers: &[&BlockPointer]) -> Vec<Result<Bytes, BlockError>> {
        self.read_as_stored(pointers, Expectation::Possible)
    }

    fn read_as_stored(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results = self.read_verified(pointers, expectation);
        if self.injector.is_some() {
            for (pointer, result) in pointers.iter().zip(&mut results) {
                if let Ok(stored) = result {
                    *stored = self.injected(pointer, std::mem::take(stored));
                }
            }
        }
        results
    }

    /// What was stored, or what an injector makes of it.
    pub(crate) fn injected(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        match &self.injector {
            Some(injector) => injector.inject_stored(pointer, stored),
            None => stored,
        }
    }

    /// What is stored under these pointers, by the right checksums.
    pub(crate) fn read_verified(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results = self.try_to_read(pointers, expectation);
        while results.iter().filter_map(|it| it.as_ref().err()).any(|it| self.wait_for_devices(it))
        {
            let all = pointers.iter().copied().zip(&mut results);
            let (missing, slots): (Vec<_>, Vec<_>) = all.filter(|(_, slot)| slot.is_err()).unzip();
            for (slot, result) in slots.into_iter().zip(self.try_to_read(&missing, expectation)) {
                *slot = result;
            }
        }
        results
    }

    fn try_to_read(
        &self,
        pointers: &[&BlockPointer],
        expectation: Expectation,
    ) -> Vec<Result<Bytes, BlockError>> {
        let mut results: Vec<Result<Bytes, BlockError>> =
            pointers.iter().map(|_| Err(BlockError::NoCopy)).collect();
        let mut copies: Vec<Vec<Dva>> = pointers.iter().map(|bp| self.copies(bp)).collect();
        let verifiers: Vec<_> = pointers
            .iter()
            .map(|bp| move |data: &[u8]| checksum::verify(bp, data, &self.salt).is_ok())
            .collect();
        for (slot, bp) in results.iter_mut().zip(pointers) {
            if bp.is_gang() {
                *slot = GangReader::new(self, expectation).read(bp);
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
            for (index, result) in indices.into_iter().zip(self.read_copies(batch, expectation)) {
                let result = result.map_err(BlockError::Device);
                if let Some(slot) = results.get_mut(index)
                    && is_news(slot, &result)
                {
                    *slot = result;
                }
            }
        }
    }

    /// Reads copies of blocks from the devices, or from what is on its way there.
    pub(crate) fn read_copies(
        &self,
        reads: Vec<BlockRead<'_>>,
        expectation: Expectation,
    ) -> Vec<Result<Bytes, VdevError>> {
        let in_flight = |read: &BlockRead<'_>| self.in_flight.get(read.dva, read.birth, read.size);
        let mut results: Vec<_> = reads.iter().map(|read| in_flight(read).map(Ok)).collect();
        let is_known = |result: &Option<_>| result.is_some();
        let rest = reads.into_iter().zip(results.iter().map(is_known));
        let rest: Vec<_> = rest.filter(|(_, known)| !known).map(|(read, _)| read).collect();
        let vdevs = self.vdevs.get();
        let read = match expectation {
            Expectation::Present => vdevs.read(rest),
            Expectation::Possible => vdevs.read_speculative(rest),
        };
        let mut read = read.into_iter();
        results.iter_mut().filter(|result| result.is_none()).for_each(|slot| *slot = read.next());
        results.into_iter().flatten().collect()
    }

    /// The copies that lie inside of this pool's vdevs, the first to try last.
    pub(crate) fn copies(&self, bp: &BlockPointer) -> Vec<Dva> {
        let vdevs = self.vdevs.get();
        let mut copies: Vec<Dva> = bp.dvas().filter(|dva| vdevs.contains(*dva)).collect();
        copies.reverse();
        copies
    }

    /// How a block will be had.
    fn pending(&self, request: &BlockRequest<'_>, purpose: Purpose) -> Pending {
        let BlockRequest { pointer, bookmark, key } = *request;
        let wanted = || Wanted { pointer: *pointer, bookmark, key: key.cloned() };
        match without_device(request) {
            Ok(None) => {}
            Ok(Some(block)) => return Pending::Done(Ok(block)),
            Err(error) => return Pending::Done(Err(error)),
        }
        if let Some(block) = self.held.get(bookmark, pointer) {
            return Pending::Done(Ok(block));
        }
        // The cache has plaintext, which is not for whoever has no key.
        let Some(key) = block_key(pointer).filter(|_| !request.is_locked()) else {
            return Pending::Missing(wanted(), None);
        };
        match self.cache.get_or_begin(key, block_kind(pointer), purpose) {
            Lookup::Hit(block) if is_like(pointer, &block) => Pending::Done(Ok(block)),
            Lookup::Hit(_) => Pending::Missing(wanted(), None),
            Lookup::Miss(ticket) => Pending::Missing(wanted(), Some(ticket)),
            Lookup::Pending(arrival) => Pending::Awaited(wanted(), arrival),
        }
    }

    /// By how much space on a vdev is to be shrunk to count data only, in 512ths.
    pub(crate) fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.vdevs.get().deflate_ratio(vdev).unwrap_or(SECTOR_SIZE)
    }

    /// Keeps the contents of a block that was just written, in place of what its key had.
    pub(crate) fn remember(
        &self,
        bookmark: Bookmark,
        pointer: &BlockPointer,
        is_metadata: bool,
        block: Block,
    ) {
        self.held.wrote(bookmark, pointer, &block);
        let Some(key) = block_key(pointer) else { return };
        let kind = if is_metadata { BlockKind::Metadata } else { BlockKind::Data };
        self.cache.remove(&key);
        self.cache.insert(key, kind, block);
    }
}

/// Whether what came of another copy says more than what is known: as long as one copy may be had
/// when its devices work again, the block is not lost.
fn is_news(known: &Result<Bytes, BlockError>, other: &Result<Bytes, BlockError>) -> bool {
    let may_be_mended =
        |result: &Result<_, BlockError>| result.as_ref().is_err_and(|error| !error.is_damage());
    other.is_ok() || !may_be_mended(known) || may_be_mended(other)
}

/// A hole, embedded data, or why the block cannot be read.
fn without_device(request: &BlockRequest<'_>) -> Result<Option<Block>, BlockError> {
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
        PointerKind::Plain | PointerKind::Gang if request.is_locked() && !is_dnode_block(bp) => {
            Err(BlockError::KeyNotLoaded)
        }
        PointerKind::Plain | PointerKind::Gang => Ok(None),
    }
}

fn block_kind(bp: &BlockPointer) -> BlockKind {
    let is_metadata = bp.level().0 > 0 || bp.object_type().is_ok_and(|kind| kind.is_metadata());
    if is_metadata { BlockKind::Metadata } else { BlockKind::Data }
}

/// OpenZFS's defaults, but never reaching further ahead than a part of the cache that what is
/// prefetched has to stay in until it is wanted.
fn prefetch_tunables(arc_max: u64) -> PrefetchTunables {
    let defaults = PrefetchTunables::default();
    PrefetchTunables {
        zfetch_min_distance: defaults.zfetch_min_distance.min(arc_max / 16),
        zfetch_max_distance: defaults.zfetch_max_distance.min(arc_max / 4),
        ..defaults
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
