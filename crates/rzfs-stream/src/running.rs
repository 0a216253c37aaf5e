//! The running checksum of a stream (spec 08, section 4).
//!
//! ```text
//! bytes so far | record .. 280 |<- the record's checksum covers these checksum | payload
//!              |<- END's other checksum covers these
//! ```

use rzfs_codec::checksum::Fletcher4;
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;
use rzfs_format::stream::{CHECKSUM_OFFSET, RECORD_SIZE};

/// fletcher4 of everything since the BEGIN of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running(Fletcher4);

impl Running {
    /// The checksum of nothing.
    pub(crate) const fn new(order: ByteOrder) -> Self {
        Self(Fletcher4::new(order))
    }

    /// The checksum of everything so far.
    pub(crate) const fn value(&self) -> ChecksumValue {
        self.0.value()
    }

    /// Adds a record up to its checksum, and returns the expected value of that.
    pub(crate) fn add_fields(&mut self, record: &[u8; RECORD_SIZE]) -> ChecksumValue {
        self.0.update(&record[..CHECKSUM_OFFSET]);
        self.value()
    }

    /// Adds the stored checksum of a record, or the end of BEGIN's name.
    pub(crate) fn add_rest(&mut self, record: &[u8; RECORD_SIZE]) {
        self.0.update(&record[CHECKSUM_OFFSET..]);
    }

    /// Adds a piece of a payload, a multiple of 4 bytes.
    pub(crate) fn add_payload(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }
}
