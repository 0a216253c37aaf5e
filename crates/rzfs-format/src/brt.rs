//! Block cloning: the reference tables of top-level vdevs (spec 02, section 10.1).
//!
//! ```text
//! MOS directory  com.fudosecurity:brt:vdev:<id> -> vdev object
//! vdev object    bonus: BrtHeader   data: one u16 per range of the vdev: entries in the range
//! entries ZAP    byte offset of DVA 0 -> further references, beyond the first
//! ```

use crate::endian::{Fields, FieldsMut};
use crate::units::{ObjectId, VdevId};
use crate::{ByteOrder, FormatError};

const WHAT: &str = "block reference table";

/// The MOS directory entry of a vdev's table.
#[must_use]
pub fn vdev_key(vdev: VdevId) -> String {
    format!("com.fudosecurity:brt:vdev:{vdev}")
}

/// The bonus of a vdev's table: seven words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrtHeader {
    /// The entries ZAP.
    pub entries: ObjectId,
    /// Number of counters in the object's data.
    pub counters: u64,
    /// Byte order of the counters.
    pub counter_order: ByteOrder,
    /// Number of entries in the ZAP.
    pub total_count: u64,
    /// Bytes of the vdev per counter.
    pub range_size: u64,
    /// Deflated bytes of the blocks that have an entry.
    pub used_space: u64,
    /// Deflated bytes that sharing saves.
    pub saved_space: u64,
}

impl BrtHeader {
    /// On-disk size in bytes.
    pub const SIZE: usize = 56;

    /// Decodes the bonus.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let [entries, counters, byte_order, total_count, range_size, used_space, saved_space] =
            Fields::new(WHAT, bytes, order).u64s(0)?;
        if range_size == 0 {
            return Err(FormatError::field(WHAT, "range size", range_size));
        }
        Ok(Self {
            entries: ObjectId(entries),
            counters,
            counter_order: match byte_order {
                0 => ByteOrder::Little,
                1 => ByteOrder::Big,
                _ => return Err(FormatError::field(WHAT, "byte order", byte_order)),
            },
            total_count,
            range_size,
            used_space,
            saved_space,
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order).set_u64s(
            0,
            &[
                self.entries.0,
                self.counters,
                u64::from(self.counter_order == ByteOrder::Big),
                self.total_count,
                self.range_size,
                self.used_space,
                self.saved_space,
            ],
        );
        bytes
    }

    /// The counter of the range that a byte offset is in.
    #[must_use]
    pub const fn range_of(&self, offset: u64) -> u64 {
        match offset.checked_div(self.range_size) {
            Some(range) => range,
            None => 0,
        }
    }
}

/// The counters in a part of the object's data; a last odd byte is left out.
pub fn counters(data: &[u8], order: ByteOrder) -> impl Iterator<Item = u16> + '_ {
    data.chunks_exact(2).map(move |chunk| {
        let mut bytes = [0; 2];
        bytes.copy_from_slice(chunk);
        order.u16(bytes)
    })
}

/// The count of a ZAP value in the classic form: eight integers of one byte, the writer's memory.
///
/// The other form, of the feature `block_cloning_endian`, is one integer of eight bytes, which
/// the ZAP itself decodes.
pub fn classic_count(value: &[u8], order: ByteOrder) -> Result<u64, FormatError> {
    if value.len() != 8 {
        return Err(FormatError::field(WHAT, "size of a count", value.len() as u64));
    }
    Fields::new(WHAT, value, order).u64(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_the_spec_round_trips() {
        let words = [340_u64, 15, 0, 4, 16 << 20, 32 << 10, 64 << 10];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..8], [0x54, 1, 0, 0, 0, 0, 0, 0]);
        let header = BrtHeader::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!((header.entries, header.counters), (ObjectId(340), 15));
        assert_eq!((header.used_space, header.saved_space), (32 << 10, 64 << 10));
        assert_eq!(header.encode(ByteOrder::Little)[..], bytes);
        assert_eq!((header.range_of(401_408), header.range_of(u64::MAX)), (0, (1 << 40) - 1));
    }

    #[test]
    fn hostile_headers_are_refused() {
        let header = |byte_order: u64, range: u64| {
            let words = [340, 15, byte_order, 4, range, 0, 0];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            BrtHeader::decode(&bytes, ByteOrder::Big)
        };
        assert_eq!(header(1, 512).unwrap().counter_order, ByteOrder::Big);
        assert!(header(2, 512).is_err());
        assert!(header(0, 0).is_err());
        assert!(BrtHeader::decode(&[1; 55], ByteOrder::Big).is_err());
    }

    #[test]
    fn counts_of_the_spec_decode() {
        let value = [2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(classic_count(&value, ByteOrder::Little).unwrap(), 2);
        assert_eq!(classic_count(&value, ByteOrder::Big).unwrap(), 2 << 56);
        assert!(classic_count(&value[1..], ByteOrder::Little).is_err());
        assert_eq!(counters(&[4, 0, 1, 2, 9], ByteOrder::Little).collect::<Vec<_>>(), [4, 0x201]);
        assert_eq!(vdev_key(VdevId(0)), "com.fudosecurity:brt:vdev:0");
    }
}
