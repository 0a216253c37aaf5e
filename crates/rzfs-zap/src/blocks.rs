//! Where a ZAP's blocks come from.

use std::convert::Infallible;

use bytes::Bytes;
use rzfs_format::{BlockId, ByteOrder};

/// The blocks of an object that holds a ZAP.
pub trait ZapBlocks {
    /// Why a block could not be read.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Bytes of each block.
    fn block_size(&self) -> usize;

    /// Number of blocks: the last one's number plus 1.
    fn block_count(&self) -> u64;

    /// The contents of a block, and the byte order in which they are. A hole is zeros.
    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Self::Error>;
}

impl<B: ZapBlocks + ?Sized> ZapBlocks for &B {
    type Error = B::Error;

    fn block_size(&self) -> usize {
        (**self).block_size()
    }

    fn block_count(&self) -> u64 {
        (**self).block_count()
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Self::Error> {
        (**self).read_block(id)
    }
}

/// Blocks in memory; those that are absent read as zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryBlocks {
    block_size: usize,
    order: ByteOrder,
    blocks: Vec<Bytes>,
}

impl MemoryBlocks {
    /// Blocks of `block_size` bytes, in one byte order.
    #[must_use]
    pub fn new(block_size: usize, order: ByteOrder, blocks: Vec<Bytes>) -> Self {
        Self { block_size, order, blocks }
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Bytes] {
        &self.blocks
    }

    /// The blocks, to change them.
    pub fn blocks_mut(&mut self) -> &mut Vec<Bytes> {
        &mut self.blocks
    }
}

impl ZapBlocks for MemoryBlocks {
    type Error = Infallible;

    fn block_size(&self) -> usize {
        self.block_size
    }

    fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Infallible> {
        let block = usize::try_from(id.0).ok().and_then(|index| self.blocks.get(index)).cloned();
        Ok((block.unwrap_or_else(|| vec![0; self.block_size].into()), self.order))
    }
}
