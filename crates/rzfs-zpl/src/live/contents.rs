//! The contents of regular files: writing, changing their lengths (spec 05, sections 5.5 to 5.7
//! and 9.2).

use super::admission::Progress;
use super::admission::{DNODE_BYTES, Freeing, claimed_dnodes};
use super::block_size::written_bytes;
use super::caller::{Caller, Privilege};
use super::change::{Prepared, Touch};
use super::creation::{SET_GROUP_ID, SET_USER_ID};
use super::file_system::LiveFileSystem;
use super::log::LoggedAttributes;
use super::node::NodeState;
use super::quotas::Charged;
use super::values::Values;
use crate::error::ZplError;
use rzfs_dmu::live::{Extent, LiveObject, Transaction};
use rzfs_dmu::txg::Patience;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::{Attribute, Schema};
use rzfs_format::zil::SetAttr;
use rzfs_format::znode::FileFlags;
use rzfs_format::{BlockId, ObjectId};
use std::ops::Range;

/// Maximum bytes written by one transaction, except for a single larger block.
const CHUNK: u64 = 1 << 20;
/// Maximum file length.
pub(super) const MAX_SIZE: u64 = i64::MAX as u64;
/// Where an opened file will be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writing {
    /// Anywhere, which append-only files forbid.
    Anywhere,
    /// At the end of the file (`O_APPEND`).
    AtEnd,
}

/// The position of a write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteAt {
    /// At this byte.
    Offset(u64),
    /// At the end of the file, after concurrent writes.
    End,
}

impl LiveFileSystem {
    /// Whether a file would be too long with `len` bytes at `offset`.
    pub(super) fn is_too_long(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_none_or(|end| end > MAX_SIZE)
    }

    /// Checks that a file can be opened for writing.
    ///
    /// # Errors
    /// It is not a regular file, or its flags forbid it.
    pub fn open_for_writing(&self, object: ObjectId, where_to: Writing) -> Result<(), ZplError> {
        let node = self.node(object)?;
        let state = node.state().read();
        state.require_regular()?;
        self.check_flags(&state, &[FileFlags::IMMUTABLE, FileFlags::READONLY])?;
        match where_to {
            Writing::Anywhere => self.check_flags(&state, &[FileFlags::APPENDONLY]),
            Writing::AtEnd => Ok(()),
        }
    }

    /// Refuses a change of a file with one of these flags.
    pub(super) fn check_flags(
        &self,
        state: &NodeState,
        forbidden: &[FileFlags],
    ) -> Result<(), ZplError> {
        let forbids = forbidden.iter().any(|flag| state.znode().flags.contains(*flag));
        if forbids && !self.source.replay.is_on() {
            return Err(ZplError::NotPermitted { place: state.place() });
        }
        Ok(())
    }

    /// Refuses to write contents while the pool is suspended, where callers wait: memory is
    /// reserved for name operations.
    fn check_devices(&self) -> Result<(), ZplError> {
        match self.patience() {
            Patience::Leave if self.engine.is_waiting_allowed() => Err(ZplError::Suspended),
            Patience::Leave | Patience::Wait => Ok(()),
        }
    }

    /// Writes to a file and returns the position and number of bytes written: fewer than requested
    /// after an error.
    ///
    /// # Errors
    /// Nothing was written: it is not a regular file, its flags forbid it, it would become too
    /// long, a quota or the space is exceeded, or a block cannot be read.
    pub fn write(
        &self,
        object: ObjectId,
        at: WriteAt,
        data: &[u8],
        caller: Caller,
    ) -> Result<(u64, usize), ZplError> {
        let node = self.node(object)?;
        let (offset, written) = self.write_locked(&mut node.write(), at, data, caller)?;
        self.counters.count_write(written as u64);
        self.commit_always(object)?;
        Ok((offset, written))
    }

