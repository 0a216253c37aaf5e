//! Blocks found damaged, for the pool's error log.

use crate::BlockError;
use parking_lot::Mutex;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, Txg};
use std::collections::BTreeSet;

/// Maximum number of blocks remembered at a time.
const MOST: usize = 1 << 16;

/// A block without a readable copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DamagedBlock {
    /// The block.
    pub bookmark: Bookmark,
    /// When its copies were written.
    pub birth: Txg,
}

/// The damaged blocks found by reads since they were last taken.
#[derive(Debug, Default)]
pub struct Damage {
    blocks: Mutex<BTreeSet<DamagedBlock>>,
}

impl Damage {
    /// Records a block that cannot be read, if that is because of damage.
    pub(crate) fn note(&self, bookmark: Bookmark, pointer: &BlockPointer, error: &BlockError) {
        if matches!(error, BlockError::KeyNotLoaded | BlockError::Redacted | BlockError::Overtaken)
        {
            return;
        }
        let mut blocks = self.blocks.lock();
        if blocks.len() < MOST {
            blocks.insert(DamagedBlock { bookmark, birth: pointer.physical_birth() });
        }
    }

    /// The blocks.
    #[must_use]
    pub fn all(&self) -> BTreeSet<DamagedBlock> {
        self.blocks.lock().clone()
    }

    /// Takes the blocks out.
    #[must_use]
    pub fn take(&self) -> BTreeSet<DamagedBlock> {
        std::mem::take(&mut *self.blocks.lock())
    }
}
