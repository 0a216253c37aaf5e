//! Reserving space for files and punching holes, as `fallocate` does (spec 05, section 9.2).

use super::admission::{Freeing, Progress};
use super::caller::Caller;
use super::change::Touch;
use super::contents::{MAX_SIZE, mode_without_set_id, read_edges};
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::options::{DatasetSpace, LiveOptions};
use crate::error::ZplError;
use rzfs_dmu::live::Extent;
use rzfs_format::sa::Attribute;
use rzfs_format::znode::FileFlags;
use rzfs_format::{BlockId, ObjectId};

/// The operation on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allocation {
    /// Extends the file to the end of the range; space is only checked, not reserved.
    Reserve,
    /// Only checks the available space, and clears set-user-id and set-group-id as every change
    /// does.
    ReserveKeepSize,
    /// Punches a hole.
    Punch,
    /// Punches a hole, and extends the file to the end of the range.
    Zero,
}

/// How current the space accounts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accounts {
    /// Without the latest writes.
    Open,
    /// With everything written before a wait for them.
    Settled,
}

impl LiveFileSystem {
    /// Reserves or frees a range of a file, as `fallocate` does.
    ///
    /// # Errors
    /// It is not a regular file, its flags forbid it, it would become too long, or the space is not
    /// available.
    pub fn allocate(
        &self,
        object: ObjectId,
        offset: u64,
        len: u64,
        allocation: Allocation,
        caller: Caller,
    ) -> Result<(), ZplError> {
        let node = self.node(object)?;
        let (mut len, mut accounts) = (len, Accounts::Open);
        loop {
            let mut state = node.write();
            let progress =
                self.allocate_locked(&mut state, offset, len, (allocation, accounts), caller)?;
            drop(state);
            match progress {
                Progress::Done(()) => return self.commit_always(object),
                Progress::Paused { until, rest } => {
                    self.wait_for(until)?;
                    (len, accounts) = (rest, Accounts::Settled);
                }
            }
        }
    }

    /// Whether reserving this many bytes waits for a transaction group: then it belongs in a thread
    /// that may block.
    #[must_use]
    pub fn waits_for_accounts(&self, len: u64) -> bool {
        let options = self.options();
        // Pending writes are not in the accounts yet, and may be a large part of the space.
        reserved(&options, len) > available(&*options.space) / 2
    }

    /// Refuses to reserve more than the available space; returns what must be on disk before that
    /// is known. The space is not kept for the file: others may use it before it is written.
    fn require_room(&self, len: u64, accounts: Accounts) -> Result<Progress<()>, ZplError> {
        if accounts == Accounts::Open && self.waits_for_accounts(len) {
            return Ok(Progress::Paused { until: self.engine.open_txg(), rest: () });
        }
        let options = self.options();
        match reserved(&options, len) <= available(&*options.space) {
            true => Ok(Progress::Done(())),
            false => Err(ZplError::NoSpace { objset: self.objset().id() }),
        }
    }

    /// Performs the operation, or its end when too much would be freed together: the remainder is
    /// then this many bytes at the start of the range.
    fn allocate_locked(
        &self,
        state: &mut NodeState,
        offset: u64,
        len: u64,
        (allocation, accounts): (Allocation, Accounts),
        caller: Caller,
    ) -> Result<Progress<(), u64>, ZplError> {
        state.require_regular()?;
        let place = state.place();
        self.check_flags(state, &[FileFlags::IMMUTABLE, FileFlags::READONLY])?;
        let end = offset.checked_add(len).filter(|end| *end <= MAX_SIZE && len > 0);
        let end = end.ok_or(ZplError::TooBig { place })?;
        let size = state.znode().size;
        let frees = matches!(allocation, Allocation::Punch | Allocation::Zero);
        if frees {
            self.check_flags(state, &[FileFlags::APPENDONLY])?;
        } else if let Progress::Paused { until, .. } = self.require_room(len, accounts)? {
            return Ok(Progress::Paused { until, rest: len });
        }
        let new_size = match allocation {
            Allocation::Reserve | Allocation::Zero => size.max(end),
            Allocation::ReserveKeepSize | Allocation::Punch => size,
        };
        if !frees && new_size == size && mode_without_set_id(state, caller).is_none() {
            return self.drop_capabilities(state).map(Progress::Done);
        }
        let object = state.object().clone();
        let (mut start, mut blocks) = (offset, 0);
        if frees && offset < size {
            let (open, room) = self.engine.room_for_frees();
            let block_size = u64::from(object.data_block_size()?);
            let first = BlockId(offset.div_ceil(block_size));
            let goes = first..first.max(BlockId(end / block_size));
            let piece = object.last_piece(goes, room.max(1))?;
            if piece.blocks > room {
                return Ok(Progress::Paused { until: open, rest: len });
            }
            if piece.first > first {
                start = piece.first.0.saturating_mul(block_size);
            }
            blocks = piece.blocks;
        }
        self.drop_capabilities(state)?;
        let changed = self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Size, new_size);
            self.touch(values, schema, Touch::Contents);
            self.clear_set_id(state, values, schema, caller);
        })?;
        if !frees {
            return self.extend(state, changed, size, new_size).map(Progress::Done);
        }
        if start < size {
            self.check_edges(&object, &[start, end.min(size)])?;
        }
        self.grown_size(&object, size, new_size)?;
        read_edges(&object, start, end.min(size))?;
        let block_size = u64::from(object.data_block_size()?);
        let last = end.min(size).div_ceil(block_size);
        let checked = object.check_blocks(BlockId(start / block_size)..BlockId(last))?;
        let tx = match self.begin_freeing(&[&object], self.edge_bytes(&object)?, blocks)? {
            Freeing::Begun(tx) => tx,
            Freeing::After(until) => return Ok(Progress::Paused { until, rest: len }),
        };
        if start < size {
            let len = Extent::Bytes(end.min(size) - start);
            object.free_checked(&tx, start, len, &checked)?;
        }
        self.grow_block(&tx, &object, size, new_size)?;
        let mode = state.znode().mode;
        changed.apply(&tx, state)?;
        self.log_hole(&tx, state, start, end.min(size).saturating_sub(start));
        if new_size != size || state.znode().mode != mode {
            self.log_size(&tx, state, mode);
        }
        if start == offset {
            return Ok(Progress::Done(()));
        }
        Ok(Progress::Paused { until: tx.txg(), rest: start - offset })
    }
}

/// The space required for this many bytes, in hundredths of a byte.
fn reserved(options: &LiveOptions, len: u64) -> u128 {
    let percent = options.fallocate_reserve_percent;
    u128::from(options.space.with_copies(len)) * u128::from(percent)
}

/// The available space, in hundredths of a byte.
fn available(space: &dyn DatasetSpace) -> u128 {
    u128::from(space.usage().available) * 100
}
