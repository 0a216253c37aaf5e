//! The block pipeline: from a block pointer to the block's contents.
//!
//! It is the one place where pointers are followed. A batch goes through these steps together:
//!
//! 1. holes and embedded data need no device; cached blocks are taken from the cache; blocks being
//!    read by other threads are waited for at the end;
//! 2. the first copies of the rest are read together; the vdev layer reconstructs what redundancy
//!    allows, verified by the block's checksum;
//! 3. blocks with a lost copy continue with their next copy;
//! 4. each block is decrypted and decompressed, by several threads for large batches, and enters
//!    the cache, where waiters receive it.
//!
//! A block wanted by several threads at once is read by the first of them.

mod batch;
mod decode;
mod held;
mod passing;
mod workers;

pub use batch::Batch;

use crate::in_flight::InFlight;
use crate::in_force::InForce;
use crate::injector::BlockInjector;
use crate::patience::{DeviceWaiter, Waiter};
use crate::stored::{Expectation, StoredBlocks};
use crate::{Block, BlockError, Damage};
use bytes::Bytes;
use held::Held;
use rzfs_cache::{
    AdaptiveCache, ArcOptions, ArcTunables, BlockKey, BlockKind, PrefetchActivity, PrefetchTunables,
};
use rzfs_codec::checksum::Salt;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::block_pointer::Protection;
use rzfs_format::units::{Bookmark, SECTOR_SIZE};
use rzfs_format::{BlockPointer, VdevId};
use rzfs_tunables::Tunables;
use rzfs_vdev::{CurrentTree, VdevTree};
use std::fmt;
use std::sync::{Arc, Weak};
use workers::Workers;

/// What a pipeline needs to know about its pool.
#[derive(Clone)]
pub struct PipelineOptions {
    /// The salt of keyed checksums.
    pub salt: Salt,
    /// Whether gang headers can be larger than a sector (feature `dynamic_gang_header`).
    pub dynamic_gang_headers: bool,
    /// Maximum size of the block cache in bytes.
    pub arc_max: u64,
    /// Other tunables of the cache and of prefetching.
    pub tunables: Tunables,
    /// Fault injection for tests.
    pub injector: Option<Arc<dyn BlockInjector>>,
}

/// A block to read.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequest<'a> {
    /// Its location.
    pub pointer: &'a BlockPointer,
    /// Its identity.
    pub bookmark: Bookmark,
    /// The key of its objset; `None` if the objset is not encrypted or the key is not loaded.
    ///
    /// Without the key an encrypted block is an error, except for dnode blocks: their dnodes are
    /// readable, only encrypted bonuses stay ciphertext.
    pub key: Option<&'a Arc<DatasetKey>>,
}

impl BlockRequest<'_> {
    /// Whether the block is encrypted and the key is missing.
    fn is_locked(&self) -> bool {
        self.key.is_none() && self.pointer.protection() == Protection::Encrypted
    }
}

/// Reads blocks of one pool.
pub struct BlockPipeline {
    stored: StoredBlocks,
    cache: AdaptiveCache<Block>,
    held: Held,
    workers: Workers,
    prefetching: Arc<PrefetchActivity>,
    damage: Damage,
}

impl fmt::Debug for BlockPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPipeline").field("vdevs", &self.stored.vdevs).finish_non_exhaustive()
    }
}

impl BlockPipeline {
    /// A pipeline over the vdevs of a pool.
    #[must_use]
    pub fn new(vdevs: Arc<VdevTree>, options: PipelineOptions) -> Arc<Self> {
        Arc::new(Self {
            stored: StoredBlocks {
                vdevs: CurrentTree::new(vdevs),
                in_flight: Arc::default(),
                salt: options.salt,
                dynamic_gang_headers: options.dynamic_gang_headers,
                injector: options.injector,
                waiter: Waiter::default(),
            },
            cache: AdaptiveCache::with_options(ArcOptions {
                arc_max: options.arc_max,
                tunables: ArcTunables::from(&options.tunables),
                ..ArcOptions::default()
            }),
            held: Held::new(options.arc_max, options.tunables.rzfs_mos_held_max),
            workers: Workers::default(),
            prefetching: PrefetchActivity::new(
                prefetch_tunables(&options.tunables, options.arc_max),
                options.arc_max,
            ),
            damage: Damage::default(),
        })
    }

