//! A leaf of a fat ZAP (spec 03, section 12.7).
//!
//! ```text
//! 0                48           48 + 2 H
//! | header         | hash table | chunk | chunk | ...      24 bytes each
//!
//! entry chunk:  252, value size, next, name chunk, name count, value chunk, value count, cd, hash
//! array chunk:  251, 21 bytes, next
//! ```
//! The hash table has the first entry of each chain; names and values are chains of array chunks,
//! their integers big-endian whatever the block's byte order.

use super::{BlockKind, MAX_VALUE_SIZE};
use crate::FormatError;
use crate::endian::{ByteOrder, Fields};

const WHAT: &str = "ZAP leaf";
const MAGIC: u32 = 0x02ab_1eaf;
const HEADER_SIZE: usize = 48;
const CHUNK_SIZE: usize = 24;
const ARRAY_BYTES: usize = 21;
const ARRAY_CHUNK: u8 = 251;
const ENTRY_CHUNK: u8 = 252;
const END: u16 = 0xffff;

/// Most bits that the entries of a leaf can share: a table has at most 2^46 pointers, and with
/// the bits that choose a chain in the largest block they are no more than a hash has.
const MAX_PREFIX: u32 = 64 - (24 - 5);

/// A leaf's header and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    fields: Fields<'a>,
    block_shift: u32,
    /// The leading bits of the hash that all entries share.
    pub prefix: u64,
    /// How many those are.
    pub prefix_len: u32,
    /// Number of entries; statistics.
    pub entry_count: u16,
    /// Number of free chunks; statistics.
    pub free_chunks: u16,
}

/// An entry chunk; its name and value are fetched on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafEntry {
    /// Hash of the key.
    pub hash: u64,
    /// The collision differentiator: tells entries with the same hash apart.
    pub differentiator: u32,
    /// Bytes of an integer of the value: 1, 2, 4 or 8.
    pub value_size: u8,
    /// Integers of the value.
    pub value_count: u16,
    /// Bytes of a name with its NUL, or words of another key.
    pub key_count: u16,
    next: u16,
    key_chunk: u16,
    value_chunk: u16,
}

impl<'a> Leaf<'a> {
    /// Decodes a leaf's header.
    pub fn decode(block: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        if BlockKind::of(block, order)? != BlockKind::Leaf {
            return Err(FormatError::invalid(WHAT, "not a leaf"));
        }
        let block_shift = block.len().trailing_zeros();
        if !block.len().is_power_of_two() || !(9..=24).contains(&block_shift) {
            return Err(FormatError::field(WHAT, "block size", block.len() as u64));
        }
        let fields = Fields::new(WHAT, block, order);
        let magic = fields.u32(24)?;
        if magic != MAGIC {
            return Err(FormatError::field(WHAT, "magic", magic));
        }
        if fields.u64(8)? != 0 {
            return Err(FormatError::invalid(WHAT, "a chain of leaves"));
        }
        let prefix_len = u32::from(fields.u16(32)?);
        let prefix = fields.u64(16)?;
        if prefix_len > MAX_PREFIX || prefix.checked_shr(prefix_len) != Some(0) {
            return Err(FormatError::field(WHAT, "prefix", prefix));
        }
        Ok(Self {
            fields,
            block_shift,
            prefix,
            prefix_len,
            entry_count: fields.u16(30)?,
            free_chunks: fields.u16(28)?,
        })
    }

    /// Number of chains in the hash table.
    #[must_use]
    pub const fn bucket_count(&self) -> usize {
        1 << (self.block_shift - 5)
    }

    /// Number of chunks.
    #[must_use]
    pub const fn chunk_count(&self) -> usize {
        (self.fields.len() - 2 * self.bucket_count()) / CHUNK_SIZE - 2
    }

    /// The smallest hash that belongs here.
    #[must_use]
    pub const fn first_hash(&self) -> u64 {
        if self.prefix_len == 0 { 0 } else { self.prefix << (64 - self.prefix_len) }
    }

