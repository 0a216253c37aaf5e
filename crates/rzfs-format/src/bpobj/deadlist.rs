//! Deadlists and livelists: bpobjs by birth (spec 04, sections 5.2 and 10.1).

use crate::endian::{Fields, FieldsMut};
use crate::{ByteOrder, FormatError};

/// The bonus of a deadlist's or livelist's ZAP: the sums of its bpobjs, then zeros.
///
/// The ZAP maps a txg K to the bpobj of the blocks born after K and not after the next larger
/// key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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

    /// Decodes the bonus.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [used, compressed, uncompressed] = Fields::new("deadlist", bytes, order).u64s(0)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_in_both_orders() {
        let header = DeadlistHeader { used: 1024, compressed: 512, uncompressed: 4096 };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(DeadlistHeader::decode(&header.encode(order), order).unwrap(), header);
        }
        assert!(DeadlistHeader::decode(&[0; 23], ByteOrder::Little).is_err());
    }
}
