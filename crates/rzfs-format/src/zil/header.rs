//! The header of an intent log, in the objset block (spec 05, section 10.1).
//!
//! ```text
//! 0 claim txg  8 replayed seq  16 first block (128)  144 claimed block seq  152 flags
//! 160 claimed record seq  168 zeros (24)
//! ```

use crate::FormatError;
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::objset::ZIL_HEADER_SIZE;
use crate::units::Txg;

const WHAT: &str = "ZIL header";

/// Flags of the header.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ZilFlags(pub u64);

impl ZilFlags {
    /// The log has records that are not in the file system.
    pub const REPLAY_NEEDED: u64 = 1;
    /// [`ZilHeader::claimed_record_seq`] is set.
    pub const CLAIMED_RECORD_SEQ_VALID: u64 = 2;

    /// Whether the flag is set.
    #[must_use]
    pub const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// A decoded header.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ZilHeader {
    /// The txg in which the log was claimed; `None` = not claimed.
    pub claim_txg: Option<Txg>,
    /// The highest record sequence number that was replayed.
    pub replayed_seq: u64,
    /// Pointer to the first block; a hole = no log.
    pub first: BlockPointer,
    /// The highest block sequence number that was claimed.
    pub claimed_block_seq: u64,
    /// Flags.
    pub flags: ZilFlags,
    /// The highest record sequence number that was claimed.
    pub claimed_record_seq: u64,
}

impl ZilHeader {
    /// Decodes the header.
    pub fn decode(bytes: &[u8; ZIL_HEADER_SIZE], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let claim_txg = fields.u64(0)?;
        Ok(Self {
            claim_txg: (claim_txg != 0).then_some(Txg(claim_txg)),
            replayed_seq: fields.u64(8)?,
            first: BlockPointer::decode(fields.bytes(16, BlockPointer::SIZE)?, order)?,
            claimed_block_seq: fields.u64(144)?,
            flags: ZilFlags(fields.u64(152)?),
            claimed_record_seq: fields.u64(160)?,
        })
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; ZIL_HEADER_SIZE] {
        let mut bytes = [0; ZIL_HEADER_SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(0, &[self.claim_txg.unwrap_or_default().get(), self.replayed_seq]);
        fields.set_bytes(16, &self.first.encode(order));
        let claimed = [self.claimed_block_seq, self.flags.0, self.claimed_record_seq];
        fields.set_u64s(144, &claimed);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_the_spec_decodes() {
        let mut bytes = [0; ZIL_HEADER_SIZE];
        bytes[16] = 8;
        bytes[24..26].copy_from_slice(&[0xc0, 0x15]);
        bytes[64..72].copy_from_slice(&[7, 0, 7, 0, 2, 9, 9, 0x80]);
        bytes[96] = 0x1e;
        bytes[128] = 0x52;
        bytes[136] = 2;
        let header = ZilHeader::decode(&bytes, ByteOrder::Little).unwrap();
        assert_eq!(header.claim_txg, None);
        assert!(!header.flags.has(ZilFlags::REPLAY_NEEDED));
        assert_eq!(header.first.dvas().next().unwrap().offset(), 0x15c0 * 512);
        assert_eq!(header.encode(ByteOrder::Little), bytes);
    }

    #[test]
    fn an_empty_header_has_no_log() {
        let header = ZilHeader::decode(&[0; ZIL_HEADER_SIZE], ByteOrder::Little).unwrap();
        assert!(header.first.is_hole());
        assert_eq!(header, ZilHeader::default());
    }

    #[test]
    fn headers_survive_encoding() {
        let header = ZilHeader {
            claim_txg: Some(Txg(7)),
            replayed_seq: 8,
            first: BlockPointer::HOLE,
            claimed_block_seq: 9,
            flags: ZilFlags(ZilFlags::REPLAY_NEEDED | ZilFlags::CLAIMED_RECORD_SEQ_VALID),
            claimed_record_seq: 10,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(ZilHeader::decode(&header.encode(order), order).unwrap(), header);
        }
    }
}
