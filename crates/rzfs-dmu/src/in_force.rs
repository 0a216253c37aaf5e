//! Whether a pointer is still in force.

use rzfs_format::BlockPointer;

/// Knows whether a block that is being read is still where it was found: a sync may have replaced
/// or freed it since, and reused its space.
///
/// Asked only after a failed read, before that counts as an error.
pub(crate) trait InForce: Sync {
    /// Whether the block must still be there. `false` may be a mere suspicion: the reader then
    /// looks the block up again.
    fn is_in_force(&self, pointer: &BlockPointer) -> bool;
}

/// For blocks that are never replaced while they are read.
pub(crate) struct Always;

impl InForce for Always {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        true
    }
}

/// For blocks not needed yet: later readers will check.
pub(crate) struct Never;

impl InForce for Never {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        false
    }
}
