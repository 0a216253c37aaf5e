//! Records of any type: decode, encode, and the checksum that most of them end with
//! (spec 08, sections 2 and 4).

use super::layout::{
    Begin, End, FreeObjects, FreeRange, Object, ObjectRange, Spill, Write, WriteByRef,
    WriteEmbedded,
};
use super::{CHECKSUM_OFFSET, MAGIC, RECORD_SIZE};
use crate::checksum::ChecksumValue;
use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::{FormatError, Guid};

const WHAT: &str = "stream record";
/// Payloads that are not whole blocks are padded to multiples of this.
const ALIGNMENT: u64 = 8;

macro_rules! records {
    ($($(#[$doc:meta])* $kind:ident($body:ty) = $number:literal, $name:literal;)*) => {
        /// The type of a record.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum RecordKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl RecordKind {
            /// All types by number.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The type with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)* _ => None }
            }

            /// The name as OpenZFS spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }

        /// A record without its payload and its checksum.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Record {
            $($(#[$doc])* $kind($body),)*
        }

        impl Record {
            /// The type.
            #[must_use]
            pub const fn kind(&self) -> RecordKind {
                match self { $(Self::$kind(_) => RecordKind::$kind,)* }
            }

            /// The snapshot that the record says it belongs to.
            #[must_use]
            pub const fn to_guid(&self) -> Guid {
                match self { $(Self::$kind(body) => body.to_guid,)* }
            }

            /// Decodes a record.
            ///
            /// # Errors
            /// [`FormatError::Field`]: there is no such type.
            pub fn decode(
                bytes: &[u8; RECORD_SIZE],
                order: ByteOrder,
            ) -> Result<Self, FormatError> {
                let fields = Fields::new(WHAT, bytes, order);
                let number = fields.u32(0)?;
                Ok(match RecordKind::from_number(number) {
                    $(Some(RecordKind::$kind) => Self::$kind(<$body>::decode(&fields)?),)*
                    None => return Err(FormatError::field(WHAT, "type", number)),
                })
            }

            /// The bytes of the record, its checksum zeros: [`stamp`] adds it.
            #[must_use]
            pub fn encode(&self, order: ByteOrder) -> [u8; RECORD_SIZE] {
                let mut bytes = [0; RECORD_SIZE];
                let mut fields = FieldsMut::new(&mut bytes, order);
                fields.set_u32(0, self.kind() as u32);
                match self { $(Self::$kind(body) => body.encode(&mut fields),)* }
                bytes
            }
        }
    };
}

records! {
    /// The head of a stream.
    Begin(Begin) = 0, "DRR_BEGIN";
    /// A dnode.
    Object(Object) = 1, "DRR_OBJECT";
    /// Objects that do not exist.
    FreeObjects(FreeObjects) = 2, "DRR_FREEOBJECTS";
    /// A block.
    Write(Write) = 3, "DRR_WRITE";
    /// A hole.
    Free(FreeRange) = 4, "DRR_FREE";
    /// The end.
    End(End) = 5, "DRR_END";
    /// A block like an earlier one.
    WriteByRef(WriteByRef) = 6, "DRR_WRITE_BYREF";
    /// A spill block.
    Spill(Spill) = 7, "DRR_SPILL";
    /// An embedded block.
    WriteEmbedded(WriteEmbedded) = 8, "DRR_WRITE_EMBEDDED";
    /// The encryption of a block of dnodes.
    ObjectRange(ObjectRange) = 9, "DRR_OBJECT_RANGE";
    /// A range that was left out.
    Redact(FreeRange) = 10, "DRR_REDACT";
}

impl Record {
    /// Bytes of the payload that follows, as the record says: not checked in any way.
    #[must_use]
    pub const fn payload_length(&self) -> u64 {
        match self {
            Self::Begin(begin) => begin.payload_length as u64,
            Self::Object(object) if object.raw_bonus_length != 0 => object.raw_bonus_length as u64,
            Self::Object(object) => (object.bonus_length as u64).next_multiple_of(ALIGNMENT),
            Self::Write(write) if write.compression != 0 => write.compressed_size,
            Self::Write(write) => write.logical_size,
            Self::Spill(spill) if spill.compressed_size != 0 => spill.compressed_size,
            Self::Spill(spill) => spill.length,
            Self::WriteEmbedded(write) => (write.physical_size as u64).next_multiple_of(ALIGNMENT),
            Self::FreeObjects(_)
            | Self::Free(_)
            | Self::End(_)
            | Self::WriteByRef(_)
            | Self::ObjectRange(_)
            | Self::Redact(_) => 0,
        }
    }
}

/// The byte order of a stream, from its first record; `None` when that is no BEGIN.
#[must_use]
pub fn byte_order(first: &[u8; RECORD_SIZE]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| {
        let fields = Fields::new(WHAT, first, *order);
        fields.u64(8) == Ok(MAGIC) && fields.u32(0) == Ok(RecordKind::Begin as u32)
    })
}

/// The checksum at the end of a record; `None` in a BEGIN, which has none, and where it is all
/// zeros, as old senders leave it.
#[must_use]
pub fn stored_checksum(bytes: &[u8; RECORD_SIZE], order: ByteOrder) -> Option<ChecksumValue> {
    let fields = Fields::new(WHAT, bytes, order);
    if fields.u32(0) == Ok(RecordKind::Begin as u32) {
        return None;
    }
    let checksum = fields.u64s(CHECKSUM_OFFSET).map(ChecksumValue).ok();
    checksum.filter(|checksum| *checksum != ChecksumValue::default())
}

/// Stores the running checksum at the end of a record, which must not be a BEGIN.
pub fn stamp(bytes: &mut [u8; RECORD_SIZE], checksum: ChecksumValue, order: ByteOrder) {
    FieldsMut::new(bytes, order).set_u64s(CHECKSUM_OFFSET, &checksum.0);
}
