//! The header of a fat ZAP and the geometry that follows from its block size (spec 03, section
//! 12.6).
//!
//! ```text
//! block 0: 0        104                 half               end
//!          | header | zeros             | embedded table    |
//! ```
//! The table maps the top `shift` bits of a hash to the block of a leaf. It begins embedded in
//! the second half of the header block and later moves to blocks of its own.

use super::hash::HashBits;
use super::{BLOCK_TYPE_HEADER, Normalization};
use crate::endian::{Fields, FieldsMut};
use crate::{BlockId, ByteOrder, FormatError};

/// The header's magic number.
pub const MAGIC: u64 = 0x2_f52a_b2ab;
/// Most bits that index the pointer table.
pub const MAX_TABLE_SHIFT: u32 = 46;

const WHAT: &str = "fat ZAP";
const HASH64: u64 = 1;
const WORD_KEYS: u64 = 2;
const PRE_HASHED: u64 = 4;

/// What the block size of a fat ZAP implies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    shift: u32,
}

impl Geometry {
    /// The geometry for blocks of `size` bytes: a power of two from 512 to 16 MiB.
    pub fn of_block_size(size: usize) -> Result<Self, FormatError> {
        let shift = size.trailing_zeros();
        if size.is_power_of_two() && (9..=24).contains(&shift) {
            Ok(Self { shift })
        } else {
            Err(FormatError::field(WHAT, "block size", size as u64))
        }
    }

    /// log2 of the block size.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.shift
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_size(self) -> usize {
        1 << self.shift
    }

    /// log2 of the buckets in a leaf.
    #[must_use]
    pub const fn bucket_shift(self) -> u32 {
        self.shift - 5
    }

    /// Buckets in a leaf.
    #[must_use]
    pub const fn buckets(self) -> usize {
        1 << self.bucket_shift()
    }

    /// Chunks in a leaf.
    #[must_use]
    pub const fn chunks(self) -> usize {
        (self.block_size() - 2 * self.buckets()) / 24 - 2
    }

    /// log2 of the entries of the embedded pointer table.
    #[must_use]
    pub const fn embedded_shift(self) -> u32 {
        self.shift - 4
    }

    /// log2 of the entries in one block of an external pointer table.
    #[must_use]
    pub const fn pointers_shift(self) -> u32 {
        self.shift - 3
    }
}

/// Which kinds of keys a fat ZAP has and how it hashes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ZapFlags(pub u64);

impl ZapFlags {
    /// String keys, 28 bits of hash.
    pub const NONE: Self = Self(0);
    /// Keys of 64-bit words, 48 bits of hash.
    pub const WORDS: Self = Self(HASH64 | WORD_KEYS);
    /// Keys of 64-bit words, the first of which is the hash.
    pub const PRE_HASHED_WORDS: Self = Self(HASH64 | WORD_KEYS | PRE_HASHED);

    /// Bits of the hash that count.
    #[must_use]
    pub const fn hash_bits(self) -> HashBits {
        if self.0 & HASH64 == 0 { HashBits::Bits28 } else { HashBits::Bits48 }
    }

    /// Whether keys are arrays of 64-bit words, not strings.
    #[must_use]
    pub const fn word_keys(self) -> bool {
        self.0 & WORD_KEYS != 0
    }

    /// Whether the first word of a key is its hash.
    #[must_use]
    pub const fn pre_hashed(self) -> bool {
        self.0 & PRE_HASHED != 0
    }
}

/// Where the pointer table is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PointerTable {
    /// In the second half of the header block.
    Embedded,
    /// In blocks of its own.
    External {
        /// The first block.
        first: BlockId,
        /// The number of blocks, a power of two.
        blocks: u64,
    },
}

