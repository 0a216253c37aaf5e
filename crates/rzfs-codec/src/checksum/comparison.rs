//! Comparing the checksum of a block with the one that is stored.

use rzfs_format::block_pointer::Protection;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};

/// Why a block does not verify.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumMismatch {
    /// The bytes have another checksum than the one stored.
    #[error("{}: stored {stored}, computed {computed}", function.name())]
    Differs {
        /// The function.
        function: ChecksumFunction,
        /// What the pointer or the trailer says; words that are not compared are zero.
        stored: ChecksumValue,
        /// What the bytes give; words that are not compared are zero.
        computed: ChecksumValue,
    },
    /// The trailer of an embedded checksum has no magic in either byte order.
    #[error("{}: no checksum trailer", function.name())]
    NoTrailer {
        /// The function.
        function: ChecksumFunction,
    },
    /// The block is too small, or says that it uses more bytes than it has.
    #[error("{}: {used} bytes cannot be in a block of {size}", function.name())]
    Extent {
        /// The function.
        function: ChecksumFunction,
        /// Bytes that the checksum would cover.
        used: u64,
        /// Bytes of the block.
        size: usize,
    },
    /// The function cannot be at this place.
    #[error("{} is not a checksum of such a block", function.name())]
    Misplaced {
        /// The function.
        function: ChecksumFunction,
    },
}

pub(super) fn compare(
    function: ChecksumFunction,
    stored: ChecksumValue,
    computed: ChecksumValue,
) -> Result<(), ChecksumMismatch> {
    if stored == computed {
        Ok(())
    } else {
        Err(ChecksumMismatch::Differs { function, stored, computed })
    }
}

/// Whether a pointer with this protection keeps a MAC in its checksum words 2 and 3.
pub(super) const fn shares_words_with_mac(protection: Protection) -> bool {
    match protection {
        Protection::None | Protection::Objset => false,
        Protection::Encrypted | Protection::Authenticated | Protection::IndirectMac => true,
    }
}

/// Compares when words 2 and 3 of `stored` are a MAC.
pub(super) fn compare_folded(
    function: ChecksumFunction,
    stored: ChecksumValue,
    computed: ChecksumValue,
) -> Result<(), ChecksumMismatch> {
    let [a, b] = fold(function, computed);
    let [x, y, ..] = stored.0;
    compare(function, ChecksumValue([x, y, 0, 0]), ChecksumValue([a, b, 0, 0]))
}

/// What remains of a checksum when a MAC takes words 2 and 3 (spec 02, section 4.12): words 0
/// and 1 of a function strong enough to be cut off, else all words folded into two.
#[must_use]
pub const fn fold(function: ChecksumFunction, value: ChecksumValue) -> [u64; 2] {
    let [a, b, c, d] = value.0;
    if function.is_dedup_safe() { [a, b] } else { [a ^ c, b ^ d] }
}
