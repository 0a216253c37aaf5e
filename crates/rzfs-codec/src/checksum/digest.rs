//! Digests as the four words of a checksum.

use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;

/// Words of a digest whose bytes are memory: read in the block's order.
pub(super) fn words(digest: &[u8], order: ByteOrder) -> ChecksumValue {
    let mut value = ChecksumValue::default();
    for (word, bytes) in value.0.iter_mut().zip(digest.as_chunks::<8>().0) {
        *word = order.u64(*bytes);
    }
    value
}

/// Words of SHA-256: numbers of the digest's own big-endian order, whatever the block's.
pub(super) fn sha256_words(digest: &[u8]) -> ChecksumValue {
    words(digest, ByteOrder::Big)
}
