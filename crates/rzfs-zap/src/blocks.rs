//! Where a ZAP's blocks come from, and how they are changed.

use std::convert::Infallible;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use rzfs_format::zap::swap_block;
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::ZapError;

/// The blocks of an object that holds a ZAP.
pub trait ZapBlocks {
    /// Why a block could not be read or changed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Bytes of each block.
    fn block_size(&self) -> usize;

    /// Number of blocks: the last one's number plus 1.
    fn block_count(&self) -> Result<u64, Self::Error>;

    /// The contents of a block, and the byte order in which they are. A hole is zeros.
    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Self::Error>;
}

/// A block while it is changed.
#[derive(Debug)]
pub struct BlockMut<'a> {
    /// The contents.
    pub bytes: &'a mut [u8],
    /// The byte order of the contents; a reader that swaps them records it here.
    pub order: &'a mut ByteOrder,
}

/// The blocks of an object in a transaction that may change them.
///
/// What was changed is seen by the next [`ZapBlocks::read_block`]. Who holds bytes that were read
/// before keeps them as they were, which costs the change a copy; a [`crate::ZapWriter`] holds
/// none while it changes a block, so an implementation with shared buffers changes them in place.
pub trait ZapBlocksMut: ZapBlocks {
    /// Calls `edit` to change a block in place. A hole, or a block beyond the end, is zeros in the
    /// machine's byte order; after this it exists, and what is between it and the former end is
    /// holes.
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, Self::Error>;

    /// Gives a block other contents, a whole block in the machine's byte order, without reading
    /// those that it had. A block beyond the end extends the object.
    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), Self::Error>;

    /// Changes the size of the only block, in the same transaction as its contents; they are cut
    /// or filled up with zeros. Larger sizes than 128 KiB are asked for only when the ZAP's
    /// [limit](crate::Tunables::micro_max_size) says so: the first time, the dataset's
    /// `large_microzap` becomes active.
    fn set_block_size(&mut self, size: usize) -> Result<(), Self::Error>;

    /// Makes blocks holes. When the last block is among them, the object ends before the first.
    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Self::Error>;
}

/// Changes a block, in the machine's byte order from then on.
pub(crate) fn edit_block<B: ZapBlocksMut, R>(
    blocks: &mut B,
    id: BlockId,
    edit: impl FnOnce(&mut [u8]) -> Result<R, FormatError>,
) -> Result<R, ZapError<B::Error>> {
    let edited = blocks.modify_block(id, |block| {
        in_native_order(block.bytes, *block.order)?;
        *block.order = ByteOrder::NATIVE;
        edit(block.bytes)
    });
    edited.map_err(ZapError::Blocks)?.map_err(ZapError::corrupt(id))
}

/// Turns a block into the machine's byte order.
pub(crate) fn in_native_order(block: &mut [u8], order: ByteOrder) -> Result<(), FormatError> {
    if order == ByteOrder::NATIVE { Ok(()) } else { swap_block(block, order) }
}

impl<B: ZapBlocks + ?Sized> ZapBlocks for &B {
    type Error = B::Error;

    fn block_size(&self) -> usize {
        (**self).block_size()
    }

    fn block_count(&self) -> Result<u64, Self::Error> {
        (**self).block_count()
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Self::Error> {
        (**self).read_block(id)
    }
}

impl<B: ZapBlocks + ?Sized> ZapBlocks for &mut B {
    type Error = B::Error;

    fn block_size(&self) -> usize {
        (**self).block_size()
    }

    fn block_count(&self) -> Result<u64, Self::Error> {
        (**self).block_count()
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Self::Error> {
        (**self).read_block(id)
    }
}

impl<B: ZapBlocksMut> ZapBlocksMut for &mut B {
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, Self::Error> {
        (**self).modify_block(id, edit)
    }

    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), Self::Error> {
        (**self).write_block(id, contents)
    }

    fn set_block_size(&mut self, size: usize) -> Result<(), Self::Error> {
        (**self).set_block_size(size)
    }

    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Self::Error> {
        (**self).free_blocks(blocks)
    }
}

/// Blocks in memory; those that are absent read as zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryBlocks {
    block_size: usize,
    order: ByteOrder,
    blocks: Vec<Bytes>,
    /// Byte orders of blocks that were changed; all others have that of the whole.
    orders: Vec<Option<ByteOrder>>,
}

impl MemoryBlocks {
    /// Blocks of `block_size` bytes, in one byte order.
    #[must_use]
    pub fn new(block_size: usize, order: ByteOrder, blocks: Vec<Bytes>) -> Self {
        Self { block_size, order, blocks, orders: Vec::new() }
    }

    /// No blocks yet, in the machine's byte order.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(512, ByteOrder::NATIVE, Vec::new())
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