    /// The smallest hash that belongs to a later leaf; `None` when this is the last one.
    #[must_use]
    pub const fn next_leaf_hash(&self) -> Option<u64> {
        if self.prefix_len == 0 {
            return None;
        }
        self.first_hash().checked_add(1 << (64 - self.prefix_len))
    }

    /// Whether a hash belongs here.
    #[must_use]
    pub const fn covers(&self, hash: u64) -> bool {
        self.prefix_len == 0 || hash >> (64 - self.prefix_len) == self.prefix
    }

    fn bucket(&self, hash: u64) -> usize {
        let shift = 64 - (self.block_shift - 5) - self.prefix_len;
        (hash >> shift) as usize & (self.bucket_count() - 1)
    }

    fn chunk(&self, chunk: u16) -> Result<Fields<'a>, FormatError> {
        if usize::from(chunk) >= self.chunk_count() {
            return Err(FormatError::field(WHAT, "chunk number", chunk));
        }
        let start = HEADER_SIZE + 2 * self.bucket_count() + usize::from(chunk) * CHUNK_SIZE;
        self.fields.sub(WHAT, start, CHUNK_SIZE)
    }

    fn entry(&self, chunk: u16) -> Result<LeafEntry, FormatError> {
        let fields = self.chunk(chunk)?;
        let kind = fields.u8(0)?;
        if kind != ENTRY_CHUNK {
            return Err(FormatError::field(WHAT, "chunk type in a chain", kind));
        }
        let value_size = fields.u8(1)?;
        let value_count = fields.u16(8 + 2)?;
        if !matches!(value_size, 1 | 2 | 4 | 8)
            || usize::from(value_size) * usize::from(value_count) > MAX_VALUE_SIZE
        {
            return Err(FormatError::field(WHAT, "value size", value_size));
        }
        Ok(LeafEntry {
            next: fields.u16(2)?,
            key_chunk: fields.u16(4)?,
            key_count: fields.u16(6)?,
            value_chunk: fields.u16(8)?,
            value_count,
            value_size,
            differentiator: fields.u32(12)?,
            hash: fields.u64(16)?,
        })
    }

    /// The entries of the chain that `hash` belongs to, whatever their hashes.
    pub fn chain(
        &self,
        hash: u64,
    ) -> impl Iterator<Item = Result<LeafEntry, FormatError>> + use<'a> {
        self.bucket_chain(self.bucket(hash))
    }

    fn bucket_chain(
        &self,
        bucket: usize,
    ) -> impl Iterator<Item = Result<LeafEntry, FormatError>> + use<'a> {
        let leaf = *self;
        let mut next = self.fields.u16(HEADER_SIZE + 2 * bucket);
        let mut budget = self.chunk_count();
        std::iter::from_fn(move || {
            let chunk = match next.clone() {
                Ok(END) => return None,
                Ok(chunk) => chunk,
                Err(error) => {
                    next = Ok(END);
                    return Some(Err(error));
                }
            };
            let entry = if budget == 0 {
                Err(FormatError::invalid(WHAT, "a chain of entries that never ends"))
            } else {
                leaf.entry(chunk)
            };
            budget = budget.saturating_sub(1);
            next = Ok(entry.as_ref().map_or(END, |entry| entry.next));
            Some(entry)
        })
    }

    /// All entries, in no particular order. More entries than chunks is an error.
    pub fn entries(&self) -> Result<Vec<LeafEntry>, FormatError> {
        let mut entries = Vec::new();
        for bucket in 0..self.bucket_count() {
            for entry in self.bucket_chain(bucket) {
                if entries.len() == self.chunk_count() {
                    return Err(FormatError::invalid(WHAT, "an entry in several chains"));
                }
                entries.push(entry?);
            }
        }
        Ok(entries)
    }

    /// The first `len` bytes of a chain of array chunks.
    fn array(&self, first: u16, len: usize) -> Result<Vec<u8>, FormatError> {
        if len > self.chunk_count() * ARRAY_BYTES {
            return Err(FormatError::field(WHAT, "array size", len as u64));
        }
        let mut bytes = Vec::with_capacity(len);
        let mut next = first;
        while bytes.len() < len {
            let chunk = self.chunk(next)?;
            let kind = chunk.u8(0)?;
            if kind != ARRAY_CHUNK {
                return Err(FormatError::field(WHAT, "chunk type in an array", kind));
            }
            let take = ARRAY_BYTES.min(len - bytes.len());
            bytes.extend_from_slice(chunk.bytes(1, take)?);
            next = chunk.u16(1 + ARRAY_BYTES)?;
        }
        Ok(bytes)
    }

    /// The bytes of an entry's name, without its NUL.
    pub fn name(&self, entry: &LeafEntry) -> Result<Vec<u8>, FormatError> {
        let mut name = self.array(entry.key_chunk, usize::from(entry.key_count))?;
        if name.pop() != Some(0) || name.contains(&0) {
            return Err(FormatError::invalid(WHAT, "a name that does not end where it should"));
        }
        Ok(name)
    }

    /// The words of an entry's key.
    pub fn words(&self, entry: &LeafEntry) -> Result<Vec<u64>, FormatError> {
        let bytes = self.array(entry.key_chunk, usize::from(entry.key_count) * 8)?;
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        Ok(words.map(u64::from_be_bytes).collect())
    }

    /// The bytes of an entry's value: its integers, big-endian.
    pub fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>, FormatError> {
        let len = usize::from(entry.value_size) * usize::from(entry.value_count);
        self.array(entry.value_chunk, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leaf of the specification's example: one name of 50 bytes.
    fn sample() -> Vec<u8> {
        let mut block = vec![0; 1 << 14];
        block[7] = 0x80;
        block[24..36].copy_from_slice(&[0xaf, 0x1e, 0xab, 2, 0x79, 2, 1, 0, 0, 0, 5, 0]);
        block[48..1072].fill(0xff);
        block[48 + 2 * 142..][..2].fill(0);
        let mut put =
            |offset: usize, bytes: &[u8]| block[offset..][..bytes.len()].copy_from_slice(bytes);
        put(0x430, &[0xfc, 8, 0xff, 0xff, 1, 0, 0x33, 0, 4, 0, 1, 0, 0, 0, 0, 0]);
        put(0x440, &[0, 0, 0, 0, 0xb0, 0x8e, 0x63, 0x47, 0xfb]);
        let name = b"01234567890123456789012345678901234567890123456789\0";
        put(0x449, &name[..21]);
        put(0x45e, &[2, 0, 0xfb]);
        put(0x461, &name[21..42]);
        put(0x476, &[3, 0, 0xfb]);
        put(0x479, &name[42..]);
        put(0x48e, &[0xff, 0xff, 0xfb, 0x80, 0, 0, 0, 0, 0, 0x0c, 0x44]);
        put(0x4a6, &[0xff, 0xff]);
        block
    }

    #[test]
    fn leaf_of_the_spec_decodes() {
        let block = sample();
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        assert_eq!((leaf.bucket_count(), leaf.chunk_count()), (512, 638));
        let entries: Vec<_> = leaf.chain(0x4763_8eb0_0000_0000).collect::<Result<_, _>>().unwrap();
        assert_eq!(entries, leaf.entries().unwrap());
        let entry = entries[0];
        assert_eq!(leaf.name(&entry).unwrap(), b"01234567890123456789".repeat(3)[..50]);
        assert_eq!(leaf.value(&entry).unwrap(), 0x8000_0000_0000_0c44_u64.to_be_bytes());
        assert_eq!((entry.hash, entry.differentiator), (0x4763_8eb0_0000_0000, 0));
        assert_eq!((leaf.first_hash(), leaf.next_leaf_hash()), (0, None));
    }

    #[test]
    fn chains_without_an_end_are_errors() {
        let mut block = sample();
        block[0x432..0x434].fill(0);
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        assert!(leaf.chain(0x4763_8eb0_0000_0000).last().unwrap().is_err());
        assert!(leaf.entries().is_err());
        let mut block = sample();
        block[0x45e] = 1;
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        let entry = leaf.entries().unwrap()[0];
        assert!(leaf.name(&entry).is_err(), "the first chunk repeats");
    }
}
