//! Changes of a microzap: one entry of 64 bytes in its block, and its element in the index.

use rzfs_format::zap::ZapHash;
use rzfs_format::zap::micro::{self, MicroBlock, MicroEntry};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use super::slots::Slots;
use super::{IndexEntry, Micro};
use crate::blocks::edit_block;
use crate::{Normalization, ZapBlocksMut, ZapError, ZapValue};

/// Steps in which the block grows.
const GROWTH: usize = 512;
/// Chunks of a leaf of the fat ZAP that a microzap becomes, and the most that one of its entries
/// takes there.
const FAT_LEAF_CHUNKS: usize = 638;
const FAT_ENTRY_CHUNKS: usize = 5;

/// Whether a microzap can have another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// An entry of the block is free.
    Free,
    /// None is free until the block has this size.
    AfterGrowth(usize),
    /// It has to become a fat ZAP.
    OnlyInFat,
}

impl Micro {
    /// A microzap without entries, for a block of this size.
    pub(crate) fn encode_empty(size: usize, salt: u64, normalization: Normalization) -> Vec<u8> {
        let mut block = vec![0; size];
        let order = ByteOrder::NATIVE;
        micro::encode_header(&mut block, order, salt, normalization);
        block
    }

    /// The number that an entry of a microzap has for this value, if it can have name and value.
    pub(crate) fn number(name: &[u8], value: &ZapValue) -> Option<u64> {
        value.single_u64().filter(|_| name.len() < micro::NAME_SIZE)
    }

    /// Whether there is room for another entry whose name has this hash, with blocks of at most
    /// `limit` bytes.
    pub(crate) fn room_for(&self, hash: ZapHash, limit: usize) -> Room {
        let same = self.with_hash(hash).take(FAT_LEAF_CHUNKS).count();
        if FAT_ENTRY_CHUNKS * (same + 1) >= FAT_LEAF_CHUNKS {
            // More could never be in one leaf.
            Room::OnlyInFat
        } else if self.index.len() < self.capacity() {
            Room::Free
        } else {
            let size = (self.size + 1).next_multiple_of(GROWTH);
            let limit = limit.min(micro::MAX_BLOCK_SIZE).next_multiple_of(GROWTH);
            if size <= limit { Room::AfterGrowth(size) } else { Room::OnlyInFat }
        }
    }

    const fn capacity(&self) -> usize {
        self.size / micro::ENTRY_SIZE - 1
    }

    /// Makes the block larger.
    pub(crate) fn grow<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        size: usize,
    ) -> Result<(), ZapError<B::Error>> {
        blocks.set_block_size(size).map_err(ZapError::Blocks)?;
        self.size = size;
        let capacity = self.capacity();
        if let Some(slots) = &mut self.slots {
            slots.grow(capacity);
        }
        Ok(())
    }

    /// Whether there is an entry with exactly this name, which has this hash.
    pub(crate) fn has<B: ZapBlocksMut>(
        &self,
        blocks: &B,
        hash: ZapHash,
        name: &[u8],
    ) -> Result<bool, ZapError<B::Error>> {
        Ok(self.find(blocks, hash, name)?.is_some())
    }

    /// Adds an entry whose name has this hash; there is room for it, and the name is not there.
    pub(crate) fn add<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        hash: ZapHash,
        name: &[u8],
        value: u64,
    ) -> Result<(), ZapError<B::Error>> {
        let full = || ZapError::corrupt(BlockId(0))(FormatError::invalid("microzap", "it is full"));
        let cd = self.unused_cd(hash);
        let slot = self.slots().free().ok_or_else(full)?;
        let entry = MicroEntry { name, cd, value };
        self.edit(blocks, |block| {
            micro::encode_entry(block, ByteOrder::NATIVE, slot, entry);
        })?;
        self.slots().take(slot);
        self.index.insert(IndexEntry::new(hash, cd, slot));
        Ok(())
    }

    /// Gives the entry with exactly this name, which has this hash, another value; `false` if
    /// there is none.
    pub(crate) fn set<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        hash: ZapHash,
        name: &[u8],
        value: u64,
    ) -> Result<bool, ZapError<B::Error>> {
        let Some((element, _)) = self.find(blocks, hash, name)? else { return Ok(false) };
        let entry = MicroEntry { name, cd: element.cd(), value };
        self.edit(blocks, |block| {
            micro::encode_entry(block, ByteOrder::NATIVE, element.slot(), entry);
        })?;
        Ok(true)
    }

    /// Removes the entry with exactly this name; `false` if there is none.
    pub(crate) fn remove<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        name: &[u8],
    ) -> Result<bool, ZapError<B::Error>> {
        let Some((element, _)) = self.find(blocks, self.hash(name), name)? else {
            return Ok(false);
        };
        self.edit(blocks, |block| micro::clear_entry(block, element.slot()))?;
        self.slots().release(element.slot());
        self.index.remove(&element);
        Ok(true)
    }

    /// All entries in the order of the block.
    pub(crate) fn in_block_order<B: ZapBlocksMut>(
        &self,
        blocks: &B,
        mut each: impl FnMut(MicroEntry<'_>) -> Result<(), ZapError<B::Error>>,
    ) -> Result<(), ZapError<B::Error>> {
        let corrupt = ZapError::corrupt(BlockId(0));
        let block = self.block.get(blocks)?;
        let view = MicroBlock::decode(&block.bytes, block.order).map_err(&corrupt)?;
        for used in view.entries() {
            let (_, entry) = used.map_err(&corrupt)?;
            each(entry)?;
        }
        Ok(())
    }

    /// The lowest cd that no entry with this hash has.
    fn unused_cd(&self, hash: ZapHash) -> u32 {
        let mut unused = 0;
        for element in self.with_hash(hash) {
            if element.cd() != unused {
                break;
            }
            unused += 1;
        }
        unused
    }

    fn slots(&mut self) -> &mut Slots {
        let (capacity, index) = (self.capacity(), &self.index);
        self.slots.get_or_insert_with(|| {
            Box::new(Slots::new(capacity, index.iter().map(IndexEntry::slot)))
        })
    }

    /// Changes the block, which has the size that it is known to have.
    fn edit<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<(), ZapError<B::Error>> {
        let size = self.size;
        self.block.release();
        edit_block(blocks, BlockId(0), |bytes| {
            if bytes.len() != size {
                return Err(FormatError::field("microzap", "block size", bytes.len() as u64));
            }
            edit(bytes);
            Ok(())
        })
    }
}
