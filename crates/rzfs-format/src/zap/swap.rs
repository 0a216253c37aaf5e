//! Turns a ZAP's block from one byte order into the other (spec 03, sections 12.5 to 12.7).
//!
//! What is written is in the machine's order, so a block that came in the other order is turned
//! as a whole before the first change to it. Names and the arrays of leaves are strings of bytes
//! and stay.

use super::fat::Geometry;
use super::leaf::{CHUNK_SIZE, chunk_widths, header_widths};
use super::micro::ENTRY_SIZE;
use super::{BLOCK_TYPE_LEAF, BLOCK_TYPE_MICRO};
use crate::endian::Fields;
use crate::{ByteOrder, FormatError};

/// Turns a block of a ZAP whose byte order is `from` into the other order.
///
/// # Errors
/// When the block is a leaf with a chunk of unknown kind; it is unchanged then.
pub fn swap_block(bytes: &mut [u8], from: ByteOrder) -> Result<(), FormatError> {
    match Fields::new("ZAP", bytes, from).u64(0)? {
        BLOCK_TYPE_MICRO => {
            let (header, entries) = bytes.split_at_mut(ENTRY_SIZE.min(bytes.len()));
            reverse(header, [8; 8]);
            for entry in entries.chunks_exact_mut(ENTRY_SIZE) {
                reverse(entry, [8, 4, 2]);
            }
        }
        BLOCK_TYPE_LEAF => return swap_leaf(bytes),
        _ => bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse),
    }
    Ok(())
}

fn swap_leaf(bytes: &mut [u8]) -> Result<(), FormatError> {
    let geometry = Geometry::of_block_size(bytes.len())?;
    let (head, chunks) = bytes.split_at_mut(bytes.len() - geometry.chunks() * CHUNK_SIZE);
    for chunk in chunks.chunks_exact(CHUNK_SIZE) {
        chunk_widths(chunk[0])?;
    }
    for chunk in chunks.chunks_exact_mut(CHUNK_SIZE) {
        reverse(chunk, chunk_widths(chunk[0])?.iter().copied());
    }
    reverse(head, header_widths(geometry));
    Ok(())
}

/// Reverses the bytes of fields that follow each other and have these widths.
fn reverse(mut bytes: &mut [u8], widths: impl IntoIterator<Item = usize>) {
    for width in widths {
        let (field, rest) = bytes.split_at_mut(width.min(bytes.len()));
        field.reverse();
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zap::leaf::{ChainOrder, Integers, Leaf, LeafMut, NewEntry};
    use crate::zap::micro::{MicroBlock, MicroEntry, encode_entry, encode_header};
    use crate::zap::{IntegerSize, Normalization, ZapHash};

    fn leaf(order: ByteOrder) -> Vec<u8> {
        let mut block = vec![0; 1024];
        let mut leaf = LeafMut::format(&mut block, order, (5, 3), ChainOrder::ByCd).unwrap();
        let key = Integers { size: IntegerSize::One, bytes: b"a name\0" };
        let value = Integers { size: IntegerSize::Two, bytes: &[7; 50] };
        for cd in 0..3 {
            leaf.insert(&NewEntry { hash: ZapHash(0xb1 << 56), cd, key, value }).unwrap();
        }
        block
    }

    #[test]
    fn a_swapped_leaf_is_that_of_the_other_order() {
        let mut block = leaf(ByteOrder::Big);
        swap_block(&mut block, ByteOrder::Big).unwrap();
        assert_eq!(block, leaf(ByteOrder::Little));
        swap_block(&mut block, ByteOrder::Little).unwrap();
        assert_eq!(block, leaf(ByteOrder::Big));
        let offset = 1024 - CHUNK_SIZE;
        block[offset] = 1;
        let before = block.clone();
        assert!(swap_block(&mut block, ByteOrder::Big).is_err() && block == before);
        assert!(Leaf::decode(&block, ByteOrder::Big).is_ok());
    }

    #[test]
    fn a_swapped_microzap_is_that_of_the_other_order() {
        let micro = |order| {
            let mut block = vec![0; 512];
            encode_header(&mut block, order, 0x1234_5679, Normalization::FOLD_CASE);
            encode_entry(&mut block, order, 4, MicroEntry { name: b"name", cd: 3, value: 99 });
            block
        };
        let mut block = micro(ByteOrder::Big);
        swap_block(&mut block, ByteOrder::Big).unwrap();
        assert_eq!(block, micro(ByteOrder::Little));
        let entries = MicroBlock::decode(&block, ByteOrder::Little).unwrap();
        assert_eq!(entries.entries().count(), 1);
    }

    #[test]
    fn other_blocks_are_words() {
        let mut table = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0];
        swap_block(&mut table, ByteOrder::Little).unwrap();
        assert_eq!(table, [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert!(swap_block(&mut [0; 4], ByteOrder::Little).is_err());
    }
}
