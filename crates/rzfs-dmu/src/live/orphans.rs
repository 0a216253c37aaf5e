//! Blocks that were allocated for changes that never reach the disk ([`super::succession`]).

use parking_lot::Mutex;
use rzfs_format::{BlockPointer, Txg};

/// Blocks of a set that nothing refers to.
#[derive(Debug, Default)]
pub(super) struct Orphans(Mutex<Vec<BlockPointer>>);

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn add(&self, blocks: impl IntoIterator<Item = BlockPointer>) {
        self.0.lock().extend(blocks);
    }

    /// Those allocated up to `txg`.
    pub(super) fn take(&self, txg: Txg) -> Vec<BlockPointer> {
        self.0.lock().extract_if(.., |block| block.physical_birth() <= txg).collect()
    }
}
