//! Cache devices: what makes a second-level cache survive an import (spec 07, section 15).
//!
//! ```text
//! 0            4 MiB     + header size                                      + asize
//! | labels ... | header  | buffers and log blocks, back to back, overwritten round and round |
//! ```
//! Log blocks tell which buffers are where. Two chains of them lead backwards in time, interleaved:
//! the header points to the heads of both, each log block to the one two before it. A cache never
//! has the only copy of anything, so whatever does not verify is simply not there.

use crate::checksum::ChecksumValue;
use crate::compression::CompressionFunction;
use crate::endian::Fields;
use crate::units::{Guid, SECTOR_SIZE};
use crate::{ByteOrder, FormatError};

/// Byte offset of the header on the device.
pub const HEADER_OFFSET: u64 = 4 << 20;
/// Bytes of the header; the rest of a larger sector is zero.
pub const HEADER_SIZE: usize = 512;
/// The first word of a header: "ZFSCACHE".
pub const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// The first word of a log block: "LOGBLKHD".
pub const LOG_BLOCK_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// Bytes of a log block once decompressed.
pub const LOG_BLOCK_SIZE: usize = 64 << 10;
/// Most entries of a log block.
pub const MAX_LOG_ENTRIES: u64 = 1022;

const WHAT: &str = "cache device";
const POINTER_SIZE: usize = 64;

/// The address of a log block.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | byte offset on the device, 0 = none |
/// | 8 | 8 | bytes of the buffers that it describes |
/// | 16 | 8 | byte offset of the first of them |
/// | 24 | 8 | sizes, compression, checksum function, as in a block pointer's properties |
/// | 32 | 32 | checksum of the block as stored |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBlockPointer {
    /// Byte offset on the device.
    pub address: u64,
    /// Bytes of the buffers that the block describes.
    pub payload_size: u64,
    /// Byte offset of the first of them.
    pub payload_start: u64,
    /// Sizes, compression and checksum function.
    pub properties: u64,
    /// Checksum of the block as stored.
    pub checksum: ChecksumValue,
}

impl LogBlockPointer {
    fn decode(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        let [address, payload_size, payload_start, properties, a, b, c, d] = fields.u64s(offset)?;
        let checksum = ChecksumValue([a, b, c, d]);
        Ok(Self { address, payload_size, payload_start, properties, checksum })
    }

    /// Whether there is no such block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.address == 0
    }

    /// Bytes of the block once decompressed.
    #[must_use]
    pub const fn logical_size(&self) -> u64 {
        ((self.properties & 0xffff) + 1) * SECTOR_SIZE
    }

    /// Bytes of the block as stored.
    #[must_use]
    pub const fn allocated_size(&self) -> u64 {
        ((self.properties >> 16 & 0xffff) + 1) * SECTOR_SIZE
    }

    /// Number of the compression function.
    #[must_use]
    pub const fn compression_number(&self) -> u8 {
        (self.properties >> 32 & 0x7f) as u8
    }

    /// The compression function.
    pub fn compression(&self) -> Result<CompressionFunction, FormatError> {
        CompressionFunction::from_number(self.compression_number())
    }

    /// Number of the checksum function.
    #[must_use]
    pub const fn checksum_number(&self) -> u8 {
        (self.properties >> 40 & 0xff) as u8
    }

    /// Whether the block and its buffers lie in the area of `header`.
    #[must_use]
    pub fn is_in(&self, header: &CacheHeader) -> bool {
        let inside = |start: u64, size: u64| {
            start >= header.start && start.checked_add(size).is_some_and(|end| end <= header.end)
        };
        !self.is_empty()
            && inside(self.address, self.allocated_size())
            && self.payload_start >= header.start
            && self.payload_start < header.end
    }
}

