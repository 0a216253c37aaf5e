//! The logs of a flat dedup table (spec 02, section 9.4).
//!
//! Recent changes of entries are appended to the *active* log, while the entries of the *flushing*
//! log move to the table's ZAPs in the order of their keys.
//!
//! ```text
//! block:   record | record | ... | zeros
//! record:  8 head | 40 key | 72 (flat) or 256 (traditional) value
//! head:    bits 0-7 type, 8-23 length, 48-55 storage type, 56-63 storage class
//! ```

use super::{DdtClass, DdtKey, DdtLayout, DdtValue};
use crate::endian::{Fields, FieldsMut};
use crate::units::Txg;
use crate::{ByteOrder, FormatError};

const WHAT: &str = "dedup log";
const VERSION: u64 = 1;
const FLAG_FLUSHING: u64 = 1;
const FLAG_CHECKPOINT: u64 = 2;
const RECORD_END: u8 = 0;
const RECORD_ENTRY: u8 = 1;
const STORAGE_NONE: u8 = 1;
const CLASS_NONE: u8 = 3;
const HEAD_SIZE: usize = 8;

/// Which of the two logs this is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogRole {
    /// Takes new changes.
    Active,
    /// Is being moved to the ZAPs.
    Flushing,
}

/// The bonus of a log object.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | bits 0-7 version, 8-15 flags |
/// | 8 | 8 | bytes in use, a multiple of the block size |
/// | 16 | 8 | txg in which the log became active |
/// | 24 | 40 | largest key that is flushed |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// Which of the two logs it is.
    pub role: LogRole,
    /// Bytes in use.
    pub length: u64,
    /// The txg in which the log became active.
    pub first_txg: Txg,
    /// Entries up to this key are already in the ZAPs.
    pub checkpoint: Option<DdtKey>,
}

impl LogHeader {
    /// On-disk size in bytes.
    pub const SIZE: usize = 64;

    /// Decodes the bonus.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new(WHAT, bytes, order);
        let [info, length, first_txg] = fields.u64s(0)?;
        if info & 0xff != VERSION {
            return Err(FormatError::field(WHAT, "version", info & 0xff));
        }
        let flags = info >> 8 & 0xff;
        let checkpoint = DdtKey(fields.u64s(24)?);
        Ok(Self {
            role: if flags & FLAG_FLUSHING == 0 { LogRole::Active } else { LogRole::Flushing },
            length,
            first_txg: Txg(first_txg),
            checkpoint: (flags & FLAG_CHECKPOINT != 0).then_some(checkpoint),
        })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut flags = 0;
        if self.role == LogRole::Flushing {
            flags |= FLAG_FLUSHING;
        }
        if self.checkpoint.is_some() {
            flags |= FLAG_CHECKPOINT;
        }
        let mut bytes = [0; Self::SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64s(0, &[VERSION | flags << 8, self.length, self.first_txg.0]);
        fields.set_u64s(24, &self.checkpoint.unwrap_or_default().0);
        bytes
    }
}

/// One change: the entry as it now is, and where its older form is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// The ZAP that has an older form of the entry.
    pub stored: Option<DdtClass>,
    /// The key.
    pub key: DdtKey,
    /// The value; without references when the entry is to be deleted.
    pub value: DdtValue,
}

impl LogRecord {
    /// Bytes of a record with values of this layout.
    #[must_use]
    pub const fn size(layout: DdtLayout) -> usize {
        HEAD_SIZE + DdtKey::SIZE + layout.value_size()
    }

    /// Decodes the record at the start of `rest`, the remainder of a block; with the bytes it
    /// takes. `None` is the end of the block.
    fn decode(
        rest: &[u8],
        order: ByteOrder,
        layout: DdtLayout,
    ) -> Result<Option<(Self, usize)>, FormatError> {
        let fields = Fields::new(WHAT, rest, order);
        let head = fields.u64(0)?;
        match head as u8 {
            RECORD_END => return Ok(None),
            RECORD_ENTRY => {}
            other => return Err(FormatError::field(WHAT, "record type", other)),
        }
        let length = (head >> 8 & 0xffff) as usize;
        if length < Self::size(layout) || !length.is_multiple_of(8) {
            return Err(FormatError::field(WHAT, "record length", length as u64));
        }
        let record = fields.sub(WHAT, 0, length)?;
        let stored = match ((head >> 48) as u8, (head >> 56) as usize) {
            (0, class) => DdtClass::ALL.get(class).copied(),
            _ => None,
        };
        let value = record.bytes(HEAD_SIZE + DdtKey::SIZE, layout.value_size())?;
        let record = Self {
            stored,
            key: DdtKey(record.u64s(HEAD_SIZE)?),
            value: DdtValue::decode(value, order, layout)?,
        };
        Ok(Some((record, length)))
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let value = self.value.encode(order);
        let size = HEAD_SIZE + DdtKey::SIZE + value.len();
        let (storage, class) = match self.stored {
            Some(class) => (0, class as u8),
            None => (STORAGE_NONE, CLASS_NONE),
        };
        let head = u64::from(RECORD_ENTRY)
            | (size as u64) << 8
            | u64::from(storage) << 48
            | u64::from(class) << 56;
        let mut bytes = vec![0; size];
        let mut fields = FieldsMut::new(&mut bytes, order);
        fields.set_u64(0, head);
        fields.set_u64s(HEAD_SIZE, &self.key.0);
        fields.set_bytes(HEAD_SIZE + DdtKey::SIZE, &value);
        bytes
    }
}

/// The records of one block of a log. After an error the iteration ends.
pub fn records(
    block: &[u8],
    order: ByteOrder,
    layout: DdtLayout,
) -> impl Iterator<Item = Result<LogRecord, FormatError>> + '_ {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.len() < HEAD_SIZE {
            return None;
        }
        match LogRecord::decode(rest, order, layout) {
            Ok(None) => {
                rest = &[];
                None
            }
            Ok(Some((record, length))) => {
                rest = rest.get(length..).unwrap_or(&[]);
                Some(Ok(record))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}
