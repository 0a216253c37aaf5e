//! The microzap: all entries in one block, in no order (spec 03, section 12.5).
//!
//! ```text
//! block:  0       8      16         24       64        128
//!         | type  | salt | normflags | pad 40 | entry 0 | entry 1 | ...
//! entry:  0       8    12    14                                   64
//!         | value | cd | pad | name, closed by NUL               |
//! ```
//! An entry whose name is empty is free.

use super::{BLOCK_TYPE_MICRO, Normalization};
use crate::endian::{Fields, FieldsMut};
use crate::{ByteOrder, FormatError};

/// Bytes of the header and of each entry.
pub const ENTRY_SIZE: usize = 64;
/// Bytes of a name with the closing NUL.
pub const NAME_SIZE: usize = 50;
/// Largest block of a microzap; larger ones need more bits than cursors and indexes have.
pub const MAX_BLOCK_SIZE: usize = 1 << 20;
/// Collision differentiators are at most this.
pub const MAX_CD: u32 = 0xffff;

const NAME_OFFSET: usize = 14;
const WHAT: &str = "microzap";

/// A microzap's block.
#[derive(Clone, Copy, Debug)]
pub struct MicroBlock<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    salt: u64,
    normalization: Normalization,
}

/// One used entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroEntry<'a> {
    /// The name, without the closing NUL; never empty.
    pub name: &'a [u8],
    /// Distinguishes names with equal hashes.
    pub cd: u32,
    /// The value.
    pub value: u64,
}

impl<'a> MicroBlock<'a> {
    /// Checks the header and the size.
    pub fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let size = bytes.len();
        if !(2 * ENTRY_SIZE..=MAX_BLOCK_SIZE).contains(&size) || !size.is_multiple_of(ENTRY_SIZE) {
            return Err(FormatError::field(WHAT, "block size", size as u64));
        }
        let [block_type, salt, flags] = fields.u64s(0)?;
        if block_type != BLOCK_TYPE_MICRO {
            return Err(FormatError::field(WHAT, "block type", block_type));
        }
        if salt == 0 {
            return Err(FormatError::field(WHAT, "salt", salt));
        }
        Ok(Self { bytes, order, salt, normalization: Normalization::from_flags(flags)? })
    }

    /// The salt of the hash.
    #[must_use]
    pub const fn salt(&self) -> u64 {
        self.salt
    }

    /// How names are normalised.
    #[must_use]
    pub const fn normalization(&self) -> Normalization {
        self.normalization
    }

    /// Entries, used and free, that the block has room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.len() / ENTRY_SIZE - 1
    }

    /// Entry `index`; `None` when it is free.
    pub fn entry(&self, index: usize) -> Result<Option<MicroEntry<'a>>, FormatError> {
        let offset = index.saturating_add(1).saturating_mul(ENTRY_SIZE);
        let fields = Fields::new(WHAT, self.bytes, self.order).sub(WHAT, offset, ENTRY_SIZE)?;
        let name = fields.bytes(NAME_OFFSET, NAME_SIZE)?;
        let len = name
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(FormatError::invalid(WHAT, "a name does not end"))?;
        if len == 0 {
            return Ok(None);
        }
        let cd = fields.u32(8)?;
        if cd > MAX_CD {
            return Err(FormatError::field(WHAT, "cd", cd));
        }
        let name = name.get(..len).unwrap_or_default();
        Ok(Some(MicroEntry { name, cd, value: fields.u64(0)? }))
    }

    /// Byte offset of entry `index`'s name in the block.
    #[must_use]
    pub const fn name_offset(index: usize) -> usize {
        (index + 1) * ENTRY_SIZE + NAME_OFFSET
    }

    /// All used entries with their indexes, in the order of the block.
    pub fn entries(&self) -> impl Iterator<Item = Result<(usize, MicroEntry<'a>), FormatError>> {
        let block = *self;
        (0..self.capacity())
            .filter_map(move |index| Some((index, block.entry(index).transpose()?)))
            .map(|(index, entry)| Ok((index, entry?)))
    }
}

