//! A block's contents in memory.

use bytes::Bytes;
use rzfs_cache::Weighted;
use rzfs_format::{BlockPointer, ByteOrder};

/// Zeros shared by holes up to this size.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// The contents of a logical block, decrypted and decompressed, shared and immutable.
///
/// The bytes are as the writer left them, so everything except byte strings has to be decoded in
/// `order`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The contents: the block's logical size.
    pub data: Bytes,
    /// The byte order of the writer.
    pub order: ByteOrder,
}

impl Block {
    /// The contents of a hole of `len` bytes.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        let data = ZEROS.get(..len).map_or_else(|| Bytes::from(vec![0; len]), Bytes::from_static);
        Self { data, order: ByteOrder::NATIVE }
    }

    /// Whether this can be the block of a pointer with its identity.
    pub(crate) fn can_be_of(&self, pointer: &BlockPointer) -> bool {
        self.data.len() as u64 == pointer.logical_size()
    }
}

impl Weighted for Block {
    fn weight(&self) -> usize {
        crate::contents::cached_cost(self.data.len()) as usize
    }
}
