//! The fields of every record and where they lie (spec 08, sections 2.1 to 2.10).
//!
//! One table, from which the structs, their decoders and their encoders come. The compiler checks
//! that fields do not overlap and end before the checksum. What is between them is written as zeros
//! and ignored when it is read.

use super::field::Field;
use super::flags::{BeginFlags, ObjectFlags, RangeFlags, SpillFlags, WriteFlags};
use super::version::VersionInfo;
use super::{CHECKSUM_OFFSET, RECORD_SIZE};
use crate::FormatError;
use crate::checksum::ChecksumValue;
use crate::endian::{Fields, FieldsMut};
use crate::units::{Guid, ObjectId};
use std::fmt;

macro_rules! layouts {
    ($(
        $(#[$doc:meta])* $name:ident to $end:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $offset:literal;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            pub(super) fn decode(fields: &Fields<'_>) -> Result<Self, FormatError> {
                Ok(Self { $($field: Field::get(fields, $offset)?,)* })
            }

            pub(super) fn encode(&self, fields: &mut FieldsMut<'_>) {
                $(Field::set(&self.$field, fields, $offset);)*
            }
        }

        const _: () = check(&[$(($offset, <$type as Field>::SIZE)),*], $end);
    )*};
}

/// Fields lie one after the other and end before `end`.
const fn check(mut fields: &[(usize, usize)], end: usize) {
    while let [(offset, size), rest @ ..] = fields {
        let next = if let [(next, _), ..] = rest { *next } else { end };
        assert!(*offset + *size <= next);
        fields = rest;
    }
}

layouts! {
    /// The head of a stream: of one snapshot, or of a package.
    Begin to RECORD_SIZE {
        /// Bytes of the packed nvlist that follows; 0 = none.
        payload_length: u32 = 4;
        /// [`MAGIC`](super::MAGIC).
        magic: u64 = 8;
        /// Kind and features.
        version: VersionInfo = 16;
        /// When the snapshot was taken: seconds since 1970.
        creation_time: u64 = 24;
        /// The type of the objset: 2 file system, 3 volume.
        objset_type: u32 = 32;
        /// Flags.
        flags: BeginFlags = 36;
        /// The snapshot that is sent.
        to_guid: Guid = 40;
        /// The source of the increment; 0 = a full stream.
        from_guid: Guid = 48;
        /// `pool/fs@snap`.
        to_name: StreamName = 56;
    }

    /// A dnode; its bonus is the payload.
    Object to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// Number of its type.
        object_type: u32 = 16;
        /// Number of its bonus's type.
        bonus_type: u32 = 20;
        /// Bytes of a data block.
        block_size: u32 = 24;
        /// Bytes of the bonus.
        bonus_length: u32 = 28;
        /// Number of the checksum function; 0 = inherited.
        checksum: u8 = 32;
        /// Number of the compression function; 0 = inherited.
        compression: u8 = 33;
        /// Slots of 512 bytes; 0 means 1.
        slots: u8 = 34;
        /// Flags.
        flags: ObjectFlags = 35;
        /// Raw streams: bytes of the encrypted bonus area; 0 without a bonus.
        raw_bonus_length: u32 = 36;
        /// The snapshot that is sent.
        to_guid: Guid = 40;
        /// Raw streams: log2 of an indirect block's size.
        indirect_shift: u8 = 48;
        /// Raw streams: levels of the block tree.
        levels: u8 = 49;
        /// Raw streams: number of block pointers.
        pointers: u8 = 50;
        /// Raw streams: number of the last block.
        max_block_id: u64 = 56;
    }

    /// Objects that do not exist.
    FreeObjects to CHECKSUM_OFFSET {
        /// The first.
        first: ObjectId = 8;
        /// How many.
        count: u64 = 16;
        /// The snapshot that is sent.
        to_guid: Guid = 24;
    }

    /// A block; its contents are the payload.
    Write to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// Number of its type.
        object_type: u32 = 16;
        /// First byte in the object.
        offset: u64 = 24;
        /// Bytes of the contents.
        logical_size: u64 = 32;
        /// The snapshot that is sent.
        to_guid: Guid = 40;
        /// Number of the checksum function of `key_checksum`.
        checksum: u8 = 48;
        /// Flags.
        flags: WriteFlags = 49;
        /// Number of the payload's compression function; 0 = the payload is the contents.
        compression: u8 = 50;
        /// The checksum of the sender's block pointer; unused.
        key_checksum: ChecksumValue = 56;
        /// Sizes and compression of the sender's block pointer, packed; unused.
        key_properties: u64 = 88;
        /// Bytes of the payload when `compression` is not 0.
        compressed_size: u64 = 96;
        /// Raw streams: what the block was encrypted with.
        salt: [u8; 8] = 104;
        /// Raw streams: what the block was encrypted with.
        iv: [u8; 12] = 112;
        /// Raw streams: what proves that the block is genuine.
        mac: [u8; 16] = 124;
    }

    /// A range of an object: free (FREE), or left out (REDACT).
    FreeRange to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// First byte.
        offset: u64 = 16;
        /// Number of bytes; [`FreeRange::TO_THE_END`] = all that follow.
        length: u64 = 24;
        /// The snapshot that is sent.
        to_guid: Guid = 32;
    }

    /// The end of a stream, or of a package's head.
    End to CHECKSUM_OFFSET {
        /// The running checksum of everything before this record.
        checksum: ChecksumValue = 8;
        /// The snapshot that was sent; 0 at the ends of packages.
        to_guid: Guid = 40;
    }

    /// A block that has the same contents as an earlier one (streams of old senders).
    WriteByRef to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// First byte.
        offset: u64 = 16;
        /// Number of bytes.
        length: u64 = 24;
        /// The snapshot that is sent.
        to_guid: Guid = 32;
        /// The snapshot that has the contents.
        from_guid: Guid = 40;
        /// The object in it.
        from_object: ObjectId = 48;
        /// First byte in that object.
        from_offset: u64 = 56;
        /// Number of the checksum function of `key_checksum`.
        checksum: u8 = 64;
        /// Flags.
        flags: WriteFlags = 65;
        /// The checksum of the block.
        key_checksum: ChecksumValue = 72;
        /// Sizes and compression of the block, packed.
        key_properties: u64 = 104;
    }

    /// The spill block of an object; its contents are the payload.
    Spill to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// Bytes of the contents.
        length: u64 = 16;
        /// The snapshot that is sent.
        to_guid: Guid = 24;
        /// Flags.
        flags: SpillFlags = 32;
        /// Raw streams: number of the payload's compression function.
        compression: u8 = 33;
        /// Raw streams: bytes of the payload.
        compressed_size: u64 = 40;
        /// Raw streams: what the block was encrypted with.
        salt: [u8; 8] = 48;
        /// Raw streams: what the block was encrypted with.
        iv: [u8; 12] = 56;
        /// Raw streams: what proves that the block is genuine.
        mac: [u8; 16] = 68;
        /// Number of the type; senders leave it 0.
        object_type: u32 = 84;
    }

    /// A block that lies in its pointer; what lies there, padded, is the payload.
    WriteEmbedded to CHECKSUM_OFFSET {
        /// The object.
        object: ObjectId = 8;
        /// First byte in the object.
        offset: u64 = 16;
        /// Bytes of the object that the block is.
        length: u64 = 24;
        /// The snapshot that is sent.
        to_guid: Guid = 32;
        /// Number of the payload's compression function; 2 = the payload is the contents.
        compression: u8 = 40;
        /// What is embedded: 0 = data.
        embedded_type: u8 = 41;
        /// Bytes of the contents.
        logical_size: u32 = 48;
        /// Bytes of the payload without its padding.
        physical_size: u32 = 52;
    }

    /// What the dnodes of a block were encrypted with; raw streams only.
    ObjectRange to CHECKSUM_OFFSET {
        /// The first object of the block.
        first: ObjectId = 8;
        /// Slots of the block.
        slots: u64 = 16;
        /// The snapshot that is sent.
        to_guid: Guid = 24;
        /// What the block was encrypted with.
        salt: [u8; 8] = 32;
        /// What the block was encrypted with.
        iv: [u8; 12] = 40;
        /// What proves that the block is genuine.
        mac: [u8; 16] = 52;
        /// Flags.
        flags: RangeFlags = 68;
    }
}

