//! Fault injection for tests.

use bytes::Bytes;
use rzfs_format::BlockPointer;
use rzfs_format::units::Bookmark;

/// Changes blocks after they were verified and decoded, before they are used: this lets tests see
/// the effect of a damaged structure with a right checksum.
pub trait BlockInjector: Send + Sync {
    /// The contents to use instead of `block`; of the same length.
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes;

    /// The bytes to use instead of stored ones of the same length: of a block before it is
    /// decrypted and decompressed, of a gang header, or of an intent log block.
    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        let _ = pointer;
        stored
    }
}
