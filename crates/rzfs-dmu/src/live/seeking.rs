//! Finding data and holes in a live object, on disk or not.

use super::object::LiveObject;
use super::state::{NewestBlock, ObjectState};
use super::version::Version;
use crate::DmuError;
use crate::tree::Seek;
use rzfs_format::dnode::Dnode;
use std::sync::Arc;

/// What memory knows about a block.
enum Step {
    /// It is a match.
    Here,
    /// It is not, and neither is any before this one.
    Next(u64),
    /// The disk decides, up to the first block that memory may know about.
    OnDisk { dnode: Arc<Dnode>, until: u64 },
}

/// The first block from `block` on with contents in memory.
fn next_in_memory(state: &ObjectState, block: u64) -> u64 {
    let first = |version: &Version| {
        let written = version.blocks.range(block..).next().map(|(block, _)| *block);
        let cloned = version.clones.range(block..).next().map(|(block, _)| *block);
        written.into_iter().chain(cloned).min()
    };
    state.versions.iter().filter_map(first).min().unwrap_or(u64::MAX)
}

/// The first block from `block` on that a txg has turned into a hole.
fn next_freed(state: &ObjectState, block: u64) -> u64 {
    let first = |version: &Version| version.freed.next(block).map(|range| range.start.max(block));
    state.versions.iter().filter_map(first).min().unwrap_or(u64::MAX)
}

/// The first block after `block` that may not be a hole, if `block` is one.
fn behind_hole(state: &ObjectState, block: u64) -> u64 {
    let freed_to = |version: &Version| {
        version.freed.next(block).filter(|range| range.contains(&block)).map(|range| range.end)
    };
    let freed = state.versions.iter().filter_map(freed_to).min().unwrap_or(u64::MAX);
    next_in_memory(state, block.saturating_add(1)).min(freed)
}

fn step(state: &ObjectState, seek: Seek, block: u64) -> Step {
    let is_hole = match state.in_memory(block) {
        NewestBlock::Buffer(_) => false,
        NewestBlock::Clone(pointer) => pointer.is_hole(),
        NewestBlock::Hole => true,
        NewestBlock::OnDisk(dnode) => {
            let until = next_in_memory(state, block).min(next_freed(state, block));
            return Step::OnDisk { dnode, until };
        }
    };
    match seek {
        Seek::Data if is_hole => Step::Next(behind_hole(state, block)),
        Seek::Hole if !is_hole => Step::Next(block.saturating_add(1)),
        _ => Step::Here,
    }
}

impl LiveObject {
    /// The first byte at or after `offset` that is not in a hole, on disk or not; `None` when there
    /// is none up to the last block. The caller keeps others from changing the object.
    ///
    /// # Errors
    /// An indirect block cannot be read, or the object does not exist any more.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.seek(Seek::Data, offset)
    }

    /// The first byte at or after `offset` that is in a hole; `None` when the data reaches to the
    /// end of the last block. The caller keeps others from changing the object.
    ///
    /// # Errors
    /// As for [`LiveObject::next_data`].
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, DmuError> {
        self.seek(Seek::Hole, offset)
    }

    fn seek(&self, seek: Seek, offset: u64) -> Result<Option<u64>, DmuError> {
        let block_size = u64::from(self.data_block_size()?).max(1);
        let last = self.max_block_id()?.0;
        let mut block = offset / block_size;
        while block <= last {
            let (dnode, until) = {
                let state = self.state();
                loop {
                    match step(&state, seek, block) {
                        Step::Here => {
                            return Ok(Some(block.saturating_mul(block_size).max(offset)));
                        }
                        Step::Next(next) if next > last => return Ok(None),
                        Step::Next(next) => block = next,
                        Step::OnDisk { dnode, until } => break (dnode, until),
                    }
                }
            };
            let on_disk = self.with_dnode(dnode);
            let end = on_disk.dnode().max_block_id.0.saturating_add(1);
            let found = match on_disk.tree().seek(seek, block) {
                Err(_) if on_disk.is_replaced() => continue,
                Err(damage) => return Err(damage.error),
                Ok(found) => found.unwrap_or(end),
            };
            if found < until && found < end {
                return Ok(Some(found.saturating_mul(block_size).max(offset)));
            }
            block = found.min(until);
        }
        Ok(None)
    }
}
