//! Sharing whole blocks between files: cloning (spec 05, section 9.7).

use super::admission::DNODE_BYTES;
use super::caller::Caller;
use super::change::Touch;
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::quotas::Charged;
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::files::Files;
use crate::node::Attributes;
use crate::object::FileObject;
use crate::source::Source;
use crate::sync::Arc;
use bytes::Bytes;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{CloneSource, LiveObject, Transaction};
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::sa::Attribute;
use rzfs_format::znode::FileFlags;
use rzfs_format::{BlockId, ObjectId};

/// Maximum blocks shared by one transaction.
const CLONE_BLOCKS: u64 = 1024;
/// Approximate bytes written by sharing this many blocks: indirect blocks with their copies.
const CLONE_METADATA: u64 = 4 * (128 << 10);

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePlace {
    /// The file.
    pub object: ObjectId,
    /// The byte.
    pub offset: u64,
}

impl FilePlace {
    pub(super) const fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset.saturating_add(bytes), ..self }
    }
}

/// The source file system of a copied range.
#[derive(Clone, Copy, Debug)]
pub enum CopySource<'a> {
    /// A read-only one.
    Fixed(&'a FileSystem),
    /// A live one.
    Live(&'a LiveFileSystem),
}

impl<'a> From<&'a Files> for CopySource<'a> {
    fn from(files: &'a Files) -> Self {
        match files {
            Files::Fixed(fixed) => Self::Fixed(fixed),
            Files::Live(live) => Self::Live(live),
        }
    }
}

impl<'a> From<&'a LiveFileSystem> for CopySource<'a> {
    fn from(live: &'a LiveFileSystem) -> Self {
        Self::Live(live)
    }
}

impl CopySource<'_> {
    pub(super) fn attributes(&self, object: ObjectId) -> Result<Attributes, ZplError> {
        match self {
            Self::Fixed(fixed) => fixed.attributes(object),
            Self::Live(live) => live.attributes(object),
        }
    }

    pub(super) fn read(&self, from: FilePlace, len: u64) -> Result<Vec<Bytes>, ZplError> {
        match self {
            Self::Fixed(fixed) => fixed.read_segments(from.object, from.offset, len),
            Self::Live(live) => live.read_segments(from.object, from.offset, len),
        }
    }
}

/// Blocks to share with a file, from a boundary of its blocks on.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRange<'a> {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes: all blocks in full, except for the last one.
    pub(super) len: u64,
    /// Size of each block.
    pub(super) block_size: u64,
    /// The blocks: none is dirty.
    pub(super) sources: &'a [CloneSource],
}

/// How blocks are added to a file.
struct Putting<C> {
    demand: SpaceDemand,
    caller: Caller,
    /// Fails when the blocks may have lost their owner.
    owned: C,
}

impl SharedRange<'_> {
    fn first(&self) -> BlockId {
        BlockId(self.offset / self.block_size.max(1))
    }
}

/// The properties of a file that affect sharing its blocks.
#[derive(Clone, Copy, Debug)]
struct Reach {
    offset: u64,
    size: u64,
    block_size: u64,
}

/// How much of a range of `len` bytes, which ends within the source, can be shared from its start:
/// aligned whole blocks. The last block of the source may be partial if it becomes the end of the
/// target. `is_single`: the target has at most one block, which can take the source's block size.
fn shareable(source: Reach, target: Reach, is_single: bool, len: u64) -> u64 {
    let block_size = source.block_size;
    if target.block_size != block_size {
        let can_grow = is_single && target.size <= target.block_size;
        if !can_grow || block_size < target.block_size {
            return 0;
        }
    }
    if !block_size.is_power_of_two() && (source.offset > 0 || target.offset > 0) {
        return 0;
    }
    let is_aligned = |offset: u64| offset.is_multiple_of(block_size);
    if !is_aligned(source.offset) || !is_aligned(target.offset) {
        return 0;
    }
    let most = block_size.saturating_mul(CLONE_BLOCKS);
    let is_to_end = source.offset.saturating_add(len) == source.size
        && target.offset.saturating_add(len) >= target.size;
    if len <= most && is_to_end { len } else { len.min(most) / block_size * block_size }
}

