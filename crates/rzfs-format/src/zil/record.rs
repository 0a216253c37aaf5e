//! Records of the intent log: the header that all have in common (spec 05, section 10.4).
//!
//! ```text
//! 0 type, bit 63 = names are case-insensitive  8 length  16 txg  24 sequence number  32 body
//! ```

use super::body::Body;
use super::kind::RecordKind;
use crate::FormatError;
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, Fields};
use crate::units::Txg;

/// Bytes of the common header.
pub(super) const HEADER_SIZE: usize = 32;

const WHAT: &str = "log record";
/// Where the pointer of a write is.
const WRITE_POINTER: usize = 64;
/// Where the pointers of a cloning are, behind their number.
const CLONE_POINTERS: usize = 72;
const CASE_INSENSITIVE: u64 = 1 << 63;

/// A record: its header, decoded, and its body, not yet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What it does; `None` for a number that the format does not know.
    pub kind: Option<RecordKind>,
    /// The number of the kind.
    pub kind_number: u64,
    /// Whether its names match without regard to case.
    pub case_insensitive: bool,
    /// The txg of the operation.
    pub txg: Txg,
    /// Its sequence number: rises, with gaps.
    pub seq: u64,
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of `bytes`, which reach to the end of the block's records.
    pub fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let [kind, length, txg, seq] = fields.u64s(0)?;
        let taken = usize::try_from(length)
            .ok()
            .filter(|length| *length >= HEADER_SIZE && length % 8 == 0)
            .and_then(|length| bytes.get(..length))
            .ok_or_else(|| FormatError::field(WHAT, "length", length))?;
        let kind_number = kind & !CASE_INSENSITIVE;
        Ok(Self {
            kind: RecordKind::from_number(kind_number),
            kind_number,
            case_insensitive: kind & CASE_INSENSITIVE != 0,
            txg: Txg(txg),
            seq,
            bytes: taken,
            order,
        })
    }

    /// All bytes of the record, header included.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Byte order of the record.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// The pointer to data outside of the log that a write has; `None` for all other records. It
    /// can be read in an encrypted log, too.
    #[must_use]
    pub fn data_pointer(&self) -> Option<BlockPointer> {
        if self.kind != Some(RecordKind::Write) {
            return None;
        }
        let bytes = self.bytes.get(WRITE_POINTER..)?.get(..BlockPointer::SIZE)?;
        BlockPointer::decode(bytes, self.order).ok().filter(|pointer| !pointer.is_hole())
    }

    /// The blocks that a cloning shares, without holes and what is stored in its pointer; none for
    /// all other records. They can be read in an encrypted log, too.
    pub fn shared_pointers(&self) -> impl Iterator<Item = BlockPointer> + use<'a> {
        let is_clone = self.kind == Some(RecordKind::CloneRange);
        let pointers = self.bytes.get(CLONE_POINTERS..).filter(|_| is_clone).unwrap_or_default();
        let count = Fields::new(WHAT, self.bytes, self.order).u64(CLONE_POINTERS - 8);
        let count = count.ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let order = self.order;
        let pointers = pointers.chunks_exact(BlockPointer::SIZE).take(count);
        pointers
            .filter_map(move |bytes| BlockPointer::decode(bytes, order).ok())
            .filter(|pointer| !pointer.is_hole() && !pointer.is_embedded())
    }

    /// Decodes the body. In an encrypted log it must have been decrypted first.
    pub fn body(&self) -> Result<Body<'a>, FormatError> {
        let kind = self.kind.ok_or_else(|| FormatError::field(WHAT, "type", self.kind_number))?;
        if self.bytes.len() < kind.minimum_length() {
            return Err(FormatError::Truncated {
                what: kind.name(),
                need: kind.minimum_length(),
                have: self.bytes.len(),
            });
        }
        Body::decode(kind, self.bytes, self.order)
    }
}

/// The records of a block, in order. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Records<'a> {
    pub(super) const fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = Record::decode(self.rest, self.order);
        self.rest = match &record {
            Ok(record) => self.rest.get(record.bytes.len()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u64, length: u64) -> Vec<u8> {
        [kind, length, 30, 9, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_end_after_the_last_or_the_first_bad_one() {
        let mut bytes = record(10 | 1 << 63, 48);
        bytes.extend(record(5, 48));
        let kinds: Vec<_> = Records::new(&bytes, ByteOrder::Little)
            .map(|record| record.map(|record| (record.kind, record.case_insensitive)))
            .collect::<Result<_, _>>()
            .unwrap();
        let expected = [(Some(RecordKind::Truncate), true), (Some(RecordKind::Remove), false)];
        assert_eq!(kinds, expected);
        for length in [0, 31, 33, 56, u64::MAX] {
            let mut bytes = record(5, 48);
            bytes.extend(record(5, length));
            let results: Vec<_> = Records::new(&bytes, ByteOrder::Little).collect();
            assert_eq!(results.len(), 2, "length {length}");
            assert!(results[1].is_err(), "length {length}");
        }
    }

    #[test]
    fn unknown_kinds_have_no_body() {
        for kind in [0, 25, 1 << 62] {
            let bytes = record(kind, 48);
            let record = Record::decode(&bytes, ByteOrder::Little).unwrap();
            assert_eq!(record.kind, None);
            assert!(record.body().is_err());
        }
    }
}