/// A fat ZAP's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FatHeader {
    /// Geometry of the blocks.
    pub geometry: Geometry,
    /// Where the pointer table is.
    pub table: PointerTable,
    /// log2 of the entries of the pointer table.
    pub table_shift: u32,
    /// First block of the table that is to replace the current one; 0 = none.
    pub next_table: BlockId,
    /// Blocks of the current table that were copied to the next.
    pub blocks_copied: u64,
    /// The first block that was never used.
    pub free_block: BlockId,
    /// Number of leaves, as recorded.
    pub leaves: u64,
    /// Number of entries, as recorded.
    pub entries: u64,
    /// The salt of the hash; never 0.
    pub salt: u64,
    /// How names are normalised.
    pub normalization: Normalization,
    /// Kinds of keys.
    pub flags: ZapFlags,
}

impl FatHeader {
    /// Decodes block 0.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let geometry = Geometry::of_block_size(bytes.len())?;
        let words: [u64; 13] = Fields::new(WHAT, bytes, order).u64s(0)?;
        let [
            block_type,
            magic,
            first,
            blocks,
            shift,
            next,
            copied,
            free,
            leaves,
            entries,
            rest @ ..,
        ] = words;
        let [salt, normalization, flags] = rest;
        if block_type != BLOCK_TYPE_HEADER {
            return Err(FormatError::field(WHAT, "block type", block_type));
        }
        if magic != MAGIC {
            return Err(FormatError::field(WHAT, "magic", magic));
        }
        if salt == 0 {
            return Err(FormatError::field(WHAT, "salt", salt));
        }
        let flags = ZapFlags(flags);
        if flags.pre_hashed() && !flags.word_keys() {
            return Err(FormatError::field(WHAT, "flags", flags.0));
        }
        let (table, table_shift) = decode_table(geometry, first, blocks, shift, free)?;
        Ok(Self {
            geometry,
            table,
            table_shift,
            next_table: BlockId(next),
            blocks_copied: copied,
            free_block: BlockId(free),
            leaves,
            entries,
            salt,
            normalization: Normalization::from_flags(normalization)?,
            flags,
        })
    }

    /// Writes the header over the start of a zeroed block 0.
    ///
    /// # Panics
    /// When the block is shorter than the header.
    pub fn encode(&self, block: &mut [u8], order: ByteOrder) {
        let (first, blocks) = match self.table {
            PointerTable::Embedded => (0, 0),
            PointerTable::External { first, blocks } => (first.0, blocks),
        };
        let words = [
            BLOCK_TYPE_HEADER,
            MAGIC,
            first,
            blocks,
            u64::from(self.table_shift),
            self.next_table.0,
            self.blocks_copied,
            self.free_block.0,
            self.leaves,
            self.entries,
            self.salt,
            self.normalization.flags(),
            self.flags.0,
        ];
        FieldsMut::new(block, order).set_u64s(0, &words);
    }

    /// Where the entry `index` of the pointer table is: block, and byte offset in it. `None` when
    /// the table has no such entry.
    #[must_use]
    pub fn pointer_place(&self, index: u64) -> Option<(BlockId, usize)> {
        if index >> self.table_shift != 0 {
            return None;
        }
        let per_block = self.geometry.pointers_shift();
        match self.table {
            PointerTable::Embedded => {
                let offset = self.geometry.block_size() / 2 + usize::try_from(index).ok()? * 8;
                Some((BlockId(0), offset))
            }
            PointerTable::External { first, .. } => {
                let word = usize::try_from(index & ((1 << per_block) - 1)).ok()?;
                Some((BlockId(first.0.checked_add(index >> per_block)?), word * 8))
            }
        }
    }
}