    fn write_locked(
        &self,
        state: &mut NodeState,
        at: WriteAt,
        data: &[u8],
        caller: Caller,
    ) -> Result<(u64, usize), ZplError> {
        state.require_regular()?;
        self.check_flags(state, &[FileFlags::IMMUTABLE, FileFlags::READONLY])?;
        let size = state.znode().size;
        let offset = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::End => size,
        };
        let place = state.place();
        if offset < size {
            self.check_flags(state, &[FileFlags::APPENDONLY])?;
        }
        let room = MAX_SIZE.saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return Err(ZplError::TooBig { place });
        }
        let data = data.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(data);
        self.drop_capabilities(state)?;
        let mut written = 0;
        while written < data.len() {
            let rest = data.get(written..).unwrap_or_default();
            match self.write_chunk(state, offset + written as u64, rest, caller) {
                Ok(len) => written += len,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((offset, written))
    }

    /// Writes the beginning of `data` in one transaction; returns its length.
    fn write_chunk(
        &self,
        state: &mut NodeState,
        offset: u64,
        data: &[u8],
        caller: Caller,
    ) -> Result<usize, ZplError> {
        self.check_devices()?;
        self.check_bytes(&Charged::of(state.znode()))?;
        let object = state.object().clone();
        let block_size = u64::from(object.data_block_size()?);
        let record_size = u64::from(self.options().reading.record_size).max(block_size);
        // Up to a block boundary, whatever the new size of the first block.
        let most = CHUNK.max(record_size);
        let len = (most - offset % record_size).min(data.len() as u64);
        let data = data.get(..len as usize).unwrap_or_default();
        let end = offset + len;
        let size = state.znode().size;
        let changed = self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Size, size.max(end));
            self.touch(values, schema, Touch::Contents);
            self.clear_set_id(state, values, schema, caller);
        })?;
        let blocks = offset / block_size.max(1)..end.div_ceil(block_size.max(1));
        object.check_blocks(BlockId(blocks.start)..BlockId(blocks.end))?;
        read_edges(&object, offset, end)?;
        let grown = self.grown_size(&object, size, end)?;
        self.check_storable(&object, grown.unwrap_or(block_size))?;
        let written = written_bytes(block_size, grown, offset, end);
        let claimed = |txg| {
            let data = if grown.is_none() { object.dirty_bytes(txg, blocks.clone()) } else { 0 };
            data + claimed_dnodes(&[&object], txg)
        };
        let demand = SpaceDemand::Takes(DNODE_BYTES + written);
        let tx = self.begin_unless_claimed(&[&object], demand, claimed)?;
        self.grow_block(&tx, &object, size, end)?;
        object.write(&tx, offset, data)?;
        let mode = state.znode().mode;
        changed.apply(&tx, state)?;
        self.log_write(&tx, state, offset, len);
        if state.znode().mode != mode {
            self.log_mode(&tx, state);
        }
        Ok(data.len())
    }

    /// Clears set-user-id and set-group-id of a file changed by an ordinary user; as in Linux, the
    /// latter only if it is executable.
    pub(super) fn clear_set_id(
        &self,
        state: &NodeState,
        values: &mut Values,
        schema: &Schema,
        caller: Caller,
    ) {
        if let Some(mode) = mode_without_set_id(state, caller) {
            values.set_u64(schema, Attribute::Mode, u64::from(mode));
            state.note_lost_set_id();
        }
    }

    /// Whether a file has lost set-user-id or set-group-id by a change of its contents since the
    /// last call: cached attributes must then be refreshed.
    ///
    /// # Errors
    /// The number is not that of a file.
    pub fn take_setid_cleared(&self, object: ObjectId) -> Result<bool, ZplError> {
        let node = self.node(object)?;
        let lost = node.state().read().take_setid_cleared();
        Ok(lost)
    }

    /// Sets the length of a file: data beyond is removed, new bytes read as zeros.
    ///
    /// # Errors
    /// It is not a regular file, its flags forbid it, or it would become too long.
    pub fn truncate(&self, object: ObjectId, size: u64, caller: Caller) -> Result<(), ZplError> {
        let node = self.node(object)?;
        loop {
            let progress = self.truncate_locked(&mut node.write(), size, caller)?;
            match progress {
                Progress::Done(()) => return self.commit_always(object),
                Progress::Paused { until, .. } => self.wait_for(until)?,
            }
        }
    }

    /// Whether setting this length, or punching this range, spans several groups: then it belongs
    /// in a thread that may block.
    #[must_use]
    pub fn takes_many_groups(&self, object: ObjectId, bytes: Range<u64>) -> bool {
        let Ok(node) = self.node(object) else { return false };
        let object = node.state().read().object().clone();
        let (_, room) = self.engine.room_for_frees();
        let Ok(block_size) = object.data_block_size().map(u64::from) else { return false };
        object.blocks_on_disk() > room
            && (bytes.end - bytes.start.min(bytes.end)) / block_size.max(1) > room
    }

    /// Sets the length of a locked file, or an intermediate one when too much would be freed
    /// together.
    pub(super) fn truncate_locked(
        &self,
        state: &mut NodeState,
        wanted: u64,
        caller: Caller,
    ) -> Result<Progress<()>, ZplError> {
        let place = state.place();
        match state.znode().kind {
            FileKind::Directory => return Err(ZplError::IsDirectory { place }),
            FileKind::Regular => {}
            _ => return Err(ZplError::Invalid { place, problem: "only files have a length" }),
        }
        let forbidden = [FileFlags::IMMUTABLE, FileFlags::READONLY, FileFlags::APPENDONLY];
        self.check_flags(state, &forbidden)?;
        if wanted > MAX_SIZE {
            return Err(ZplError::TooBig { place });
        }
        let object = state.object().clone();
        let old = state.znode().size;
        let (mut size, mut blocks) = (wanted, 0);
        if wanted < old {
            let block_size = u64::from(object.data_block_size()?);
            let (open, room) = self.engine.room_for_frees();
            let goes = BlockId(wanted.div_ceil(block_size))..BlockId(u64::MAX);
            let piece = object.last_piece(goes.clone(), room.max(1))?;
            if piece.blocks > room {
                return Ok(Progress::Paused { until: open, rest: () });
            }
            if piece.first > goes.start {
                size = piece.first.0.saturating_mul(block_size).min(old);
            }
            blocks = piece.blocks;
        }
        self.drop_capabilities(state)?;
        let changed = self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Size, size);
            self.touch(values, schema, Touch::Contents);
            if size == 0 {
                values.change_flags(schema, |flags| flags.without(FileFlags::SPARSE));
            }
            self.clear_set_id(state, values, schema, caller);
        })?;
        if wanted >= old {
            return self.extend(state, changed, old, size).map(Progress::Done);
        }
        self.check_edges(&object, &[size])?;
        let first = size / u64::from(object.data_block_size()?);
        let checked = object.check_blocks(BlockId(first)..BlockId(u64::MAX))?;
        let tx = match self.begin_freeing(&[&object], self.edge_bytes(&object)?, blocks)? {
            Freeing::Begun(tx) => tx,
            Freeing::After(until) => return Ok(Progress::Paused { until, rest: () }),
        };
        object.free_checked(&tx, size, Extent::ToEnd, &checked)?;
        self.shrink_empty(&tx, &object, size)?;
        let mode = state.znode().mode;
        changed.apply(&tx, state)?;
        self.log_size(&tx, state, mode);
        if size == wanted {
            return Ok(Progress::Done(()));
        }
        Ok(Progress::Paused { until: tx.txg(), rest: () })
    }

    /// Total size of the blocks changed at the edges of a range.
    pub(super) fn edge_bytes(&self, object: &LiveObject) -> Result<u64, ZplError> {
        Ok(DNODE_BYTES + 2 * u64::from(object.data_block_size()?))
    }

    /// Extends a file, with a block that could hold it.
    pub(super) fn extend(
        &self,
        state: &mut NodeState,
        changed: Prepared,
        old: u64,
        size: u64,
    ) -> Result<(), ZplError> {
        let object = state.object().clone();
        let record_size = u64::from(self.options().reading.record_size);
        self.grown_size(&object, old, size)?;
        let tx = self.begin(&[&object], SpaceDemand::Takes(DNODE_BYTES + record_size))?;
        self.grow_block(&tx, &object, old, size)?;
        let mode = state.znode().mode;
        changed.apply(&tx, state)?;
        self.log_size(&tx, state, mode);
        Ok(())
    }

    /// Logs a new length, and the mode if it changed.
    pub(super) fn log_size(&self, tx: &dyn Transaction, state: &NodeState, mode: u32) {
        let mut mask = SetAttr::SIZE | SetAttr::MTIME;
        if state.znode().mode != mode {
            mask |= SetAttr::MODE;
        }
        let change = LoggedAttributes { mask, ..LoggedAttributes::default() };
        self.log_attributes(tx, state, &change);
    }
}

/// The mode of a file after a change by a caller who may not keep set-user-id and set-group-id, if
/// it differs.
pub(super) fn mode_without_set_id(state: &NodeState, caller: Caller) -> Option<u32> {
    const EXECUTE: u32 = 0o111;
    let mode = state.znode().mode;
    let bits = SET_USER_ID | SET_GROUP_ID;
    let gone = if mode & EXECUTE != 0 { bits } else { SET_USER_ID };
    (caller.privilege == Privilege::Ordinary && mode & gone != 0).then_some(mode & !gone)
}

/// Reads the blocks partly kept by a change of these bytes into the cache, so that it does not fail
/// halfway.
pub(super) fn read_edges(object: &LiveObject, offset: u64, end: u64) -> Result<(), ZplError> {
    let block_size = u64::from(object.data_block_size()?);
    let (first, last) = (offset / block_size, end.saturating_sub(1) / block_size);
    if first >= last {
        return Ok(());
    }
    for (block, place) in [(first, offset), (last, end)] {
        if !place.is_multiple_of(block_size) {
            object.read_block(BlockId(block))?;
        }
    }
    Ok(())
}
