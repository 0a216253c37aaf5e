//! Lies for tests.

use bytes::Bytes;
use rzfs_format::BlockPointer;
use rzfs_format::units::Bookmark;

/// Changes blocks after they were verified and decoded, before anyone sees them: how tests find
/// out what a damaged structure with a right checksum does to everything above.
pub trait BlockInjector: Send + Sync {
    /// The contents to use instead of `block`; of the same length.
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes;

    /// The bytes to use instead of what is stored, of the same length: of a block before it is
    /// decrypted and decompressed, of a gang header, of a block of an intent log.
    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        let _ = pointer;
        stored
    }
}
