//! The header block of a fat ZAP (spec 03, section 12.6).
//!
//! ```text
//! 0      8       16     24         32      ..  72     80     88          96     104      half     end
//! | type | magic | first | blocks | shift | .. | ... | salt | normflags | flags | zeros | embedded table |
//!                 `-- external pointer table --'
//! ```

use super::name::Normalization;
use super::{BlockKind, HashBits};
use crate::endian::{ByteOrder, Fields};
use crate::{BlockId, FormatError};

const WHAT: &str = "ZAP header";
const MAGIC: u64 = 0x0000_0002_f52a_b2ab;
const FLAG_HASH64: u64 = 1;
const FLAG_WORD_KEYS: u64 = 2;
const FLAG_PRE_HASHED: u64 = 4;

/// Smallest and largest log2 of a block size.
const BLOCK_SHIFTS: std::ops::RangeInclusive<u32> = 9..=24;

/// Most bits of a hash that a pointer table can use.
const MAX_TABLE_SHIFT: u64 = 46;

/// What the keys are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyKind {
    /// Names.
    Name,
    /// Arrays of words.
    Words,
    /// Arrays of words whose first word is the hash.
    PreHashedWords,
}

/// Where the pointer table is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TablePlace {
    /// In the second half of the header block.
    Embedded,
    /// In these blocks.
    External {
        /// The first block.
        first: BlockId,
        /// How many there are.
        count: u64,
    },
}

/// The header of a fat ZAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatHeader {
    /// Where the pointer table is.
    pub table: TablePlace,
    /// log2 of the table's entries: leading bits of the hash that choose one.
    pub table_shift: u32,
    /// First block of the table that is being grown into; 0 = none.
    pub next_table: u64,
    /// Blocks of the old table that were copied so far.
    pub copied_blocks: u64,
    /// The first block that was never used.
    pub free_block: BlockId,
    /// Number of leaves; statistics.
    pub leaf_count: u64,
    /// Number of entries; statistics.
    pub entry_count: u64,
    /// What hashing starts with.
    pub salt: u64,
    /// How names are normalised before they are hashed and compared.
    pub normalization: Normalization,
    /// What the keys are.
    pub keys: KeyKind,
    /// How many bits of the hash are kept.
    pub hash_bits: HashBits,
    /// log2 of the size of all blocks.
    pub block_shift: u32,
    /// The flags as stored.
    pub flags: u64,
}

impl FatHeader {
    /// Decodes a header block.
    pub fn decode(block: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        if BlockKind::of(block, order)? != BlockKind::Header {
            return Err(FormatError::invalid(WHAT, "not the first block of a fat ZAP"));
        }
        let block_shift = block.len().trailing_zeros();
        if !block.len().is_power_of_two() || !BLOCK_SHIFTS.contains(&block_shift) {
            return Err(FormatError::field(WHAT, "block size", block.len() as u64));
        }
        let fields = Fields::new(WHAT, block, order);
        let [magic, first, count, shift, next_table, copied_blocks] = fields.u64s(8)?;
        let [free_block, leaf_count, entry_count, salt, normflags, flags] = fields.u64s(56)?;
        if magic != MAGIC {
            return Err(FormatError::field(WHAT, "magic", magic));
        }
        if shift > MAX_TABLE_SHIFT {
            return Err(FormatError::field(WHAT, "table shift", shift));
        }
        let (table, entries) = if first == 0 {
            (TablePlace::Embedded, 1 << (block_shift - 4))
        } else {
            let place = TablePlace::External { first: BlockId(first), count };
            (place, count.checked_mul(1 << (block_shift - 3)).unwrap_or(0))
        };
        if entries != 1 << shift {
            return Err(FormatError::field(WHAT, "table size", entries));
        }
        let keys = match flags & (FLAG_WORD_KEYS | FLAG_PRE_HASHED) {
            0 => KeyKind::Name,
            FLAG_WORD_KEYS => KeyKind::Words,
            FLAG_PRE_HASHED => return Err(FormatError::field(WHAT, "flags", flags)),
            _ => KeyKind::PreHashedWords,
        };
        Ok(Self {
            table,
            table_shift: shift as u32,
            next_table,
            copied_blocks,
            free_block: BlockId(free_block),
            leaf_count,
            entry_count,
            salt,
            normalization: Normalization::from_flags(normflags)?,
            keys,
            hash_bits: if flags & FLAG_HASH64 == 0 { HashBits::Bits28 } else { HashBits::Bits48 },
            block_shift,
            flags,
        })
    }

    /// The entry of the pointer table for a hash.
    #[must_use]
    pub const fn table_index(&self, hash: u64) -> u64 {
        if self.table_shift == 0 { 0 } else { hash >> (64 - self.table_shift) }
    }

    /// Where an entry of the pointer table is: the block and the byte offset in it.
    #[must_use]
    pub const fn table_entry(&self, index: u64) -> (BlockId, usize) {
        let size = 1_usize << self.block_shift;
        match self.table {
            TablePlace::Embedded => (BlockId(0), size / 2 + index as usize * 8),
            TablePlace::External { first, .. } => {
                let shift = self.block_shift - 3;
                let block = first.0.saturating_add(index >> shift);
                (BlockId(block), (index & ((1 << shift) - 1)) as usize * 8)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(words: &[(usize, u64)]) -> Vec<u8> {
        let mut block = vec![0; 1 << 14];
        let standard =
            [(0, 0x8000_0000_0000_0001), (8, MAGIC), (32, 10), (56, 2), (64, 1), (72, 1), (80, 7)];
        for (offset, word) in standard.iter().chain(words) {
            block[*offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        }
        block
    }

    #[test]
    fn a_new_header_has_its_table_in_the_second_half() {
        let header = FatHeader::decode(&header(&[]), ByteOrder::Little).unwrap();
        assert_eq!((header.table, header.table_shift), (TablePlace::Embedded, 10));
        assert_eq!(header.table_index(0x4763_8eb0 << 32), 0x4763_8eb0 >> 22);
        assert_eq!(header.table_entry(3), (BlockId(0), 8192 + 24));
    }

    #[test]
    fn an_external_table_is_addressed_by_block() {
        let block = header(&[(16, 1025), (24, 1), (32, 11)]);
        let header = FatHeader::decode(&block, ByteOrder::Little).unwrap();
        assert_eq!(header.table_entry(2047), (BlockId(1025), 16376));
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            [(32, 11)].as_slice(),
            &[(32, 64)],
            &[(8, 1)],
            &[(96, 4)],
            &[(88, 1)],
            &[(16, 9), (24, 3), (32, 11)],
            &[(16, 9), (24, u64::MAX), (32, 11)],
        ] {
            assert!(FatHeader::decode(&header(words), ByteOrder::Little).is_err(), "{words:?}");
        }
    }
}
