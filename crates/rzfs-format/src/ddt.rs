//! Dedup tables (spec 02, section 9).
//!
//! There is one table for each checksum function with which blocks were deduplicated. An entry
//! maps the key of a block's contents to the places of its copies and the number of references:
//!
//! ```text
//! key     40   checksum (4 words), sizes and compression
//! value  256   four slots of 64 bytes: ditto (obsolete), single, double, triple    traditional
//! value   72   one slot and the time of its last change                            flat
//! ```
//! Entries are stored in ZAPs by class, and flat tables also keep recent changes in two [`log`]s.

mod histogram;
pub mod log;

pub use histogram::{DdtHistogram, DdtStats};

use crate::block_pointer::{BlockPointer, Dva};
use crate::checksum::{ChecksumFunction, ChecksumValue};
use crate::compression::CompressionFunction;
use crate::endian::{Fields, FieldsMut};
use crate::object_type::ObjectType;
use crate::units::{SECTOR_SIZE, Txg};
use crate::{ByteOrder, FormatError};

const WHAT: &str = "dedup table";

/// MOS directory entry of the ZAP with all stored histograms.
pub const STATISTICS_KEY: &str = "DDT-statistics";
/// Key of the version in a table's directory.
pub const VERSION_KEY: &str = "version";
/// Key of the flags in a table's directory.
pub const FLAGS_KEY: &str = "flags";
/// Flag of a table with flat values.
pub const FLAG_FLAT: u64 = 1;
/// Flag of a table with logs.
pub const FLAG_LOG: u64 = 2;
/// The only known version with a directory of its own.
pub const VERSION_FDT: u64 = 1;
/// The checksum functions that can have tables.
pub const FUNCTIONS: [ChecksumFunction; 5] = [
    ChecksumFunction::Sha256,
    ChecksumFunction::Sha512,
    ChecksumFunction::Skein,
    ChecksumFunction::EdonR,
    ChecksumFunction::Blake3,
];

/// The storage object in which an entry belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DdtClass {
    /// Blocks with extra copies; not written any more.
    Ditto,
    /// More than one reference.
    Duplicate,
    /// One reference.
    Unique,
}

impl DdtClass {
    /// All classes in the order of their numbers, which is also the order of lookup.
    pub const ALL: [Self; 3] = [Self::Ditto, Self::Duplicate, Self::Unique];

    /// The name in the names of objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ditto => "ditto",
            Self::Duplicate => "duplicate",
            Self::Unique => "unique",
        }
    }
}

/// Name of a table's directory in the MOS directory (flat tables).
#[must_use]
pub fn directory_name(checksum: ChecksumFunction) -> String {
    format!("DDT-{}", checksum.name())
}

/// Name of the ZAP with the entries of a class.
#[must_use]
pub fn object_name(checksum: ChecksumFunction, class: DdtClass) -> String {
    format!("DDT-{}-zap-{}", checksum.name(), class.name())
}

/// Name of one of the two logs in a table's directory.
#[must_use]
pub fn log_name(checksum: ChecksumFunction, index: usize) -> String {
    format!("DDT-log-{}-{index}", checksum.name())
}

/// How the values of a table are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DdtLayout {
    /// Four slots.
    Traditional,
    /// One slot.
    Flat,
}

impl DdtLayout {
    /// The layout of a table with these version and flags; an error if they are unknown.
    pub fn from_version_and_flags(version: u64, flags: u64) -> Result<Self, FormatError> {
        match (version, flags) {
            (0, 0) => Ok(Self::Traditional),
            (VERSION_FDT, flags) if flags & !(FLAG_FLAT | FLAG_LOG) == 0 => {
                if flags & FLAG_FLAT != 0 { Ok(Self::Flat) } else { Ok(Self::Traditional) }
            }
            (VERSION_FDT, flags) => Err(FormatError::field(WHAT, "flags", flags)),
            (version, _) => Err(FormatError::field(WHAT, "version", version)),
        }
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn value_size(self) -> usize {
        match self {
            Self::Traditional => 4 * SLOT_SIZE,
            Self::Flat => SLOT_SIZE + 8,
        }
    }
}

const SLOT_SIZE: usize = 64;

/// What identifies a block's contents; ordered as the table's logs order their entries.
///
/// | word | field |
/// |---|---|
/// | 0 - 3 | checksum words of the pointer |
/// | 4 | bits 0-15 LSIZE, 16-31 PSIZE (sectors - 1), 32-38 compression, 39 crypt bit |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct DdtKey(pub [u64; 5]);

impl DdtKey {
    /// On-disk size in bytes.
    pub const SIZE: usize = 40;

