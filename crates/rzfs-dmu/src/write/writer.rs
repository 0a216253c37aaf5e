//! Creating block pointers: encoding, space, gang fallback, rewriting in place.

use super::dedup::DedupIndex;
use super::encode::{self, Effort, EncodeOptions, Encoded, Stored};
use super::error::{NoSpace, WriteError};
use super::policy::BlockPolicy;
use super::sealing::{Seal, Sealing};
use super::stream::{DeviceWrite, WriteStream};
use crate::threads::start_up_to;
use crate::{Block, BlockPipeline, Patience};
use bytes::Bytes;
use rzfs_format::block_pointer::StoredBlock;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ByteOrder, Dva, Txg};
use rzfs_tunables::Tunables;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a batch that justify another thread.
const BYTES_PER_THREAD: usize = 256 << 10;

/// Sync passes from which blocks are written differently, so that the passes converge.
#[derive(Clone, Copy, Debug)]
pub struct SyncPasses {
    /// A block born in the same txg that keeps its size is rewritten in place.
    pub rewrite: u32,
    /// New blocks are not compressed.
    pub store: u32,
}

impl From<&Tunables> for SyncPasses {
    fn from(tunables: &Tunables) -> Self {
        Self {
            rewrite: tunables.zfs_sync_pass_rewrite,
            store: tunables.zfs_sync_pass_dont_compress,
        }
    }
}

/// A request for space for one block.
#[derive(Clone, Copy, Debug)]
pub struct SpaceRequest {
    /// Stored size in bytes.
    pub size: u64,
    /// Number of copies.
    pub copies: u8,
    /// The kind of block, which determines the class.
    pub policy: BlockPolicy,
    /// Its bookmark, so that neighbours are placed together.
    pub bookmark: Bookmark,
    /// Whether it is a part of a gang.
    pub part: SpacePart,
}

/// The purpose of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpacePart {
    /// A whole block.
    Block,
    /// The header of a gang.
    GangHeader,
    /// A piece of a gang's data, preferably near the header.
    GangMember(Dva),
}

/// Source of space for blocks: the pool's metaslabs.
pub trait BlockSpace: Send + Sync {
    /// Allocates space for a block in `txg`, one address for each copy; the rest stays empty.
    ///
    /// # Errors
    /// [`NoSpace`] when not all copies fit; nothing is then allocated.
    fn allocate(&self, request: &SpaceRequest, txg: Txg) -> Result<[Dva; 3], NoSpace>;

    /// Returns unwritten space that [`BlockSpace::allocate`] gave in this txg.
    fn unallocate(&self, dvas: &[Dva], txg: Txg);
}

/// One block to write.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The contents: the logical size.
    pub data: Bytes,
    /// The policy.
    pub policy: BlockPolicy,
    /// The pointer to replace.
    pub old: BlockPointer,
    /// The bookmark.
    pub bookmark: Bookmark,
    /// Number of data blocks, or objects, below and including it.
    pub fill: u64,
}

/// The change of a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The old pointer is still right: nothing is written.
    Unchanged,
    /// The block keeps its space, the pointer has another checksum.
    Rewritten(BlockPointer),
    /// The old block dies, and the new one, if it is not a hole, is born.
    Replaced(BlockPointer),
}

/// The context in which a block is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The txg that is being synced.
    pub txg: Txg,
    /// The sync pass, from 1 on.
    pub pass: u32,
    /// The stream of device writes.
    pub stream: &'a WriteStream,
    /// How the blocks of the set are protected.
    pub sealing: Sealing<'a>,
}

/// Changes blocks on their way to the devices, before they are compressed, encrypted and
/// checksummed: lets tests create pools with wrong contents and right checksums.
pub trait WriteInjector: Send + Sync {
    /// Replaces a block's contents by others of the same length. Memory is unaffected.
    fn inject(&self, bookmark: Bookmark, object_type: ObjectType, contents: Bytes) -> Bytes;
}

/// Writes the blocks of one pool.
pub struct BlockWriter {
    pub(super) pipeline: Arc<BlockPipeline>,
    pub(super) space: Arc<dyn BlockSpace>,
    pub(super) options: EncodeOptions,
    pub(super) dedup: Option<Arc<dyn DedupIndex>>,
    injector: Option<Arc<dyn WriteInjector>>,
    hole_birth: bool,
    threads: usize,
    passes: SyncPasses,
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter").field("options", &self.options).finish_non_exhaustive()
    }
}

