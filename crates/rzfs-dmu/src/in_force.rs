//! Whether what a pointer refers to is still what there is.

use rzfs_format::BlockPointer;

/// Knows whether a block that is being read belongs where it was found to belong: a sync may have
/// replaced or freed it since, and given its space to another one.
///
/// Only who has failed to read a block asks, before that counts as an error of anybody.
pub(crate) trait InForce: Sync {
    /// Whether the block has to be there still. `false` may also be a mere suspicion: whoever reads
    /// looks for the block anew then.
    fn is_in_force(&self, pointer: &BlockPointer) -> bool;
}

/// Of blocks that nobody replaces while they are read.
pub(crate) struct Always;

impl InForce for Always {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        true
    }
}

/// Of blocks that nobody wants yet: whoever wants them then will see.
pub(crate) struct Never;

impl InForce for Never {
    fn is_in_force(&self, _: &BlockPointer) -> bool {
        false
    }
}
