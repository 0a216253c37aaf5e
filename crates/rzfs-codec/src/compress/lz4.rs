//! LZ4 (spec 02, section 5.8).
//!
//! ```text
//! 0             4                 4 + c      PSIZE
//! | c, big-endian | LZ4 block format | zeros |
//! ```

use super::frame::framed;
use lz4_flex::block::{self, CompressTable};
use std::cell::RefCell;

const HEADER: usize = 4;

/// What a thread keeps for compressing: the hash table, and room for the worst case.
struct Scratch {
    table: CompressTable,
    output: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { table: CompressTable::large(), output: Vec::new() });
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, &'static str> {
    block::decompress_into(framed(src, 0)?, dst).map_err(|_| "broken stream")
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, room) = dst.split_first_chunk_mut::<HEADER>()?;
    SCRATCH.with_borrow_mut(|Scratch { table, output }| {
        let worst = block::get_maximum_output_size(src.len());
        if output.len() < worst {
            output.resize(worst, 0);
        }
        let length = block::compress_into_with_table(src, output, table).ok()?;
        room.get_mut(..length)?.copy_from_slice(output.get(..length)?);
        *header = u32::try_from(length).ok()?.to_be_bytes();
        Some(HEADER + length)
    })
}