impl BlockWriter {
    /// A writer that encodes on `threads` threads; `hole_birth`: whether that feature is active.
    #[must_use]
    pub fn new(
        pipeline: Arc<BlockPipeline>,
        space: Arc<dyn BlockSpace>,
        options: EncodeOptions,
        hole_birth: HoleBirth,
        threads: usize,
    ) -> Self {
        let hole_birth = hole_birth == HoleBirth::Recorded;
        let (dedup, injector, threads) = (None, None, threads.max(1));
        let passes = SyncPasses::from(&Tunables::default());
        Self { pipeline, space, options, dedup, injector, hole_birth, threads, passes }
    }

    /// The same with passes other than the default.
    #[must_use]
    pub fn with_passes(self, passes: SyncPasses) -> Self {
        Self { passes, ..self }
    }

    /// The same with fault injection for tests, if there is an injector.
    #[must_use]
    pub fn with_injector(self, injector: Option<Arc<dyn WriteInjector>>) -> Self {
        Self { injector, ..self }
    }

    /// The same for a pool with dedup tables.
    #[must_use]
    pub fn with_dedup(self, index: Arc<dyn DedupIndex>) -> Self {
        Self { dedup: Some(index), ..self }
    }

    /// The pipeline that reads the same pool.
    #[must_use]
    pub const fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.pipeline
    }

    /// Encodes blocks, allocates space and starts writing them; the results are in the order of the
    /// requests.
    ///
    /// # Errors
    /// [`WriteError`]. Space of blocks that were written before the error stays allocated: the
    /// txg cannot be completed.
    pub fn write(
        &self,
        context: WriteContext<'_>,
        requests: &[WriteRequest],
    ) -> Result<Vec<Change>, WriteError> {
        self.write_each(context, requests).into_iter().collect()
    }

    /// The same, for callers that can continue without some of the blocks.
    pub(crate) fn write_each(
        &self,
        context: WriteContext<'_>,
        requests: &[WriteRequest],
    ) -> Vec<Result<Change, WriteError>> {
        let bytes: usize = requests.iter().map(|request| request.data.len()).sum();
        let threads = self.threads.min(bytes / BYTES_PER_THREAD + 1).min(requests.len().max(1));
        if threads == 1 {
            return requests.iter().map(|request| self.write_one(context, request)).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(request) = requests.get(index)
            {
                done.push((index, self.write_one(context, request)));
            }
            done
        };
        let patience = Patience::of_this_thread();
        let help = || {
            let _patience = patience.enter();
            work()
        };
        let mut changes = vec![Ok(Change::Unchanged); requests.len()];
        std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, help);
            let others = start_up_to(threads - 1, start);
            let mut done = work();
            for other in others {
                done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            for (index, change) in done {
                if let Some(slot) = changes.get_mut(index) {
                    *slot = change;
                }
            }
        });
        changes
    }

    fn write_one(
        &self,
        context: WriteContext<'_>,
        request: &WriteRequest,
    ) -> Result<Change, WriteError> {
        let old = &request.old;
        let is_new = !old.is_hole() && old.physical_birth() == context.txg;
        let effort = if is_new && context.pass >= self.passes.store {
            Effort::Store
        } else {
            Effort::Compress
        };
        let (policy, sealing) = (&request.policy, context.sealing);
        let data = request.data.clone();
        let data = match &self.injector {
            Some(injector) => injector.inject(request.bookmark, policy.object_type, data),
            None => data,
        };
        let encoded = encode::encode(&self.options, policy, sealing, effort, context.txg, data)
            .map_err(|error| WriteError::of_encoding(error, request.bookmark))?;
        match encoded {
            Encoded::Hole if old.is_hole() => Ok(Change::Unchanged),
            Encoded::Hole => Ok(Change::Replaced(self.hole(request, context.txg))),
            Encoded::Embedded(pointer) => Ok(Change::Replaced(pointer)),
            Encoded::Stored(stored) if is_unchanged(request, &stored) => Ok(Change::Unchanged),
            Encoded::Stored(stored) => {
                // Newly encrypted data always looks different.
                let in_place = is_new
                    && !old.is_dedup()
                    && sealing.is_plain()
                    && context.pass >= self.passes.rewrite
                    && old.physical_size() == stored.data.len() as u64;
                let change = if in_place {
                    Change::Rewritten(self.rewrite(context, request, &stored)?)
                } else {
                    Change::Replaced(self.place(context, request, &stored)?)
                };
                self.remember(&change, request);
                Ok(change)
            }
        }
    }

    /// The hole that replaces a block that became zeros.
    pub(crate) fn hole_after(&self, old: &BlockPointer, request: HoleRequest) -> BlockPointer {
        if self.hole_birth && old.logical_birth() != Txg(0) {
            let HoleRequest { policy, size, txg } = request;
            BlockPointer::born_hole(policy.object_type, policy.level, size, txg)
        } else {
            BlockPointer::HOLE
        }
    }

    fn hole(&self, request: &WriteRequest, txg: Txg) -> BlockPointer {
        let size = request.data.len() as u64;
        self.hole_after(&request.old, HoleRequest { policy: request.policy, size, txg })
    }

    /// Writes the block to newly allocated space.
    fn place(
        &self,
        context: WriteContext<'_>,
        request: &WriteRequest,
        stored: &Stored,
    ) -> Result<BlockPointer, WriteError> {
        if let Some(pointer) = self.place_deduplicated(context, request, stored)? {
            return Ok(pointer);
        }
        let dvas = self.place_copies(context, request, stored, request.policy.copies)?;
        Ok(pointer(context.txg, request, stored, dvas))
    }

    /// Writes this many copies of a block to newly allocated space.
    pub(super) fn place_copies(
        &self,
        context: WriteContext<'_>,
        request: &WriteRequest,
        stored: &Stored,
        copies: u8,
    ) -> Result<[Dva; 3], WriteError> {
        let size = stored.data.len() as u64;
        let wish = SpaceRequest {
            size,
            copies,
            policy: request.policy,
            bookmark: request.bookmark,
            part: SpacePart::Block,
        };
        match self.space.allocate(&wish, context.txg) {
            Ok(dvas) => {
                self.push_copies(context, &dvas, &stored.data);
                Ok(dvas)
            }
            Err(_) if size > self.options.min_allocation => {
                self.place_gang(context, &wish, stored.seal.protection(), &stored.data)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Rewrites the block in place, over its earlier version of the same txg.
    fn rewrite(
        &self,
        context: WriteContext<'_>,
        request: &WriteRequest,
        stored: &Stored,
    ) -> Result<BlockPointer, WriteError> {
        let mut dvas = [Dva::default(); 3];
        for (slot, dva) in dvas.iter_mut().zip(request.old.dvas()) {
            *slot = dva;
        }
        if request.old.is_gang() {
            self.rewrite_gang(context, &request.old, &stored.data)
                .map_err(|source| WriteError::Gang { bookmark: request.bookmark, source })?;
        } else {
            self.push_copies(context, &dvas, &stored.data);
        }
        Ok(pointer(context.txg, request, stored, dvas))
    }

    /// Starts writing all copies of a block or of a piece of a gang.
    pub(super) fn push_copies(&self, context: WriteContext<'_>, dvas: &[Dva], data: &Bytes) {
        let (birth, stream) = (context.txg, context.stream);
        for dva in dvas.iter().copied().filter(|dva| dva.is_valid()) {
            let _flight = Arc::new(self.pipeline.in_flight().begin(dva, birth, data));
            stream.push(DeviceWrite { dva, birth, data: data.clone(), _flight });
        }
    }

    /// Adds the contents to the cache.
    fn remember(&self, change: &Change, request: &WriteRequest) {
        if let Change::Rewritten(pointer) | Change::Replaced(pointer) = change {
            let block = Block { data: request.data.clone(), order: ByteOrder::NATIVE };
            let is_metadata = request.policy.is_metadata();
            self.pipeline.remember(request.bookmark, pointer, is_metadata, block);
        }
    }
}

/// Whether holes record their birth (feature `hole_birth`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoleBirth {
    /// They do.
    Recorded,
    /// They do not.
    Forgotten,
}

/// A hole to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoleRequest {
    pub(crate) policy: BlockPolicy,
    /// Logical size of the former block.
    pub(crate) size: u64,
    pub(crate) txg: Txg,
}