    /// The blocks of a ZAP in this byte order.
    pub(crate) fn in_order(self, order: ByteOrder) -> Result<Self, ZapError<Infallible>> {
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate() {
            let mut block = block.to_vec();
            if self.order_of(index) != order {
                let corrupt = ZapError::corrupt(BlockId(index as u64));
                swap_block(&mut block, order.swapped()).map_err(corrupt)?;
            }
            blocks.push(block.into());
        }
        Ok(Self::new(self.block_size, order, blocks))
    }

    fn order_of(&self, index: usize) -> ByteOrder {
        self.orders.get(index).copied().flatten().unwrap_or(self.order)
    }

    /// Makes the block exist, and says that it has this byte order.
    fn set_order(&mut self, index: usize, order: ByteOrder) {
        if self.blocks.len() <= index {
            let size = self.block_size;
            self.blocks.resize_with(index + 1, || vec![0; size].into());
        }
        if order != self.order_of(index) {
            self.orders.resize(self.blocks.len().max(self.orders.len()), None);
            self.orders[index] = Some(order);
        }
    }
}

impl ZapBlocks for MemoryBlocks {
    type Error = Infallible;

    fn block_size(&self) -> usize {
        self.block_size
    }

    fn block_count(&self) -> Result<u64, Infallible> {
        Ok(self.blocks.len() as u64)
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Infallible> {
        let index = usize::try_from(id.0).unwrap_or(usize::MAX);
        let block = self.blocks.get(index).cloned();
        Ok((block.unwrap_or_else(|| vec![0; self.block_size].into()), self.order_of(index)))
    }
}

impl ZapBlocksMut for MemoryBlocks {
    /// # Panics
    /// When memory has no room for a block of this number.
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, Infallible> {
        let index = usize::try_from(id.0).expect("blocks fit in memory");
        let mut order =
            if index < self.blocks.len() { self.order_of(index) } else { ByteOrder::NATIVE };
        self.set_order(index, order);
        let shared = std::mem::take(&mut self.blocks[index]);
        let mut bytes = shared.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let result = edit(BlockMut { bytes: &mut bytes, order: &mut order });
        self.blocks[index] = bytes.freeze();
        self.set_order(index, order);
        Ok(result)
    }

    /// # Panics
    /// When memory has no room for a block of this number.
    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), Infallible> {
        let index = usize::try_from(id.0).expect("blocks fit in memory");
        self.set_order(index, ByteOrder::NATIVE);
        self.blocks[index] = contents;
        Ok(())
    }

    fn set_block_size(&mut self, size: usize) -> Result<(), Infallible> {
        self.block_size = size;
        if let Some(block) = self.blocks.first_mut() {
            let mut bytes = block.to_vec();
            bytes.resize(size, 0);
            *block = bytes.into();
        }
        Ok(())
    }

    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Infallible> {
        let count = self.blocks.len();
        let start = usize::try_from(blocks.start).unwrap_or(count).min(count);
        let end = usize::try_from(blocks.end).unwrap_or(count).min(count);
        if end == count {
            self.blocks.truncate(start);
            self.orders.truncate(start);
        }
        for block in self.blocks.iter_mut().take(end).skip(start) {
            *block = vec![0; self.block_size].into();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_changed_in_place_unless_they_are_shared() {
        let mut blocks = MemoryBlocks::new(4, ByteOrder::Big, vec![vec![1; 4].into()]);
        let set = |blocks: &mut MemoryBlocks, value| {
            blocks.modify_block(BlockId(0), |block| {
                block.bytes[0] = value;
                block.bytes.as_ptr()
            })
        };
        let (first, second) = (set(&mut blocks, 2).unwrap(), set(&mut blocks, 3).unwrap());
        assert_eq!(first, second);
        let (kept, order) = blocks.read_block(BlockId(0)).unwrap();
        assert_eq!(order, ByteOrder::Big);
        assert_ne!(set(&mut blocks, 4).unwrap(), first);
        assert_eq!((kept[0], blocks.blocks()[0][0]), (3, 4));
    }

    #[test]
    fn blocks_come_and_go_at_the_end() {
        let mut blocks = MemoryBlocks::new(4, ByteOrder::NATIVE.swapped(), Vec::new());
        blocks.modify_block(BlockId(3), |block| block.bytes.fill(7)).unwrap();
        assert_eq!(
            (blocks.block_count().unwrap(), blocks.read_block(BlockId(3)).unwrap().1),
            (4, ByteOrder::NATIVE)
        );
        assert_eq!(blocks.read_block(BlockId(1)).unwrap().0, [0; 4][..]);
        blocks.write_block(BlockId(1), Bytes::from_static(&[1; 4])).unwrap();
        blocks.free_blocks(1..2).unwrap();
        assert_eq!((blocks.block_count().unwrap(), &blocks.blocks()[1][..]), (4, &[0; 4][..]));
        blocks.free_blocks(2..9).unwrap();
        assert_eq!(blocks.block_count(), Ok(2));
        blocks.free_blocks(1..2).unwrap();
        blocks.set_block_size(6).unwrap();
        assert_eq!(blocks.blocks(), [Bytes::from_static(&[0; 6])]);
    }
}