/// Writes the header of a microzap over the start of a zeroed block.
///
/// # Panics
/// When the block is shorter than the header.
pub fn encode_header(block: &mut [u8], order: ByteOrder, salt: u64, normalization: Normalization) {
    let words = [BLOCK_TYPE_MICRO, salt, normalization.flags()];
    FieldsMut::new(block, order).set_u64s(0, &words);
}

/// Writes entry `index`.
///
/// # Panics
/// When the block ends before the entry does, or the name has no room.
pub fn encode_entry(block: &mut [u8], order: ByteOrder, index: usize, entry: MicroEntry<'_>) {
    assert!(entry.name.len() < NAME_SIZE, "a microzap's names have at most 49 bytes");
    clear_entry(block, index);
    let offset = (index + 1) * ENTRY_SIZE;
    let mut fields = FieldsMut::new(block, order);
    fields.set_u64(offset, entry.value);
    fields.set_u32(offset + 8, entry.cd);
    fields.set_bytes(offset + NAME_OFFSET, entry.name);
}

/// Makes entry `index` a free one.
///
/// # Panics
/// When the block ends before the entry does.
pub fn clear_entry(block: &mut [u8], index: usize) {
    let offset = (index + 1) * ENTRY_SIZE;
    block[offset..offset + ENTRY_SIZE].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The block of spec 03, section 12.5.
    fn sample() -> Vec<u8> {
        let mut block = vec![0; 512];
        encode_header(&mut block, ByteOrder::Little, 0xce02_cf35, Normalization::NONE);
        for (index, (value, name)) in [
            (0x8000_0000_0000_0080, "a"),
            (0x8000_0000_0000_0081, "b"),
            (0x8000_0000_0000_0082, "hello"),
            (0x8000_0000_0000_0083, "README.md"),
            (0x4000_0000_0000_0003, "subdir"),
        ]
        .into_iter()
        .enumerate()
        {
            let entry = MicroEntry { name: name.as_bytes(), cd: 0, value };
            encode_entry(&mut block, ByteOrder::Little, index, entry);
        }
        block
    }

    #[test]
    fn bytes_are_those_of_the_spec() {
        let block = sample();
        assert_eq!(block[..16], [3, 0, 0, 0, 0, 0, 0, 0x80, 0x35, 0xcf, 2, 0xce, 0, 0, 0, 0]);
        assert_eq!(block[0x40..0x50], [0x80, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x61, 0]);
        assert_eq!(&block[0x10e..0x117], b"README.md");
    }

    #[test]
    fn entries_are_found_in_both_orders() {
        let little = sample();
        let mut big = vec![0; 512];
        encode_header(&mut big, ByteOrder::Big, 0xce02_cf35, Normalization::FOLD_CASE);
        let entry = MicroEntry { name: b"x", cd: 7, value: 0x0102 };
        encode_entry(&mut big, ByteOrder::Big, 3, entry);
        let block = MicroBlock::decode(&big, ByteOrder::Big).unwrap();
        assert_eq!(block.normalization(), Normalization::FOLD_CASE);
        assert_eq!(block.entries().collect::<Result<Vec<_>, _>>().unwrap(), [(3, entry)]);
        let block = MicroBlock::decode(&little, ByteOrder::Little).unwrap();
        assert_eq!((block.capacity(), block.entries().count()), (7, 5));
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let good = sample();
        let refused = |bytes: &[u8]| MicroBlock::decode(bytes, ByteOrder::Little).is_err();
        assert!(refused(&good[..64]) && refused(&good[..100]) && refused(&[]));
        assert!(refused(&vec![0; 512]));
        let mut no_salt = good.clone();
        no_salt[8..16].fill(0);
        assert!(refused(&no_salt));
        let mut endless = good.clone();
        endless[64 + NAME_OFFSET..128].fill(b'x');
        let block = MicroBlock::decode(&endless, ByteOrder::Little).unwrap();
        assert!(block.entry(0).is_err() && block.entry(7).is_err());
        let mut far = good;
        far[64 + 10] = 1;
        let block = MicroBlock::decode(&far, ByteOrder::Little).unwrap();
        assert!(block.entry(0).is_err());
    }
}
