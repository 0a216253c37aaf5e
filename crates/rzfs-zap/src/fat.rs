//! Fat ZAPs: a header, a table of pointers, leaves.

use crate::entry::{Position, ZapKey, ZapValue};
use crate::{ZapBlocks, ZapError};
use bytes::Bytes;
use rzfs_format::endian::Fields;
use rzfs_format::zap::fat::{FatHeader, KeyKind, TablePlace};
use rzfs_format::zap::leaf::{Leaf, LeafEntry};
use rzfs_format::{BlockId, ByteOrder, FormatError};

#[derive(Debug)]
pub(crate) struct FatZap {
    block: Bytes,
    order: ByteOrder,
    pub(crate) header: FatHeader,
}

/// The bytes of a leaf.
pub(crate) struct LeafBlock {
    pub(crate) id: BlockId,
    bytes: Bytes,
    order: ByteOrder,
}

impl LeafBlock {
    pub(crate) fn leaf<E>(&self) -> Result<Leaf<'_>, ZapError<E>> {
        Leaf::decode(&self.bytes, self.order).map_err(ZapError::corrupt(self.id))
    }
}

impl FatZap {
    pub(crate) fn open(block: Bytes, order: ByteOrder) -> Result<Self, FormatError> {
        let header = FatHeader::decode(&block, order)?;
        Ok(Self { block, order, header })
    }

    /// The leaf to which a hash belongs.
    pub(crate) fn leaf_of<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: u64,
    ) -> Result<LeafBlock, ZapError<B::Error>> {
        let id = self.leaf_number(blocks, hash)?;
        let (bytes, order) = blocks.read_block(id).map_err(ZapError::Blocks)?;
        let block = LeafBlock { id, bytes, order };
        let leaf = block.leaf()?;
        if block.bytes.len() != self.block.len()
            || leaf.prefix_len > self.header.table_shift
            || !leaf.covers(hash)
        {
            let problem = FormatError::invalid("ZAP leaf", "it does not belong to its hash");
            return Err(ZapError::corrupt(id)(problem));
        }
        Ok(block)
    }

    fn leaf_number<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: u64,
    ) -> Result<BlockId, ZapError<B::Error>> {
        let (table, offset) = self.header.table_entry(self.header.table_index(hash));
        let (bytes, order) = match self.header.table {
            TablePlace::Embedded => (self.block.clone(), self.order),
            TablePlace::External { .. } => blocks.read_block(table).map_err(ZapError::Blocks)?,
        };
        let number = Fields::new("ZAP pointer table", &bytes, order)
            .u64(offset)
            .map_err(ZapError::corrupt(table))?;
        if number == 0 || number >= blocks.block_count() {
            let problem = FormatError::field("ZAP pointer table", "leaf", number);
            return Err(ZapError::corrupt(table)(problem));
        }
        Ok(BlockId(number))
    }

    /// The key of an entry.
    pub(crate) fn key(&self, leaf: &Leaf<'_>, entry: &LeafEntry) -> Result<ZapKey, FormatError> {
        match self.header.keys {
            KeyKind::Name => leaf.name(entry).map(ZapKey::Name),
            KeyKind::Words | KeyKind::PreHashedWords => leaf.words(entry).map(ZapKey::Words),
        }
    }

    pub(crate) fn value(leaf: &Leaf<'_>, entry: &LeafEntry) -> Result<ZapValue, FormatError> {
        Ok(ZapValue::new(entry.value_size, leaf.value(entry)?))
    }

    /// The entries of a leaf from a position on, in order.
    pub(crate) fn ordered(leaf: &Leaf<'_>, from: Position) -> Result<Vec<LeafEntry>, FormatError> {
        let mut entries = leaf.entries()?;
        let position =
            |entry: &LeafEntry| Position { hash: entry.hash, differentiator: entry.differentiator };
        if entries.iter().any(|entry| !leaf.covers(entry.hash)) {
            return Err(FormatError::invalid("ZAP leaf", "an entry of another leaf"));
        }
        entries.retain(|entry| position(entry) >= from);
        entries.sort_by_key(position);
        Ok(entries)
    }
}