    /// The key of the block that a pointer points to.
    #[must_use]
    pub fn of_pointer(pointer: &BlockPointer) -> Self {
        let words = pointer.words();
        let prop = words[6];
        let crypt = u64::from(pointer.has_crypt_bit()) << 39;
        Self([words[12], words[13], words[14], words[15], prop & 0x7f_ffff_ffff | crypt])
    }

    /// The checksum words.
    #[must_use]
    pub const fn checksum(&self) -> ChecksumValue {
        ChecksumValue([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Bytes of the block once decompressed.
    #[must_use]
    pub const fn logical_size(&self) -> u64 {
        ((self.0[4] & 0xffff) + 1) * SECTOR_SIZE
    }

    /// Bytes of the block as stored.
    #[must_use]
    pub const fn physical_size(&self) -> u64 {
        ((self.0[4] >> 16 & 0xffff) + 1) * SECTOR_SIZE
    }

    /// The compression function.
    pub fn compression(&self) -> Result<CompressionFunction, FormatError> {
        CompressionFunction::from_number((self.0[4] >> 32 & 0x7f) as u8)
    }

    /// Whether the block is from an encrypted objset.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.0[4] >> 39 & 1 != 0
    }
}

/// Where the copies of a block are and how many references they have.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 48 | three DVAs (encrypted: the third is salt and IV) |
/// | 48 | 8 | references |
/// | 56 | 8 | physical birth, 0 = the slot is empty |
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DdtSlot {
    /// The copies.
    pub dvas: [Dva; 3],
    /// References.
    pub references: u64,
    /// Physical birth; 0 when the slot is empty.
    pub birth: Txg,
}

impl DdtSlot {
    fn decode(fields: &Fields<'_>, offset: usize) -> Result<Self, FormatError> {
        let [a0, a1, b0, b1, c0, c1, references, birth] = fields.u64s(offset)?;
        let dvas = [Dva([a0, a1]), Dva([b0, b1]), Dva([c0, c1])];
        Ok(Self { dvas, references, birth: Txg(birth) })
    }

    fn encode(&self, fields: &mut FieldsMut<'_>, offset: usize) {
        for (index, dva) in self.dvas.iter().enumerate() {
            fields.set_u64s(offset + index * 16, &dva.0);
        }
        fields.set_u64s(offset + 48, &[self.references, self.birth.0]);
    }

    /// Whether the slot holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.birth.0 == 0
    }

    /// Whether a pointer's block is this one: same first address, same physical birth.
    #[must_use]
    pub fn matches(&self, pointer: &BlockPointer) -> bool {
        let words = pointer.words();
        !self.is_empty()
            && self.dvas[0].0 == [words[0], words[1]]
            && pointer.physical_birth() == self.birth
    }

    /// The pointer that stands for the slot in scans and frees (spec 02, section 9.6).
    #[must_use]
    pub fn pointer(&self, checksum: ChecksumFunction, key: &DdtKey) -> BlockPointer {
        let mut words = [0; 16];
        for (pair, dva) in words.chunks_exact_mut(2).zip(self.dvas) {
            pair.copy_from_slice(&dva.0);
        }
        let order = u64::from(ByteOrder::NATIVE == ByteOrder::Little);
        words[6] = key.0[4] & 0x7f_ffff_ffff
            | u64::from(checksum.number()) << 40
            | u64::from(ObjectType::DEDUP.number()) << 48
            | u64::from(key.is_encrypted()) << 61
            | 1 << 62
            | order << 63;
        words[10] = self.birth.0;
        words[11] = 1;
        words[12..].copy_from_slice(&key.0[..4]);
        BlockPointer::from_words(words)
    }
}

/// The value of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DdtValue {
    /// Slots by the `copies` with which a block was written: ditto, single, double, triple.
    Traditional([DdtSlot; 4]),
    /// One slot for any number of copies.
    Flat {
        /// The slot.
        slot: DdtSlot,
        /// Time of the last change, in seconds since 1970.
        class_start: u64,
    },
}

impl DdtValue {
    /// Decodes a value that was taken out of its envelope; its length must be the layout's.
    pub fn decode(bytes: &[u8], order: ByteOrder, layout: DdtLayout) -> Result<Self, FormatError> {
        if bytes.len() != layout.value_size() {
            return Err(FormatError::field(WHAT, "value size", bytes.len() as u64));
        }
        let fields = Fields::new(WHAT, bytes, order);
        match layout {
            DdtLayout::Flat => Ok(Self::Flat {
                slot: DdtSlot::decode(&fields, 0)?,
                class_start: fields.u64(SLOT_SIZE)?,
            }),
            DdtLayout::Traditional => {
                let mut slots = [DdtSlot::default(); 4];
                for (index, slot) in slots.iter_mut().enumerate() {
                    *slot = DdtSlot::decode(&fields, index * SLOT_SIZE)?;
                }
                Ok(Self::Traditional(slots))
            }
        }
    }