/// Whether the old block has the same contents, according to a strong checksum (nop-write).
fn is_unchanged(request: &WriteRequest, stored: &Stored) -> bool {
    let old = &request.old;
    request.policy.allows_unchanged()
        && !old.is_hole()
        && !old.is_embedded()
        && stored.seal == Seal::None
        && !old.has_crypt_bit()
        && !old.is_dedup()
        && old.checksum_function() == Ok(request.policy.checksum)
        && old.compression() == Ok(stored.compression)
        && old.dvas().count() == usize::from(request.policy.copies)
        && old.logical_size() == request.data.len() as u64
        && old.physical_size() == stored.data.len() as u64
        && old.checksum() == stored.checksum
}

/// The pointer to a placed block.
pub(super) fn pointer(
    txg: Txg,
    request: &WriteRequest,
    stored: &Stored,
    dvas: [Dva; 3],
) -> BlockPointer {
    let pointer = BlockPointer::stored(&StoredBlock {
        object_type: request.policy.object_type,
        level: request.policy.level,
        logical_size: request.data.len() as u64,
        physical_size: stored.data.len() as u64,
        compression: stored.compression,
        checksum_function: request.policy.checksum,
        checksum: stored.seal.checksum(request.policy.checksum, stored.checksum),
        dvas,
        birth: txg,
    });
    stored.seal.apply(pointer.with_fill(request.fill))
}