impl FreeRange {
    /// The length of a range that has no end.
    pub const TO_THE_END: u64 = u64::MAX;
}

impl Object {
    /// Slots of the dnode, at least 1.
    #[must_use]
    pub const fn slot_count(&self) -> u8 {
        if self.slots == 0 { 1 } else { self.slots }
    }
}

/// The name of a snapshot in its 256 bytes: what is before the first NUL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StreamName([u8; Self::SIZE]);

impl StreamName {
    /// Bytes with the NUL, and what follows it.
    pub const SIZE: usize = 256;

    /// A name of at most 255 bytes.
    ///
    /// # Errors
    /// The name is longer, or has a NUL in it.
    pub fn new(name: &[u8]) -> Result<Self, FormatError> {
        let mut bytes = [0; Self::SIZE];
        match bytes.get_mut(..name.len()) {
            Some(room) if name.len() < Self::SIZE && !name.contains(&0) => {
                room.copy_from_slice(name);
            }
            _ => return Err(FormatError::invalid("DRR_BEGIN", "a name that does not fit")),
        }
        Ok(Self(bytes))
    }

    /// The name.
    ///
    /// # Errors
    /// It has no end.
    pub fn as_bytes(&self) -> Result<&[u8], FormatError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        end.and_then(|end| self.0.get(..end))
            .ok_or(FormatError::invalid("DRR_BEGIN", "a name without an end"))
    }

    /// The name as it can be shown; one without an end is shown as far as it goes.
    #[must_use]
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes().unwrap_or(&self.0))
    }
}

impl Default for StreamName {
    fn default() -> Self {
        Self([0; Self::SIZE])
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamName({:?})", self.to_text())
    }
}

impl Field for StreamName {
    const SIZE: usize = Self::SIZE;

    fn get(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        fields.array(offset).map(Self)
    }

    fn set(&self, fields: &mut FieldsMut<'_>, offset: usize) {
        fields.set_bytes(offset, &self.0);
    }
}
