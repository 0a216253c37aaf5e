//! The pool's history: a log of commands and events in a ring (spec 01, section 7.2).
//!
//! ```text
//! 0               create len                                        max offset
//! | first records | ring: oldest ... newest, wrapping at any byte   |
//! ```
//! Offsets in the header count as if the ring were endless. Each record is its length, a
//! little-endian word, and a packed list. The records up to the one of the pool's creation are
//! never overwritten.

use super::error::PoolError;
use rzfs_dmu::{Object, Objset};
use rzfs_format::endian::{Fields, FieldsMut};
use rzfs_format::nvlist::NvList;
use rzfs_format::{ByteOrder, FormatError, ObjectId};

/// Bytes of a record's length.
pub(crate) const LENGTH_SIZE: u64 = 8;

/// Longest record that is read; records of commands have some kilobytes.
const MAX_RECORD: u64 = 64 << 20;

/// Largest log that OpenZFS makes: 1 GiB.
const MAX_LOG: u64 = 1 << 30;

/// Where the records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) create_len: u64,
    pub(crate) max_offset: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) lost: u64,
}

impl Header {
    pub(crate) fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
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

    /// The on-disk bytes.
    pub(crate) fn encode(&self, order: ByteOrder) -> [u8; 40] {
        let mut bytes = [0; 40];
        let words = [self.create_len, self.max_offset, self.begin, self.end, self.lost];
        FieldsMut::new(&mut bytes, order).set_u64s(0, &words);
        bytes
    }

    /// Where a logical offset is in the object, and how many bytes follow without a wrap.
    pub(crate) fn place(&self, offset: u64) -> (u64, u64) {
        if offset < self.create_len {
            return (offset, self.create_len - offset);
        }
        let ring = self.max_offset - self.create_len;
        let at = self.create_len + (offset - self.create_len) % ring;
        (at, self.max_offset - at)
    }
}

/// The history of a pool, oldest records first.
///
/// An iterator; it ends after the newest record or after an error, since behind a damaged record
/// nothing tells where the next one starts.
#[derive(Debug)]
pub struct History {
    object: Object,
    header: Header,
    /// Logical offset of the next record; `None` when all are read.
    next: Option<u64>,
}

impl History {
    /// The history in this object of the MOS.
    pub(super) fn open(mos: &Objset, id: ObjectId) -> Result<Self, PoolError> {
        let object = mos.object(id)?;
        let header =
            Header::decode(object.bonus(), object.order()).map_err(PoolError::corrupt(id))?;
        let first = if header.create_len > 0 { 0 } else { header.begin };
        Ok(Self { object, header, next: Some(first) })
    }

    /// Number of records that were overwritten.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header.lost
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PoolError> {
        let mut rest = buffer;
        let mut offset = offset;
        while !rest.is_empty() {
            let (at, room) = self.header.place(offset);
            let len = (rest.len() as u64).min(room);
            let (now, later) = rest.split_at_mut(len as usize);
            self.object.read_at(at, now)?;
            rest = later;
            offset = offset.saturating_add(len);
        }
        Ok(())
    }

    /// The record at `offset` and where the next one is.
    fn record(&self, offset: u64) -> Result<(HistoryRecord, u64), PoolError> {
        let corrupt = PoolError::corrupt(self.object.id());
        let end =
            if offset < self.header.create_len { self.header.create_len } else { self.header.end };
        let mut length = [0; LENGTH_SIZE as usize];
        self.read(offset, &mut length)?;
        let length = u64::from_le_bytes(length);
        let next = length.checked_add(LENGTH_SIZE).and_then(|size| offset.checked_add(size));
        match next.filter(|next| length > 0 && length <= MAX_RECORD && *next <= end) {
            None => Err(corrupt(FormatError::field("history record", "length", length))),
            Some(next) => {
                let mut record = vec![0; length as usize];
                self.read(offset + LENGTH_SIZE, &mut record)?;
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
            Err(error) => Some(Err(error)),
        }
    }
}

/// A record of the history.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryRecord {
    list: NvList,
}

/// What a record tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryEvent {
    /// A command that somebody gave.
    Command {
        /// The command line.
        command: String,
        /// The user's number.
        user: Option<u64>,
        /// The zone; "linux" there.
        zone: Option<String>,
    },
    /// What the pool did.
    Internal {
        /// The operation.
        name: String,
        /// Its details.
        message: String,
        /// In which txg.
        txg: Option<u64>,
        /// Name and number of the dataset that it was about.
        dataset: Option<(String, u64)>,
    },
    /// A request to the kernel module.
    Ioctl {
        /// The request.
        name: String,
        /// What went in.
        input: Option<NvList>,
        /// What came out.
        output: Option<NvList>,
        /// The error number; 0 or absent: none.
        errno: Option<i64>,
        /// How long it took.
        elapsed_ns: Option<u64>,
    },
    /// An event of old software, by number.
    Numbered {
        /// The number.
        number: u64,
        /// Its details.
        message: String,
        /// In which txg.
        txg: Option<u64>,
    },
    /// Something else; see [`HistoryRecord::list`].
    Other,
}

impl HistoryRecord {
    /// The record as it is stored.
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

    /// How long it took; signed on disk.
    fn elapsed(&self) -> Option<u64> {
        let nanoseconds = self.list.find_i64("elapsed_ns").ok().flatten()?;
        u64::try_from(nanoseconds).ok()
    }

    /// Number of the user who caused it, and the zone on the host.
    #[must_use]
    pub fn origin(&self) -> (Option<u64>, Option<String>) {
        (self.number("history who"), self.text("history zone"))
    }

    /// What it tells.
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
