//! The extended-attribute section of log records: flags of Windows, creation time, project id
//! (spec 05, section 10.5).
//!
//! ```text
//! 0 words of the bitmaps = 3  4 requested (3 x 4)  16 values (8)  24 creation time (16)
//! 40 scanstamp (32), or project id (8)
//! ```

use crate::FormatError;
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::znode::Timestamp;

const WHAT: &str = "log record attributes";
const BITMAP_WORDS: u32 = 3;

/// Attributes by bit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct XattrBits(pub u32);

impl XattrBits {
    /// Creation time.
    pub const CREATE_TIME: u32 = 0x1;
    /// Archive flag.
    pub const ARCHIVE: u32 = 0x2;
    /// System flag.
    pub const SYSTEM: u32 = 0x4;
    /// Read-only flag.
    pub const READONLY: u32 = 0x8;
    /// Hidden flag.
    pub const HIDDEN: u32 = 0x10;
    /// No-unlink flag.
    pub const NOUNLINK: u32 = 0x20;
    /// Immutable flag.
    pub const IMMUTABLE: u32 = 0x40;
    /// Append-only flag.
    pub const APPENDONLY: u32 = 0x80;
    /// No-dump flag.
    pub const NODUMP: u32 = 0x100;
    /// Opaque flag.
    pub const OPAQUE: u32 = 0x200;
    /// Quarantined.
    pub const AV_QUARANTINED: u32 = 0x400;
    /// Modified since the last scan.
    pub const AV_MODIFIED: u32 = 0x800;
    /// Scanstamp.
    pub const AV_SCANSTAMP: u32 = 0x1000;
    /// Reparse point.
    pub const REPARSE: u32 = 0x2000;
    /// Generation.
    pub const GEN: u32 = 0x4000;
    /// Offline flag.
    pub const OFFLINE: u32 = 0x8000;
    /// Sparse flag.
    pub const SPARSE: u32 = 0x1_0000;
    /// Children inherit the project id.
    pub const PROJINHERIT: u32 = 0x2_0000;
    /// Project id.
    pub const PROJID: u32 = 0x4_0000;

    /// Whether the bit is set.
    #[must_use]
    pub const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

/// The section, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedAttributes {
    /// Which attributes the record sets.
    pub requested: XattrBits,
    /// The values of those that are flags.
    pub values: XattrBits,
    /// Creation time.
    pub create_time: Timestamp,
    /// The scanstamp, when it is requested.
    pub scanstamp: Option<[u8; 32]>,
    /// The project id, when it is requested.
    pub project: Option<u64>,
}

impl ExtendedAttributes {
    /// Bytes of the section.
    pub const SIZE: usize = 72;

    /// Decodes the section at the start of `bytes`.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let words = fields.u32(0)?;
        if words != BITMAP_WORDS {
            return Err(FormatError::field(WHAT, "bitmap words", words));
        }
        let requested = XattrBits(fields.u32(4)?);
        let scanstamp = fields.array(40)?;
        Ok(Self {
            requested,
            values: XattrBits(fields.u64(16)? as u32),
            create_time: Timestamp::decode(fields.u64s(24)?),
            scanstamp: requested.has(XattrBits::AV_SCANSTAMP).then_some(scanstamp),
            project: if requested.has(XattrBits::PROJID) { Some(fields.u64(40)?) } else { None },
        })
    }

    /// The bytes of the section. A scanstamp takes the place of a project id.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u32(0, BITMAP_WORDS);
        fields.set_u32(4, self.requested.0);
        fields.set_u64(16, self.values.0.into());
        fields.set_u64s(24, &self.create_time.encode());
        match (self.scanstamp, self.project) {
            (Some(scanstamp), _) => fields.set_bytes(40, &scanstamp),
            (None, Some(project)) => fields.set_u64(40, project),
            (None, None) => {}
        }
        bytes
    }
}
