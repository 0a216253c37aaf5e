//! Checking that the parents of blocks on disk can be read.
//!
//! The txg that writes or frees blocks has to read their parents, when it is too late to report
//! damage. So they are checked before: once before the transaction begins, as others should not
//! wait for devices then, and in the transaction for what has changed meanwhile.

use super::checked::CheckedBlocks;
use super::object::LiveObject;
use super::version::Version;
use crate::DmuError;
use crate::tree::AboveCheck;
use rzfs_format::{BlockId, Txg};
use std::ops::Range;

/// Indirect blocks checked before an object is freed.
const MOST_CHECKED: u64 = 1024;

impl LiveObject {
    /// Checks that blocks can be written, shared or freed: their parents on disk can be read. To be
    /// called before a transaction begins, which then does not wait for devices; it rechecks what
    /// has changed since.
    ///
    /// # Errors
    /// A parent cannot be read.
    pub fn check_blocks(&self, blocks: Range<BlockId>) -> Result<CheckedBlocks, DmuError> {
        let blocks = blocks.start.0..blocks.end.0;
        let newest = self.check_above(blocks.clone(), &CheckedBlocks::NONE)?;
        Ok(CheckedBlocks::new(self.id(), blocks, newest))
    }

    /// The same in a transaction, after a check.
    pub(super) fn check_again(
        &self,
        blocks: Range<u64>,
        checked: &CheckedBlocks,
    ) -> Result<(), DmuError> {
        self.check_above(blocks, checked).map(drop)
    }

    /// Reads unchecked parents of blocks; returns the birth of the newest block on disk.
    fn check_above(&self, blocks: Range<u64>, checked: &CheckedBlocks) -> Result<Txg, DmuError> {
        let newer_than = checked.known_until(self.id(), &blocks);
        loop {
            let Some(on_disk) = self.synced() else { return Ok(Txg(0)) };
            let tree = on_disk.tree();
            let check = AboveCheck { blocks: blocks.clone(), newer_than, limit: u64::MAX };
            match tree.check_above(check) {
                Err(_) if on_disk.is_replaced() => {}
                result => return result.map(|()| tree.newest_birth()),
            }
        }
    }

    /// Checks one block that is about to be replaced, unless a txg in progress already changes it.
    pub(super) fn check_above_block(&self, block: BlockId) -> Result<(), DmuError> {
        let is_changed = {
            let state = self.state();
            let is_known =
                |version: &Version| version.blocks.contains_key(&block.0) || version.hides(block.0);
            state.versions.iter().any(is_known)
        };
        if is_changed {
            return Ok(());
        }
        self.check_again(block.0..block.0.saturating_add(1), &CheckedBlocks::NONE)
    }

    /// Checks that all parents of its blocks can be read, as far as possible in reasonable time:
    /// only the beginning of a very long object is checked.
    ///
    /// # Errors
    /// One cannot be read: freeing the object would leak what is below it.
    pub fn check_tree(&self) -> Result<(), DmuError> {
        loop {
            let Some(on_disk) = self.synced() else { return Ok(()) };
            let (blocks, newer_than) = (0..u64::MAX, Txg(0));
            let check = AboveCheck { blocks, newer_than, limit: MOST_CHECKED };
            match on_disk.tree().check_above(check) {
                Err(_) if on_disk.is_replaced() => {}
                result => return result,
            }
        }
    }
}