fn decode_table(
    geometry: Geometry,
    first: u64,
    blocks: u64,
    shift: u64,
    free: u64,
) -> Result<(PointerTable, u32), FormatError> {
    let bits = u32::try_from(shift).unwrap_or(u32::MAX);
    if bits > MAX_TABLE_SHIFT {
        return Err(FormatError::field(WHAT, "zt_shift", shift));
    }
    if first == 0 && blocks == 0 {
        return if bits == geometry.embedded_shift() {
            Ok((PointerTable::Embedded, bits))
        } else {
            Err(FormatError::field(WHAT, "zt_shift", shift))
        };
    }
    if first == 0 {
        return Err(FormatError::field(WHAT, "zt_blk", first));
    }
    let holds = blocks.is_power_of_two()
        && blocks.trailing_zeros().checked_add(geometry.pointers_shift()) == Some(bits);
    if !holds {
        return Err(FormatError::field(WHAT, "zt_numblks", blocks));
    }
    if first.checked_add(blocks).is_none_or(|end| end > free) {
        return Err(FormatError::field(WHAT, "zt_blk", first));
    }
    Ok((PointerTable::External { first: BlockId(first), blocks }, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FatHeader {
        FatHeader {
            geometry: Geometry::of_block_size(16384).unwrap(),
            table: PointerTable::Embedded,
            table_shift: 10,
            next_table: BlockId(0),
            blocks_copied: 0,
            free_block: BlockId(2),
            leaves: 1,
            entries: 1,
            salt: 0x12_91c7,
            normalization: Normalization::NONE,
            flags: ZapFlags::NONE,
        }
    }

    fn block(header: &FatHeader, order: ByteOrder) -> Vec<u8> {
        let mut block = vec![0; header.geometry.block_size()];
        header.encode(&mut block, order);
        block
    }

    #[test]
    fn geometry_is_that_of_the_spec() {
        for (shift, buckets, chunks, table) in [
            (9, 16, 18, 32),
            (12, 128, 158, 256),
            (13, 256, 318, 512),
            (14, 512, 638, 1024),
            (15, 1024, 1278, 2048),
            (16, 2048, 2558, 4096),
            (17, 4096, 5118, 8192),
        ] {
            let geometry = Geometry::of_block_size(1 << shift).unwrap();
            assert_eq!(
                (geometry.buckets(), geometry.chunks(), 1 << geometry.embedded_shift()),
                (buckets, chunks, table)
            );
            assert_eq!(48 + 2 * buckets + 24 * chunks, 1 << shift);
        }
        for size in [0, 256, 1000, 1 << 25] {
            assert!(Geometry::of_block_size(size).is_err());
        }
    }

    #[test]
    fn header_of_the_spec_round_trips_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(FatHeader::decode(&block(&header(), order), order).unwrap(), header());
        }
        let bytes = block(&header(), ByteOrder::Little);
        assert_eq!((bytes[0x20], bytes[0x38], bytes[0x40]), (10, 2, 1));
        assert_eq!(bytes[0x50..0x53], [0xc7, 0x91, 0x12]);
        assert_eq!(header().pointer_place(3), Some((BlockId(0), 8192 + 24)));
        assert_eq!(header().pointer_place(1024), None);
    }

    #[test]
    fn external_tables_are_addressed_by_block_and_word() {
        let external = FatHeader {
            table: PointerTable::External { first: BlockId(1025), blocks: 2 },
            table_shift: 12,
            free_block: BlockId(1027),
            ..header()
        };
        let bytes = block(&external, ByteOrder::Little);
        assert_eq!(FatHeader::decode(&bytes, ByteOrder::Little).unwrap(), external);
        assert_eq!(external.pointer_place(2049), Some((BlockId(1026), 8)));
    }

    #[test]
    fn hostile_headers_are_refused() {
        for (offset, value) in [
            (0, 0),
            (8, 1),
            (16, 5),
            (24, 1),
            (32, 9),
            (32, 47),
            (32, u64::MAX),
            (80, 0),
            (88, 1),
            (96, 4),
        ] {
            let mut bytes = block(&header(), ByteOrder::Little);
            FieldsMut::new(&mut bytes, ByteOrder::Little).set_u64(offset, value);
            assert!(FatHeader::decode(&bytes, ByteOrder::Little).is_err(), "{offset} = {value}");
        }
        let far = FatHeader {
            table: PointerTable::External { first: BlockId(u64::MAX), blocks: 2 },
            table_shift: 12,
            ..header()
        };
        assert!(FatHeader::decode(&block(&far, ByteOrder::Little), ByteOrder::Little).is_err());
    }
}