    /// The on-disk bytes, without envelope.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        match self {
            Self::Flat { slot, class_start } => {
                let mut bytes = vec![0; DdtLayout::Flat.value_size()];
                let mut fields = FieldsMut::new(&mut bytes, order);
                slot.encode(&mut fields, 0);
                fields.set_u64(SLOT_SIZE, *class_start);
                bytes
            }
            Self::Traditional(slots) => {
                let mut bytes = vec![0; DdtLayout::Traditional.value_size()];
                let mut fields = FieldsMut::new(&mut bytes, order);
                for (index, slot) in slots.iter().enumerate() {
                    slot.encode(&mut fields, index * SLOT_SIZE);
                }
                bytes
            }
        }
    }

    /// The slots, with empty ones.
    #[must_use]
    pub fn slots(&self) -> &[DdtSlot] {
        match self {
            Self::Traditional(slots) => slots,
            Self::Flat { slot, .. } => std::slice::from_ref(slot),
        }
    }

    /// The slots that hold a block.
    pub fn used_slots(&self) -> impl Iterator<Item = &DdtSlot> {
        self.slots().iter().filter(|slot| !slot.is_empty())
    }

    /// References of all slots but ditto; saturates.
    #[must_use]
    pub fn references(&self) -> u64 {
        let counted = match self {
            Self::Traditional([_ditto, counted @ ..]) => counted.as_slice(),
            Self::Flat { slot, .. } => std::slice::from_ref(slot),
        };
        counted.iter().fold(0, |sum, slot| sum.saturating_add(slot.references))
    }
}

/// The value of a table's ZAP: a byte that tells order and compression, then the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DdtEnvelope<'a> {
    /// Byte order of the payload's words once decompressed.
    pub order: ByteOrder,
    /// How the payload is compressed; [`CompressionFunction::Off`] is stored as it is.
    pub compression: CompressionFunction,
    /// The payload.
    pub payload: &'a [u8],
}

const ENVELOPE_LITTLE: u8 = 0x80;

impl<'a> DdtEnvelope<'a> {
    /// Takes a ZAP value apart.
    pub fn decode(value: &'a [u8]) -> Result<Self, FormatError> {
        let Some((&head, payload)) = value.split_first() else {
            return Err(FormatError::Truncated { what: WHAT, need: 1, have: 0 });
        };
        let order = if head & ENVELOPE_LITTLE == 0 { ByteOrder::Big } else { ByteOrder::Little };
        let compression = CompressionFunction::from_number(head & !ENVELOPE_LITTLE)?;
        Ok(Self { order, compression, payload })
    }

    /// The ZAP value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let order = if self.order == ByteOrder::Little { ENVELOPE_LITTLE } else { 0 };
        let mut value = Vec::with_capacity(self.payload.len() + 1);
        value.push(self.compression.number() | order);
        value.extend_from_slice(self.payload);
        value
    }
}

#[cfg(test)]
mod tests;
