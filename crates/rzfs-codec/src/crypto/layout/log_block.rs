//! Blocks of the intent log (spec 04, section 19.10).
//!
//! ```text
//! 0            144            184                               used             size
//! | chain header | trailer     | record | record | ...          | zeros          |
//! | aad          | has the MAC | of each: 32 bytes aad, then message
//!
//! write, after its 32 bytes    | object, offset, ... (32) | block pointer (128) | data    |
//!                              | message                  | aad                 | message |
//! clone range                  | object, offset, ... (32) | block pointers                |
//!                              | message                  | aad                           |
//! ```

use super::super::CryptoError;
use super::parts::Parts;
use rzfs_format::endian::Fields;
use rzfs_format::{ByteOrder, FormatError};

const WHAT: &str = "log block";
const USED: usize = 136;
const TRAILER: usize = 144;
const CHAIN_HEADER: usize = 184;
const RECORD_HEADER: usize = 32;
/// Bytes before the block pointers of the records that have some.
const PREFIX: usize = 64;
/// Bytes before the data of a write.
const WRITE_HEADER: usize = 192;

const WRITE: u64 = 9;
const CLONE_RANGE: u64 = 24;

pub(super) fn take_apart(
    order: ByteOrder,
    block: &[u8],
    parts: &mut Parts,
) -> Result<(), CryptoError> {
    let fields = Fields::new(WHAT, block, order);
    parts.aad.extend_from_slice(fields.bytes(0, TRAILER)?);
    let used = fields.u64(USED)?;
    let used = usize::try_from(used)
        .ok()
        .filter(|used| (CHAIN_HEADER..=block.len()).contains(used))
        .ok_or(FormatError::field(WHAT, "used length", used))?;
    let mut offset = CHAIN_HEADER;
    while offset < used {
        let records = fields.sub("log record", offset, used - offset)?;
        offset += take_record_apart(records, offset, parts)?;
    }
    Ok(())
}

/// Takes the record at the start of `records`, which are at `offset` of the block; its length.
fn take_record_apart(
    records: Fields<'_>,
    offset: usize,
    parts: &mut Parts,
) -> Result<usize, FormatError> {
    let kind = records.u64(0)?;
    let length = records.u64(8)?;
    let shortest = match kind {
        WRITE => WRITE_HEADER,
        CLONE_RANGE => PREFIX,
        _ => RECORD_HEADER,
    };
    let length = usize::try_from(length)
        .ok()
        .filter(|length| (shortest..=records.len()).contains(length))
        .ok_or(FormatError::field("log record", "length", length))?;
    parts.aad.extend_from_slice(records.bytes(0, RECORD_HEADER)?);
    let (open_from, open_to) = match kind {
        WRITE => (PREFIX, WRITE_HEADER),
        CLONE_RANGE => (PREFIX, length),
        _ => (length, length),
    };
    parts.encrypted.push(offset + RECORD_HEADER..offset + open_from);
    parts.aad.extend_from_slice(records.bytes(open_from, open_to - open_from)?);
    parts.encrypted.push(offset + open_to..offset + length);
    Ok(length)
}

/// Where a log block's MAC is: the last two words of its trailer.
pub(in super::super) const MAC: std::ops::Range<usize> = 168..CHAIN_HEADER;
