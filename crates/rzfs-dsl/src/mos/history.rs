//! The pool's history: a log of commands and events in a ring (spec 01, section 7.2).
//!
//! ```text
//! 0               create len                                        max offset
//! | first records | ring: oldest ... newest, wrapping at any byte   |
//! ```
//! Offsets in the header count as if the ring were endless. Each record is its length, a
//! little-endian word, and a packed list. The records up to the pool's creation are never
//! overwritten.

use super::error::MosError;
use super::live::MosTx;
use super::record::{BonusRecord, record_of};
use super::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::PoolError;
use crate::live::LiveError;
use rzfs_dmu::live::LiveObject;
use rzfs_dmu::{Object, Objset, SourceObject};
use rzfs_format::endian::{Fields, FieldsMut};
use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, FormatError, ObjectId, Txg};

/// Block size of the history in bytes.
const BLOCK: u32 = 128 << 10;

/// Bytes of a record's length.
const LENGTH_SIZE: u64 = 8;

/// Maximum length of a record; those of commands have some kilobytes.
const MAX_RECORD: u64 = 64 << 20;

/// The history of a pool takes a thousandth of its space, within these bounds.
const POOL_SHARE: u64 = 1000;
const MIN_LOG: u64 = 128 << 10;
const MAX_LOG: u64 = 1 << 30;

/// The position of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    create_len: u64,
    max_offset: u64,
    begin: u64,
    end: u64,
    lost: u64,
}

impl BonusRecord for Header {
    const BONUS_TYPE: ObjectType = ObjectType::SPA_HISTORY_OFFSETS;

    fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        const WHAT: &str = "pool history";
        let fields = Fields::new(WHAT, bonus, order);
        let [create_len, max_offset, begin, end, lost] = fields.u64s::<5>(0)?;
        let header = Self { create_len, max_offset, begin, end, lost };
        if max_offset > MAX_LOG || create_len >= max_offset {
            return Err(FormatError::field(WHAT, "size", max_offset));
        }
        if begin > end || begin < create_len || end - begin > max_offset - create_len {
            return Err(FormatError::field(WHAT, "end", end));
        }
        Ok(header)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let words = [self.create_len, self.max_offset, self.begin, self.end, self.lost];
        FieldsMut::new(&mut bytes, ByteOrder::NATIVE).set_u64s(0, &words);
        bytes
    }
}

impl Header {
    /// The position of a logical offset in the object, and the bytes up to the next wrap.
    fn place(&self, offset: u64) -> (u64, u64) {
        if offset < self.create_len {
            return (offset, self.create_len - offset);
        }
        let ring = self.max_offset - self.create_len;
        let at = self.create_len + (offset - self.create_len) % ring;
        (at, self.max_offset - at)
    }

    /// Reads `len` bytes from a logical offset; the caller bounds `len`.
    fn read(&self, object: &impl SourceObject, offset: u64, len: u64) -> Result<Vec<u8>, MosError> {
        let mut bytes = Vec::with_capacity(len as usize);
        while let Some(missing) = len.checked_sub(bytes.len() as u64).filter(|bytes| *bytes > 0) {
            let (at, room) = self.place(offset.saturating_add(bytes.len() as u64));
            bytes.extend_from_slice(&object.bytes_at(at, missing.min(room) as usize)?);
        }
        Ok(bytes)
    }

    /// The length of the record at a logical offset.
    fn length_at(&self, object: &impl SourceObject, offset: u64) -> Result<u64, MosError> {
        let bytes = self.read(object, offset, LENGTH_SIZE)?;
        Ok(bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length)))
    }
}

/// The history of a pool, oldest records first.
///
/// An iterator; it ends after the newest record or after an error, since the start of the record
/// after a damaged one is unknown.
#[derive(Debug)]
pub struct History {
    object: Object,
    header: Header,
    /// Logical offset of the next record; `None` at the end.
    next: Option<u64>,
}

impl History {
    /// The history in this object of the MOS.
    pub(crate) fn open(mos: &Objset, id: ObjectId) -> Result<Self, MosError> {
        let object = mos.object(id)?;
        let header: Header = record_of(&object)?;
        let first = if header.create_len > 0 { 0 } else { header.begin };
        Ok(Self { object, header, next: Some(first) })
    }

