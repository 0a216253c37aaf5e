//! A confirmed write whose place was not touched since: any device found in the leaf's place has
//! it, or is older.

use rzfs_codec::checksum::fletcher4;
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;
use std::ops::Range;

/// Bytes compared at the start of a write: a multiple of every sector size.
const MOST_SEEN: usize = 128 << 10;

/// The position of a confirmed write, and a checksum of its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Witness {
    position: u64,
    len: usize,
    sum: ChecksumValue,
}

impl Witness {
    /// Remembers what was written at a position.
    pub(super) fn of(position: u64, data: &[u8]) -> Self {
        let seen = data.get(..MOST_SEEN).unwrap_or(data);
        Self { position, len: seen.len(), sum: sum(seen) }
    }

    /// Byte position on the device.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes to read there.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the device that this was read from has the write.
    pub(crate) fn is_in(&self, found: &[u8]) -> bool {
        sum(found) == self.sum
    }

    /// Whether an event in a range of the device affects it.
    pub(super) fn lies_in(&self, range: &Range<u64>) -> bool {
        self.position < range.end && range.start < self.position.saturating_add(self.len as u64)
    }
}

/// No protection against forgery is needed: it distinguishes states of a device.
fn sum(bytes: &[u8]) -> ChecksumValue {
    fletcher4(bytes, ByteOrder::NATIVE)
}