impl LiveFileSystem {
    /// Shares blocks from the beginning of a range that ends within its file; returns the number of
    /// bytes. Sharing nothing is not an error: the range is then to be copied.
    ///
    /// # Errors
    /// As for [`LiveFileSystem::copy_range`].
    pub fn clone_range(
        &self,
        to: FilePlace,
        (source, from): (CopySource<'_>, FilePlace),
        len: u64,
        caller: Caller,
    ) -> Result<u64, ZplError> {
        let source = match source {
            CopySource::Live(source) => source,
            CopySource::Fixed(fixed) => return self.clone_fixed(to, (fixed, from), len, caller),
        };
        if !self.shares_blocks_with(source) {
            return Ok(0);
        }
        let (read, changed) = (source.node(from.object)?, self.node(to.object)?);
        if Arc::ptr_eq(&read, &changed) {
            let mut state = changed.write();
            let (object, size) = (state.object().clone(), state.znode().size);
            state.require_readable()?;
            let source = (&object, size, from.offset);
            return self.clone_locked((&mut state, to), source, len, caller);
        }
        // Files of several file systems are locked in the order of these.
        let is_first = (source.objset().id(), from.object) < (self.objset().id(), to.object);
        let (read, mut state) = if is_first {
            let read = read.state().read();
            (read, changed.write())
        } else {
            let state = changed.write();
            (read.state().read(), state)
        };
        read.require_readable()?;
        let source = (read.object(), read.znode().size, from.offset);
        self.clone_locked((&mut state, to), source, len, caller)
    }

    /// Shares blocks of a file in a snapshot.
    fn clone_fixed(
        &self,
        to: FilePlace,
        (source, from): (&FileSystem, FilePlace),
        len: u64,
        caller: Caller,
    ) -> Result<u64, ZplError> {
        if !self.shares_blocks_with_snapshot(source) {
            return Ok(0);
        }
        let changed = self.node(to.object)?;
        source.source.with_file(from.object, |read| {
            read.require_readable()?;
            let source = (read.object(), read.znode().size, from.offset);
            self.clone_locked((&mut changed.write(), to), source, len, caller)
        })
    }

    /// Whether blocks of another file system can be shared with this one: it is a snapshot of this
    /// one, with the same key. After a snapshot is destroyed, nothing of it is shared later than in
    /// the following txg, and its blocks are freed after the references added by that txg have been
    /// counted.
    fn shares_blocks_with_snapshot(&self, source: &FileSystem) -> bool {
        Arc::ptr_eq(self.objset().pipeline(), source.objset().pipeline())
            && source.options().snapshot_of == Some(self.objset().id())
            && self.options().space.sharing().is_some()
    }

    /// Whether blocks of another file system can be shared with this one: both are in one pool,
    /// have the same key if encrypted, and write blocks in the same way.
    fn shares_blocks_with(&self, source: &Self) -> bool {
        if !Arc::ptr_eq(&self.engine, &source.engine) {
            return false;
        }
        let policies = (self.options().space.sharing(), source.options().space.sharing());
        let (Some(own), Some(of_source)) = policies else { return false };
        let has_same_key = match (self.objset().key(), source.objset().key()) {
            (None, None) => true,
            (Some(own), Some(of_source)) => own.is_same(of_source),
            _ => false,
        };
        let is_same = self.objset().id() == source.objset().id();
        is_same || (has_same_key && own.writes_data_like(&of_source))
    }

    /// Shares blocks of a locked file with a locked target.
    fn clone_locked<O: FileObject>(
        &self,
        (state, to): (&mut NodeState, FilePlace),
        (source, source_size, from): (&O, u64, u64),
        len: u64,
        caller: Caller,
    ) -> Result<u64, ZplError> {
        self.check_writable(state, to.offset)?;
        let target = state.object().clone();
        let size = state.znode().size;
        let block_size = u64::from(source.data_block_size()?);
        let len = shareable(
            Reach { offset: from, size: source_size, block_size },
            Reach { offset: to.offset, size, block_size: target.data_block_size()?.into() },
            target.max_block_id()?.0 == 0 && self.can_store(block_size),
            len.min(source_size.saturating_sub(from)),
        );
        let first = from / block_size;
        let blocks = first..first + len.div_ceil(block_size);
        let mut sources = source.clone_sources(blocks.clone())?;
        let mut len = len;
        let space = &self.options().space;
        let is_shared = |source: &CloneSource| {
            *source != CloneSource::Dirty && space.can_count(&source.pointer())
        };
        if let Some(end) = sources.iter().position(|source| !is_shared(source)) {
            sources.truncate(end);
            len = end as u64 * block_size;
        }
        if len == 0 || self.is_too_long(to.offset, len) {
            return Ok(0);
        }
        self.check_bytes(&Charged::of(state.znode()))?;
        let shared = SharedRange { offset: to.offset, len, block_size, sources: &sources };
        self.share_locked(state, &shared, caller, || source.require_current())?;
        Ok(len)
    }

    /// Shares blocks with a locked file: everything is already checked, except whether the blocks
    /// still have an owner when the transaction has begun, which `owned` checks.
    pub(super) fn share_locked(
        &self,
        state: &mut NodeState,
        shared: &SharedRange<'_>,
        caller: Caller,
        owned: impl FnOnce() -> Result<(), DmuError>,
    ) -> Result<(), ZplError> {
        let (first, count) = (shared.first(), shared.sources.len() as u64);
        let demand = SpaceDemand::Shares {
            shared: shared.block_size.saturating_mul(count),
            written: DNODE_BYTES + CLONE_METADATA,
        };
        let how = Putting { demand, caller, owned };
        self.put_locked(state, shared, how, |target, tx| {
            target.clone_blocks(tx, first, shared.sources)
        })
    }

    /// Writes the contents of a block to a locked file, instead of sharing it.
    pub(super) fn copy_locked(
        &self,
        state: &mut NodeState,
        shared: &SharedRange<'_>,
        contents: &[u8],
        caller: Caller,
    ) -> Result<(), ZplError> {
        let offset = shared.offset;
        let demand = SpaceDemand::Takes(DNODE_BYTES + contents.len() as u64);
        let how = Putting { demand, caller, owned: || Ok(()) };
        self.put_locked(state, shared, how, |target, tx| target.write(tx, offset, contents))
    }

    /// Adds blocks to a locked file with `put`, and updates everything that depends on them.
    fn put_locked<C: FnOnce() -> Result<(), DmuError>>(
        &self,
        state: &mut NodeState,
        shared: &SharedRange<'_>,
        Putting { demand, caller, owned }: Putting<C>,
        put: impl FnOnce(&LiveObject, &dyn Transaction) -> Result<(), DmuError>,
    ) -> Result<(), ZplError> {
        let SharedRange { offset, len, block_size, sources } = *shared;
        let (target, size, mode) = (state.object().clone(), state.znode().size, state.znode().mode);
        self.drop_capabilities(state)?;
        let changed = self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Size, size.max(offset.saturating_add(len)));
            self.touch(values, schema, Touch::Contents);
            self.clear_set_id(state, values, schema, caller);
        })?;
        let grows = u64::from(target.data_block_size()?) != block_size;
        if grows {
            self.check_storable(&target, block_size)?;
            // Its contents are read now: nothing may fail later.
            target.read_block(BlockId(0))?;
        }
        let first = shared.first();
        target.check_blocks(first..BlockId(first.0.saturating_add(sources.len() as u64)))?;
        let tx = self.begin(&[&target], demand)?;
        // After waiting for several txgs, blocks destroyed in the first may be free now.
        owned()?;
        if grows {
            target.set_data_block_size(&tx, u32::try_from(block_size).unwrap_or(u32::MAX))?;
        }
        put(&target, &tx)?;
        changed.apply(&tx, state)?;
        self.log_sharing(&tx, state, shared);
        if state.znode().mode != mode {
            self.log_mode(&tx, state);
        }
        Ok(())
    }

    /// Checks that a file can be written from `offset` on.
    fn check_writable(&self, state: &NodeState, offset: u64) -> Result<(), ZplError> {
        state.require_regular()?;
        self.check_flags(state, &[FileFlags::IMMUTABLE, FileFlags::READONLY])?;
        if offset < state.znode().size {
            self.check_flags(state, &[FileFlags::APPENDONLY])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn reach(offset: u64, size: u64, block_size: u64) -> Reach {
        Reach { offset, size, block_size }
    }

    #[test]
    fn whole_blocks_are_shared_at_whole_blocks() {
        let source = |offset| reach(offset, 10 * BLOCK + 100, BLOCK);
        for (from, to, target_size, len, expected) in [
            (0, 0, 0, 3 * BLOCK, 3 * BLOCK),
            (0, 0, 0, 3 * BLOCK + 5, 3 * BLOCK),
            (0, BLOCK, 0, 5, 0),
            (1, 1, 0, 3 * BLOCK, 0),
            (0, 1, 0, 3 * BLOCK, 0),
            // The last block, when it is also the last one there; else whole blocks.
            (BLOCK, 0, 0, 9 * BLOCK + 100, 9 * BLOCK + 100),
            (BLOCK, 0, 9 * BLOCK + 100, 9 * BLOCK + 100, 9 * BLOCK + 100),
            (BLOCK, 0, 9 * BLOCK + 101, 9 * BLOCK + 100, 9 * BLOCK),
        ] {
            let target = reach(to, target_size, BLOCK);
            let shared = shareable(source(from), target, false, len);
            assert_eq!(shared, expected, "{from} {to} {target_size} {len}");
        }
    }

    #[test]
    fn the_target_gets_larger_blocks_while_it_has_one() {
        let source = reach(0, 10 * BLOCK, BLOCK);
        let shared = |size, block_size, is_single| {
            shareable(source, reach(0, size, block_size), is_single, 10 * BLOCK)
        };
        assert_eq!(shared(0, 512, true), 10 * BLOCK);
        assert_eq!(shared(512, 512, true), 10 * BLOCK);
        assert_eq!(shared(513, 512, true), 0);
        assert_eq!(shared(0, 512, false), 0);
        assert_eq!(shared(0, 2 * BLOCK, true), 0);
    }

    #[test]
    fn odd_blocks_are_shared_at_the_beginning_only() {
        let source = reach(0, 1000, 1024 + 512);
        assert_eq!(shareable(source, reach(0, 0, 512), true, 1000), 1000);
        assert_eq!(shareable(source, reach(1024 + 512, 0, 512), true, 1000), 0);
    }

    #[test]
    fn a_transaction_shares_so_many_blocks() {
        let source = reach(0, 5000 * BLOCK, BLOCK);
        let target = reach(0, 0, BLOCK);
        assert_eq!(shareable(source, target, true, 5000 * BLOCK), CLONE_BLOCKS * BLOCK);
    }
}