    /// Number of overwritten records.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header.lost
    }

    /// The record at `offset` and the offset of the next one.
    fn record(&self, offset: u64) -> Result<(HistoryRecord, u64), MosError> {
        let Self { object, header, .. } = self;
        let corrupt = MosError::corrupt(object.id());
        let end = if offset < header.create_len { header.create_len } else { header.end };
        let length = header.length_at(object, offset)?;
        let next = length.checked_add(LENGTH_SIZE).and_then(|size| offset.checked_add(size));
        match next.filter(|next| length > 0 && length <= MAX_RECORD && *next <= end) {
            None => Err(corrupt(FormatError::field("history record", "length", length))),
            Some(next) => {
                let record = header.read(object, offset + LENGTH_SIZE, length)?;
                Ok((HistoryRecord { list: NvList::decode(&record).map_err(corrupt)? }, next))
            }
        }
    }
}

impl Iterator for History {
    type Item = Result<HistoryRecord, PoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut offset = self.next.take()?;
        if offset == self.header.create_len {
            offset = self.header.begin;
        }
        if offset >= self.header.end && offset >= self.header.create_len {
            return None;
        }
        match self.record(offset) {
            Ok((record, next)) => {
                self.next = Some(next);
                Some(Ok(record))
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// A record of the history.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryRecord {
    list: NvList,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryEvent {
    /// A user's command.
    Command {
        /// The command line.
        command: String,
        /// The user id.
        user: Option<u64>,
        /// The zone; "linux" there.
        zone: Option<String>,
    },
    /// An operation of the pool.
    Internal {
        /// The operation.
        name: String,
        /// Its details.
        message: String,
        /// The txg.
        txg: Option<u64>,
        /// Name and number of the dataset concerned.
        dataset: Option<(String, u64)>,
    },
    /// A request to the kernel module.
    Ioctl {
        /// The request.
        name: String,
        /// The input.
        input: Option<NvList>,
        /// The output.
        output: Option<NvList>,
        /// The error number; 0 or absent: none.
        errno: Option<i64>,
        /// The duration.
        elapsed_ns: Option<u64>,
    },
    /// A numbered event of old software.
    Numbered {
        /// The number.
        number: u64,
        /// Its details.
        message: String,
        /// The txg.
        txg: Option<u64>,
    },
    /// Something else; see [`HistoryRecord::list`].
    Other,
}

impl HistoryRecord {
    /// The record as stored.
    #[must_use]
    pub fn list(&self) -> &NvList {
        &self.list
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = self.list.find_string(name).ok().flatten()?;
        Some(text.to_text().into_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.list.find_u64(name).ok().flatten()
    }

    /// When it was written, in seconds since 1970.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        self.number("history time")
    }

    /// The host that wrote it.
    #[must_use]
    pub fn hostname(&self) -> Option<String> {
        self.text("history hostname")
    }

    /// The duration; signed on disk.
    fn elapsed(&self) -> Option<u64> {
        let nanoseconds = self.list.find_i64("elapsed_ns").ok().flatten()?;
        u64::try_from(nanoseconds).ok()
    }

    /// The user id of the originator, and the zone on the host.
    #[must_use]
    pub fn origin(&self) -> (Option<u64>, Option<String>) {
        (self.number("history who"), self.text("history zone"))
    }

    /// The contents.
    #[must_use]
    pub fn event(&self) -> HistoryEvent {
        let message = || self.text("history internal str").unwrap_or_default();
        let txg = self.number("history txg");
        if let Some(command) = self.text("history command") {
            let (user, zone) = self.origin();
            return HistoryEvent::Command { command, user, zone };
        }
        if let Some(name) = self.text("internal_name") {
            let dataset = self.text("dsname").zip(self.number("dsid"));
            return HistoryEvent::Internal { name, message: message(), txg, dataset };
        }
        if let Some(name) = self.text("ioctl") {
            let list = |name| self.list.find_list(name).ok().flatten().cloned();
            return HistoryEvent::Ioctl {
                name,
                input: list("in_nvl"),
                output: list("out_nvl"),
                errno: self.list.find_i64("errno").ok().flatten(),
                elapsed_ns: self.elapsed(),
            };
        }
        match self.number("history internal event") {
            Some(number) => HistoryEvent::Numbered { number, message: message(), txg },
            None => HistoryEvent::Other,
        }
    }
}

/// An event to record in the history of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A user's command.
    Command {
        /// The command line.
        line: String,
        /// The user id.
        user: u64,
    },
    /// An operation on the pool or one of its datasets.
    Internal {
        /// The operation: `create`, `set`, `open`, ...
        operation: &'static str,
        /// The details.
        text: String,
        /// The dataset: its name and object.
        dataset: Option<(String, ObjectId)>,
    },
}

/// Time and place of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'a> {
    pub(crate) txg: Txg,
    pub(crate) time: u64,
    pub(crate) host: &'a str,
}

impl Event {
    fn record(&self, occasion: Occasion<'_>) -> Result<NvList, FormatError> {
        let text = |text: &str| NvString::new(text).map(NvValue::String);
        let mut list = NvList::new();
        match self {
            Self::Command { line, user } => {
                list.insert("history command", text(line)?)?;
                list.insert("history zone", text("linux")?)?;
                list.insert("history who", NvValue::UInt64(*user))?;
            }
            Self::Internal { operation, text: about, dataset } => {
                if let Some((name, object)) = dataset {
                    list.insert("dsname", text(name)?)?;
                    list.insert("dsid", NvValue::UInt64(object.get()))?;
                }
                list.insert("history internal str", text(about)?)?;
                list.insert("internal_name", text(operation)?)?;
                list.insert("history txg", NvValue::UInt64(occasion.txg.get()))?;
            }
        }
        list.insert("history time", NvValue::UInt64(occasion.time))?;
        list.insert("history hostname", text(occasion.host)?)?;
        Ok(list)
    }
}

/// Creates the history of a pool whose normal class has `space` bytes.
pub(crate) fn create(mos: &MosTx<'_>, space: u64) -> Result<ObjectId, LiveError> {
    let max_offset = (space / POOL_SHARE).clamp(MIN_LOG, MAX_LOG);
    let header = Header { create_len: 0, max_offset, begin: 0, end: 0, lost: 0 };
    let id = mos.create_record(ObjectType::SPA_HISTORY, BLOCK, &header)?;
    mos.insert(DIRECTORY, "history", id.get())?;
    Ok(id)
}

/// Appends a record, overwriting the oldest ones if there is no room. The records up to the first
/// command are permanent.
pub(crate) fn append(
    mos: &MosTx<'_>,
    id: ObjectId,
    event: &Event,
    occasion: Occasion<'_>,
) -> Result<(), LiveError> {
    let record =
        event.record(occasion).and_then(|list| list.encode(Encoding::Native(ByteOrder::NATIVE)));
    let record = record.map_err(LiveError::corrupt(id))?;
    let object = mos.object(id)?;
    let mut header: Header = mos.record(id)?;
    let mut bytes = (record.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&record);
    let ring = header.max_offset - header.create_len;
    if bytes.len() as u64 >= ring {
        return Ok(());
    }
    while ring - (header.end - header.begin) <= bytes.len() as u64 {
        let next = header.length_at(&object, header.begin)?.saturating_add(LENGTH_SIZE);
        header.begin = header.begin.saturating_add(next).min(header.end);
        header.lost += 1;
    }
    write(mos, &object, &header, &bytes)?;
    header.end += bytes.len() as u64;
    if header.create_len == 0 && matches!(event, Event::Command { .. }) {
        header.create_len = header.end;
        header.begin = header.end;
    }
    mos.set_record(id, &header)
}

fn write(
    mos: &MosTx<'_>,
    object: &LiveObject,
    header: &Header,
    bytes: &[u8],
) -> Result<(), LiveError> {
    let (mut rest, mut offset) = (bytes, header.end);
    while !rest.is_empty() {
        let (at, room) = header.place(offset);
        let len = (rest.len() as u64).min(room);
        let (now, later) = rest.split_at(len as usize);
        object.write(mos.tx(), at, now)?;
        (rest, offset) = (later, offset.saturating_add(len));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_wraps_behind_the_first_records() {
        let header = Header { create_len: 100, max_offset: 300, begin: 250, end: 420, lost: 1 };
        assert_eq!(header.place(0), (0, 100));
        assert_eq!(header.place(99), (99, 1));
        assert_eq!(header.place(100), (100, 200));
        assert_eq!(header.place(299), (299, 1));
        assert_eq!(header.place(300), (100, 200));
        assert_eq!(header.place(710), (110, 190));
    }
}
