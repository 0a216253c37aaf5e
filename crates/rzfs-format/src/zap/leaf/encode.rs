//! Builds a leaf from entries.

use super::{
    ARRAY_BYTES, CHAIN_END, CHUNK_SIZE, HEADER_SIZE, KIND_ARRAY, KIND_ENTRY, KIND_FREE, MAGIC,
};
use crate::ByteOrder;
use crate::endian::FieldsMut;
use crate::zap::fat::{Geometry, MAX_TABLE_SHIFT};
use crate::zap::{BLOCK_TYPE_LEAF, IntegerSize, ZapHash};

const FLAG_CD_SORTED: u8 = 1;
/// log2 of the largest leaf whose chunks have 16-bit numbers.
const MAX_SHIFT: u32 = 20;

/// The leaf has no room for the entry: it has to be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ZAP leaf is full")]
pub struct LeafFull;

/// A key or value as it is stored: big-endian integers of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integers<'a> {
    /// Bytes of one integer.
    pub size: IntegerSize,
    /// The integers, big-endian; a multiple of the size.
    pub bytes: &'a [u8],
}

/// What is known about the order of a leaf's bucket chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainOrder {
    /// Nothing.
    Any,
    /// Each chain ascends by cd, as it has to in ZAPs that normalise names.
    ByCd,
}

/// A leaf that is being filled, chunk after chunk.
#[derive(Debug)]
pub struct LeafBuilder {
    geometry: Geometry,
    order: ByteOrder,
    block: Vec<u8>,
    prefix_len: u32,
    used: usize,
    entries: u16,
}

impl LeafBuilder {
    /// An empty leaf for the hashes that begin with the `prefix_len` bits `prefix`.
    ///
    /// # Panics
    /// When the prefix is longer than a pointer table can distinguish (46 bits), or the block is
    /// larger than the 1 MiB whose chunks have 16-bit numbers.
    #[must_use]
    pub fn new(geometry: Geometry, order: ByteOrder, prefix: u64, prefix_len: u32) -> Self {
        assert!(prefix_len <= MAX_TABLE_SHIFT, "a prefix of {prefix_len} bits");
        assert!(geometry.shift() <= MAX_SHIFT, "a leaf of 2^{} bytes", geometry.shift());
        let mut block = vec![0; geometry.block_size()];
        let mut fields = FieldsMut::new(&mut block, order);
        fields.set_u64s(0, &[BLOCK_TYPE_LEAF, 0, prefix]);
        fields.set_u32(24, MAGIC);
        fields.set_u16(32, prefix_len as u16);
        for bucket in 0..geometry.buckets() {
            fields.set_u16(HEADER_SIZE + 2 * bucket, CHAIN_END);
        }
        Self { geometry, order, block, prefix_len, used: 0, entries: 0 }
    }

    /// Chunks that an entry with a key and value of these many bytes takes.
    #[must_use]
    pub const fn chunks_for(key_len: usize, value_len: usize) -> usize {
        1 + key_len.div_ceil(ARRAY_BYTES) + value_len.div_ceil(ARRAY_BYTES)
    }

    /// Adds an entry at the head of its bucket's chain; who needs chains by ascending cd adds by
    /// descending cd. A string key includes its closing NUL.
    pub fn add(
        &mut self,
        hash: ZapHash,
        cd: u32,
        key: Integers<'_>,
        value: Integers<'_>,
    ) -> Result<(), LeafFull> {
        let need = Self::chunks_for(key.bytes.len(), value.bytes.len());
        if self.used + need > self.geometry.chunks() {
            return Err(LeafFull);
        }
        let chunk = self.used;
        self.used += 1;
        let name_chunk = self.append_array(key.bytes);
        let value_chunk = self.append_array(value.bytes);
        let shift = self.prefix_len + self.geometry.bucket_shift();
        let bucket = (hash.top(shift) as usize) & (self.geometry.buckets() - 1);
        let head = HEADER_SIZE + 2 * bucket;
        let next = self.order.u16([self.block[head], self.block[head + 1]]);
        let offset = self.chunk_offset(chunk);
        let mut fields = FieldsMut::new(&mut self.block, self.order);
        fields.set_u16(head, chunk as u16);
        fields.set_u8(offset, KIND_ENTRY);
        fields.set_u8(offset + 1, value.size as u8);
        fields.set_u16(offset + 2, next);
        fields.set_u16(offset + 4, name_chunk);
        fields.set_u16(offset + 6, (key.bytes.len() / key.size.bytes()) as u16);
        fields.set_u16(offset + 8, value_chunk);
        fields.set_u16(offset + 10, (value.bytes.len() / value.size.bytes()) as u16);
        fields.set_u32(offset + 12, cd);
        fields.set_u64(offset + 16, hash.0);
        self.entries += 1;
        Ok(())
    }

    /// The block, with the free chunks chained.
    #[must_use]
    pub fn finish(mut self, chains: ChainOrder) -> Vec<u8> {
        let total = self.geometry.chunks();
        for chunk in self.used..total {
            let offset = self.chunk_offset(chunk);
            let next = if chunk + 1 == total { CHAIN_END } else { (chunk + 1) as u16 };
            let mut fields = FieldsMut::new(&mut self.block, self.order);
            fields.set_u8(offset, KIND_FREE);
            fields.set_u16(offset + 22, next);
        }
        let free = total - self.used;
        let mut fields = FieldsMut::new(&mut self.block, self.order);
        fields.set_u16(28, free as u16);
        fields.set_u16(30, self.entries);
        fields.set_u16(34, if free == 0 { CHAIN_END } else { self.used as u16 });
        if chains == ChainOrder::ByCd {
            fields.set_u8(36, FLAG_CD_SORTED);
        }
        self.block
    }

    fn append_array(&mut self, bytes: &[u8]) -> u16 {
        if bytes.is_empty() {
            return CHAIN_END;
        }
        let first = self.used;
        let mut pieces = bytes.chunks(ARRAY_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let offset = self.chunk_offset(self.used);
            self.used += 1;
            let next = if pieces.peek().is_some() { self.used as u16 } else { CHAIN_END };
            let mut fields = FieldsMut::new(&mut self.block, self.order);
            fields.set_u8(offset, KIND_ARRAY);
            fields.set_bytes(offset + 1, piece);
            fields.set_u16(offset + 22, next);
        }
        first as u16
    }

    const fn chunk_offset(&self, chunk: usize) -> usize {
        HEADER_SIZE + 2 * self.geometry.buckets() + chunk * CHUNK_SIZE
    }
}