    /// The current vdevs.
    #[must_use]
    pub fn vdevs(&self) -> Arc<VdevTree> {
        self.stored.vdevs.get()
    }

    /// The current vdevs, shared; more can be added.
    #[must_use]
    pub const fn current_vdevs(&self) -> &Arc<CurrentTree> {
        &self.stored.vdevs
    }

    /// The cache of block contents.
    #[must_use]
    pub fn cache(&self) -> &AdaptiveCache<Block> {
        &self.cache
    }

    /// The MOS blocks that also stay in memory.
    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    /// Shared state of all predictive prefetching in the pool.
    #[must_use]
    pub fn prefetching(&self) -> &Arc<PrefetchActivity> {
        &self.prefetching
    }

    /// The salt of keyed checksums.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        &self.stored.salt
    }

    /// The blocks that could not be read, except for those only prefetched.
    #[must_use]
    pub const fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The blocks that are being written.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.stored.in_flight
    }

    /// Reads stored blocks, compressed and encrypted, bypassing the cache. Checksums are verified.
    pub fn read_stored(&self, pointers: &[&BlockPointer]) -> Vec<Result<Bytes, BlockError>> {
        self.stored.read_injected(pointers, Expectation::Present)
    }

    /// The same for blocks that may be replaced meanwhile.
    pub(crate) fn read_while(
        &self,
        pointers: &[&BlockPointer],
        owner: &dyn InForce,
    ) -> Vec<Result<Bytes, BlockError>> {
        self.stored.read_injected(pointers, Expectation::While(owner))
    }

    /// The same for blocks that may not exist, like the next one of an intent log: missing ones do
    /// not count as device errors.
    pub fn read_speculative(&self, pointers: &[&BlockPointer]) -> Vec<Result<Bytes, BlockError>> {
        self.stored.read_injected(pointers, Expectation::Possible)
    }

    /// The members of the gang header that `parent` points to, for accounting the space of a gang
    /// block; its data come from reading the leader.
    ///
    /// # Errors
    /// [`BlockError`] when no copy of the header can be read, or it is damaged or contradicts its
    /// parent. Callers that follow nested gangs stop at
    /// [`MAX_GANG_DEPTH`](crate::MAX_GANG_DEPTH).
    pub fn gang_members(&self, parent: &BlockPointer) -> Result<Vec<BlockPointer>, BlockError> {
        self.stored.gang_members(parent)
    }

    /// Sets the device waiter; without one, or when it is gone, patient threads get errors like
    /// others.
    pub fn set_device_waiter(&self, waiter: Weak<dyn DeviceWaiter>) {
        self.stored.waiter.set(waiter);
    }

    /// The ratio that deflates space on a vdev to data only, in 512ths.
    pub(crate) fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.stored.vdevs.get().deflate_ratio(vdev).unwrap_or(SECTOR_SIZE)
    }

    /// Caches the contents of a newly written block, replacing those under its key.
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
        self.cache.replace(key, kind, block);
    }
}

/// Limits prefetching to a part of the cache: prefetched blocks must stay in it until they are
/// used.
fn prefetch_tunables(tunables: &Tunables, arc_max: u64) -> PrefetchTunables {
    let wanted = PrefetchTunables::from(tunables);
    PrefetchTunables {
        zfetch_min_distance: wanted.zfetch_min_distance.min(arc_max / 16),
        zfetch_max_distance: wanted.zfetch_max_distance.min(arc_max / 4),
        ..wanted
    }
}

/// The cache key of a block: the address of its first copy, and its birth.
fn block_key(bp: &BlockPointer) -> Option<BlockKey> {
    let dva = bp.dvas().next()?;
    Some(BlockKey {
        vdev: dva.vdev().get(),
        offset: dva.offset(),
        birth: bp.physical_birth().get(),
    })
}
