//! Dead lists: the blocks that a dataset no longer has but the snapshot before it does (spec 04,
//! section 5).
//!
//! ```text
//! ZAP "0" -> bpobj    blocks born in (0, 1]
//!     "1" -> bpobj                   (1, 0x11]
//!     "11" -> bpobj                  (0x11, ...        keys are txgs of snapshots, in hex
//! ```
//! The bonus of the ZAP's object is the header. Pools older than version 26 have one list of block
//! pointers instead ([`crate::bpobj`]).

use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::{FormatError, Txg};

/// The bonus of a dead list: sums over all of its lists.
///
/// | offset | field |
/// | --- | --- |
/// | 0 | bytes used: allocated sizes, deflated |
/// | 8 | physical bytes |
/// | 16 | logical bytes of data, physical ones of metadata |
/// | 24 | zeros to 320 |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeadlistHeader {
    /// Allocated bytes, deflated.
    pub used: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes (physical ones of metadata).
    pub uncompressed: u64,
}

impl DeadlistHeader {
    /// On-disk size in bytes.
    pub const SIZE: usize = 320;

    /// Decodes a bonus.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [used, compressed, uncompressed] = Fields::new("dead list", bonus, order).u64s(0)?;
        Ok(Self { used, compressed, uncompressed })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order)
            .set_u64s(0, &[self.used, self.compressed, self.uncompressed]);
        bytes
    }
}

/// The txg that a key of the ZAP names: blocks of its list were born later.
pub fn parse_key(name: &[u8]) -> Result<Txg, FormatError> {
    let text = std::str::from_utf8(name).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .map(Txg)
        .ok_or(FormatError::invalid("dead list", "a key is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_in_both_orders() {
        let headers = [(51_200, 51_200, 60_000), (1024, 512, 4096)];
        for (used, compressed, uncompressed) in headers {
            let header = DeadlistHeader { used, compressed, uncompressed };
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert_eq!(DeadlistHeader::decode(&header.encode(order), order), Ok(header));
            }
        }
        for short in [16, 23] {
            assert!(DeadlistHeader::decode(&vec![0; short], ByteOrder::Little).is_err());
        }
    }

    #[test]
    fn keys_are_hexadecimal() {
        assert_eq!(parse_key(b"1c"), Ok(Txg(28)));
        for key in [&b""[..], b"+1", b"xyz", b"\xff", b"11112222333344445"] {
            assert!(parse_key(key).is_err());
        }
    }
}