/// The header of a cache device.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 16 | magic, version |
/// | 16 | 16 | guids of the pool and of the vdev |
/// | 32 | 8 | entries of a log block, 0 = no log blocks |
/// | 40 | 32 | evict hand, flags, start and end of the area |
/// | 72 | 128 | pointers to the two newest log blocks |
/// | 200 | 16 | bytes and number of log blocks |
/// | 216 | 16 | time and state of the last TRIM |
/// | 472 | 40 | checksum trailer |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheHeader {
    /// Version of the format.
    pub version: u64,
    /// The pool.
    pub pool: Guid,
    /// The cache vdev.
    pub vdev: Guid,
    /// Entries of a log block.
    pub log_entries: u64,
    /// First byte offset that is not evicted.
    pub evict: u64,
    /// Bit 0: the device is being filled for the first time.
    pub flags: u64,
    /// First byte of the area.
    pub start: u64,
    /// First byte after the area.
    pub end: u64,
    /// The two newest log blocks.
    pub newest: [LogBlockPointer; 2],
    /// Bytes of all log blocks.
    pub log_bytes: u64,
    /// Number of log blocks.
    pub log_blocks: u64,
    /// When the last TRIM began, in seconds since 1970.
    pub trim_time: u64,
    /// State of the last TRIM.
    pub trim_state: u64,
}

impl CacheHeader {
    /// Decodes the header, in the byte order that its magic number tells. The caller verifies its
    /// checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, ByteOrder), FormatError> {
        let order = order_of_magic(bytes, HEADER_MAGIC)?;
        let fields = Fields::new(WHAT, bytes, order).sub(WHAT, 0, HEADER_SIZE)?;
        let [_, version, pool, vdev, log_entries, evict, flags, start, end] = fields.u64s(0)?;
        let newest = [
            LogBlockPointer::decode(&fields, 72)?,
            LogBlockPointer::decode(&fields, 72 + POINTER_SIZE)?,
        ];
        let [log_bytes, log_blocks, trim_time, trim_state] = fields.u64s(200)?;
        let header = Self {
            version,
            pool: Guid(pool),
            vdev: Guid(vdev),
            log_entries,
            evict,
            flags,
            start,
            end,
            newest,
            log_bytes,
            log_blocks,
            trim_time,
            trim_state,
        };
        Ok((header, order))
    }
}

/// The pointer to the log block two before this one, from a block once decompressed.
pub fn previous_log_block(block: &[u8]) -> Result<LogBlockPointer, FormatError> {
    let order = order_of_magic(block, LOG_BLOCK_MAGIC)?;
    LogBlockPointer::decode(&Fields::new(WHAT, block, order), 8)
}

fn order_of_magic(bytes: &[u8], magic: u64) -> Result<ByteOrder, FormatError> {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if Fields::new(WHAT, bytes, order).u64(0)? == magic {
            return Ok(order);
        }
    }
    Err(FormatError::invalid(WHAT, "no magic number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endian::FieldsMut;

    fn header(order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(0, &[HEADER_MAGIC, 1, 7, 8, 511, 4_198_400, 1, 4_198_400, 100_139_008]);
        // 64 KiB stored in 4 KiB, lz4, fletcher4.
        fields.set_u64s(72, &[4_198_400, 1 << 20, 4_202_496, 127 | 7 << 16 | 15 << 32 | 7 << 40]);
        fields.set_u64s(200, &[4096, 1, 0, 0]);
        bytes
    }

    #[test]
    fn headers_of_both_orders_decode() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let (decoded, found) = CacheHeader::decode(&header(order)).unwrap();
            assert_eq!(found, order);
            assert_eq!((decoded.pool, decoded.log_entries, decoded.log_blocks), (Guid(7), 511, 1));
            let newest = decoded.newest[0];
            assert_eq!((newest.logical_size(), newest.allocated_size()), (65_536, 4096));
            assert_eq!(newest.compression(), Ok(CompressionFunction::Lz4));
            assert!(newest.is_in(&decoded));
            assert!(decoded.newest[1].is_empty() && !decoded.newest[1].is_in(&decoded));
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        assert!(CacheHeader::decode(&[0; HEADER_SIZE]).is_err());
        assert!(CacheHeader::decode(&header(ByteOrder::Little)[..100]).is_err());
        assert!(previous_log_block(&[0; 72]).is_err());
        let outside = LogBlockPointer {
            address: u64::MAX - 511,
            payload_size: 0,
            payload_start: 0,
            properties: 0xffff_ffff,
            checksum: ChecksumValue([0; 4]),
        };
        let (header, _) = CacheHeader::decode(&header(ByteOrder::Little)).unwrap();
        assert!(!outside.is_in(&header));
    }
}
