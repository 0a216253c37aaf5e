//! The block of a micro ZAP (spec 03, section 12.5).
//!
//! ```text
//! 0       8      16           24     64
//! | type  | salt | normflags  | pad  | entry | entry | ...
//!
//! entry:  0       8    12    14
//!         | value | cd | pad | name with NUL, 50 bytes |
//! ```

use super::name::Normalization;
use super::{BlockKind, MICRO};
use crate::FormatError;
use crate::endian::{ByteOrder, Fields, FieldsMut};

const WHAT: &str = "micro ZAP";
const HEADER_SIZE: usize = 64;
const ENTRY_SIZE: usize = 64;
const NAME_OFFSET: usize = 14;

/// Most bytes of a name, its NUL not counted.
pub const MAX_NAME: usize = ENTRY_SIZE - NAME_OFFSET - 1;

/// Most bytes of the block.
pub const MAX_BLOCK_SIZE: usize = 1 << 20;

/// The header of the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroHeader {
    /// What hashing starts with; never 0.
    pub salt: u64,
    /// How names are normalised before they are hashed and compared.
    pub normalization: Normalization,
}

/// An entry in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroEntry<'a> {
    /// The name, without its NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: u64,
    /// The collision differentiator: tells entries with the same hash apart.
    pub differentiator: u32,
}

/// Decodes the header and checks the block's size.
pub fn decode_header(block: &[u8], order: ByteOrder) -> Result<MicroHeader, FormatError> {
    if BlockKind::of(block, order)? != BlockKind::Micro {
        return Err(FormatError::invalid(WHAT, "not the block of a micro ZAP"));
    }
    if block.len() < HEADER_SIZE + ENTRY_SIZE
        || block.len() > MAX_BLOCK_SIZE
        || !block.len().is_multiple_of(ENTRY_SIZE)
    {
        return Err(FormatError::field(WHAT, "block size", block.len() as u64));
    }
    let fields = Fields::new(WHAT, block, order);
    let salt = fields.u64(8)?;
    if salt == 0 {
        return Err(FormatError::field(WHAT, "salt", salt));
    }
    Ok(MicroHeader { salt, normalization: Normalization::from_flags(fields.u64(16)?)? })
}

/// How many entries the block has room for.
#[must_use]
pub const fn capacity(block_size: usize) -> usize {
    (block_size / ENTRY_SIZE).saturating_sub(1)
}

/// The entry at `index`; `None` when it is free or beyond the end.
pub fn entry(
    block: &[u8],
    order: ByteOrder,
    index: usize,
) -> Result<Option<MicroEntry<'_>>, FormatError> {
    let Some(bytes) = index
        .checked_mul(ENTRY_SIZE)
        .and_then(|offset| block.get(offset + HEADER_SIZE..))
        .and_then(|rest| rest.get(..ENTRY_SIZE))
    else {
        return Ok(None);
    };
    let fields = Fields::new(WHAT, bytes, order);
    let text = fields.bytes(NAME_OFFSET, ENTRY_SIZE - NAME_OFFSET)?;
    let len = text.iter().position(|byte| *byte == 0);
    let len = len.ok_or(FormatError::invalid(WHAT, "a name without an end"))?;
    if len == 0 {
        return Ok(None);
    }
    let differentiator = fields.u32(8)?;
    if differentiator > 0xffff {
        return Err(FormatError::field(WHAT, "collision differentiator", differentiator));
    }
    Ok(Some(MicroEntry {
        name: text.get(..len).unwrap_or_default(),
        value: fields.u64(0)?,
        differentiator,
    }))
}

/// Writes the header of a new block.
///
/// # Panics
/// When the block is shorter than a header.
pub fn encode_header(block: &mut [u8], order: ByteOrder, header: &MicroHeader) {
    let mut fields = FieldsMut::new(block, order);
    fields.set_u64s(0, &[MICRO, header.salt, header.normalization.flags()]);
}

/// Writes an entry.
///
/// # Panics
/// When `index` is beyond the block's capacity or the name too long.
pub fn encode_entry(block: &mut [u8], order: ByteOrder, index: usize, entry: &MicroEntry<'_>) {
    assert!(entry.name.len() <= MAX_NAME, "the name fits into an entry");
    let start = HEADER_SIZE + index * ENTRY_SIZE;
    let bytes = &mut block[start..start + ENTRY_SIZE];
    bytes.fill(0);
    let mut fields = FieldsMut::new(bytes, order);
    fields.set_u64(0, entry.value);
    fields.set_u32(8, entry.differentiator);
    fields.set_bytes(NAME_OFFSET, entry.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_in_both_byte_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut block = vec![0; 512];
            let header = MicroHeader { salt: 0xce02_cf35, normalization: Normalization::NONE };
            let readme = MicroEntry { name: b"README.md", value: 1 << 63 | 131, differentiator: 2 };
            encode_header(&mut block, order, &header);
            encode_entry(&mut block, order, 3, &readme);
            assert_eq!(decode_header(&block, order), Ok(header));
            assert_eq!(entry(&block, order, 3), Ok(Some(readme)));
            assert_eq!(entry(&block, order, 2), Ok(None));
            assert_eq!(entry(&block, order, usize::MAX), Ok(None));
            assert_eq!(capacity(block.len()), 7);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let order = ByteOrder::Little;
        let mut block = vec![0; 512];
        let header = MicroHeader { salt: 1, normalization: Normalization::NONE };
        encode_header(&mut block, order, &header);
        assert!(decode_header(&block[..64], order).is_err());
        assert!(decode_header(&block[..500], order).is_err());
        block[64 + 14..128].fill(b'x');
        assert!(entry(&block, order, 0).is_err(), "no NUL");
        block[8] = 0;
        assert!(decode_header(&block, order).is_err(), "no salt");
    }
}
