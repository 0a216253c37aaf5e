//! Gang block headers (spec 02, section 8.2).
//!
//! ```text
//! 0              128 N                S - 40          S
//! | N block pointers | zero padding   | checksum trailer |
//! ```
//! The classic header has S = 512 and N = 3; a dynamic one fills the smallest allocation unit.

use crate::{BlockPointer, ByteOrder, FormatError};

/// Bytes of a classic header.
pub const CLASSIC_SIZE: usize = 512;

/// Bytes of the checksum trailer at the end of the header.
pub const TRAILER_SIZE: usize = 40;

/// How many pointers a header of `size` bytes has.
#[must_use]
pub const fn pointer_count(size: usize) -> usize {
    size.saturating_sub(TRAILER_SIZE) / BlockPointer::SIZE
}

/// The pointers of a header, holes left out, in the order of the data.
///
/// `bytes` is the whole header, its checksum already verified.
pub fn members(bytes: &[u8], order: ByteOrder) -> Result<Vec<BlockPointer>, FormatError> {
    let count = pointer_count(bytes.len());
    if count == 0 {
        return Err(FormatError::Truncated {
            what: "gang header",
            need: CLASSIC_SIZE,
            have: bytes.len(),
        });
    }
    let mut members = Vec::with_capacity(count);
    for chunk in bytes.chunks_exact(BlockPointer::SIZE).take(count) {
        let member = BlockPointer::decode(chunk, order)?;
        if !member.is_hole() {
            members.push(member);
        }
    }
    Ok(members)
}
