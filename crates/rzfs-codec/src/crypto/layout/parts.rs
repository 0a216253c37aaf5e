//! A block taken apart into what is encrypted and what is only authenticated.

use std::ops::Range;

/// Scratch memory above this size is given back after use.
const KEPT_SCRATCH: usize = 1 << 20;

/// A block taken apart.
#[derive(Default)]
pub(super) struct Parts {
    /// What is only authenticated.
    pub(super) aad: Vec<u8>,
    /// Where the encrypted parts are, one after another.
    pub(super) encrypted: Vec<Range<usize>>,
    /// The encrypted parts.
    pub(super) message: Vec<u8>,
}

impl Parts {
    /// Forgets the block, and keeps memory for the next.
    pub(super) fn clear(&mut self) {
        for bytes in [&mut self.aad, &mut self.message] {
            bytes.clear();
            bytes.shrink_to(KEPT_SCRATCH);
        }
        self.encrypted.clear();
        self.encrypted.shrink_to(KEPT_SCRATCH / size_of::<Range<usize>>());
    }
}
