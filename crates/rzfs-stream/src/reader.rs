//! Reads a stream record by record.
//!
//! A payload is covered by the checksum of the next record, so a record is read ahead to
//! [confirm](StreamReader::confirm) the payload of the previous one.

use crate::error::{Place, Problem, StreamError};
use crate::nesting::Nesting;
use crate::rules::{self, Rules, Substream};
use crate::running::Running;
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;
use rzfs_format::nvlist::NvList;
use rzfs_format::stream::{MAGIC, RECORD_SIZE, Record, RecordKind, byte_order, stored_checksum};
use std::io::{self, Read};

/// Size of the pieces in which payloads are read and summed, which fits into caches.
const PIECE: usize = 256 << 10;
/// The increment by which a buffer for a payload grows.
const GROWTH: u64 = 1 << 20;

/// Whether checksums are verified.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// A wrong checksum is an error.
    #[default]
    Verified,
    /// They are neither computed nor compared.
    Ignored,
}

/// Options for reading a stream.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReadOptions {
    /// The rules for records.
    pub rules: Rules,
    /// Whether checksums are verified.
    pub checksums: Checksums,
}

/// A record that was read and verified.
#[derive(Clone, Copy, Debug)]
struct Header {
    record: Record,
    checksum: Option<ChecksumValue>,
    place: Place,
    payload: u64,
}

/// Reads one stream, plain or a package, from any source.
///
/// An unbuffered source is read twice for each record, for 312 bytes and for the payload. A
/// [`std::io::BufReader`] of some KiB merges records without payload, and long payloads bypass it.
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    options: ReadOptions,
    nesting: Nesting,
    /// `None` before the first record.
    order: Option<ByteOrder>,
    running: Running,
    /// State of the current stream for the rules.
    substream: Substream,
    /// The place of the next header.
    next: Place,
    current: Option<Header>,
    /// The record after the current one, once the current payload is confirmed.
    ahead: Option<Header>,
    /// Unread bytes of the current payload.
    unread: u64,
    /// Buffer for skipped payloads.
    scratch: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// A reader of the stream that starts here.
    pub fn new(source: R, options: ReadOptions) -> Self {
        Self {
            source,
            options,
            nesting: Nesting::Start,
            order: None,
            running: Running::new(ByteOrder::NATIVE),
            substream: Substream::default(),
            next: Place::default(),
            current: None,
            ahead: None,
            unread: 0,
            scratch: Vec::new(),
        }
    }

    /// The next record; `None` after the last one. The unread rest of the previous payload is
    /// skipped, but verified.
    ///
    /// # Errors
    /// [`StreamError`], with the place of the invalid record.
    pub fn next_record(&mut self) -> Result<Option<Record>, StreamError> {
        self.confirm()?;
        self.current = self.ahead.take();
        self.unread = self.current.map_or(0, |header| header.payload);
        Ok(self.current.map(|header| header.record))
    }

    /// Reads the next record's header, whose checksum verifies the current record's payload. A
    /// caller that applies a payload reads it, and calls this before using it; an unread rest is
    /// skipped.
    ///
    /// # Errors
    /// As [`StreamReader::next_record`], which it anticipates.
    pub fn confirm(&mut self) -> Result<(), StreamError> {
        if self.ahead.is_some() {
            return Ok(());
        }
        self.skip_payload()?;
        match self.read_header() {
            Ok(header) => self.ahead = header,
            Err(problem) => return Err(self.fail(self.next, problem)),
        }
        if let Some(header) = self.ahead {
            let length = (RECORD_SIZE as u64).saturating_add(header.payload);
            let Place { record, offset } = header.place;
            self.next =
                Place { record: record.saturating_add(1), offset: offset.saturating_add(length) };
        }
        Ok(())
    }

    /// Unread bytes of the current record's payload.
    #[must_use]
    pub fn payload_length(&self) -> u64 {
        self.unread
    }

    /// Reads the whole payload of the current record.
    ///
    /// # Errors
    /// [`StreamError`]: the source fails or ends.
    ///
    /// # Panics
    /// If the length of `buffer` is not [`StreamReader::payload_length`]: a bug of the caller,
    /// never of the stream.
    pub fn read_payload(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        assert_eq!(buffer.len() as u64, self.unread, "a buffer for the whole payload");
        self.fill(buffer)
    }

    /// Reads the whole payload of the current record into a buffer, which is resized to its length,
    /// but grows no faster than bytes arrive.
    ///
    /// # Errors
    /// [`StreamError`]: the source fails or ends.
    pub fn read_payload_to(&mut self, buffer: &mut Vec<u8>) -> Result<(), StreamError> {
        let mut filled = 0;
        while self.unread > 0 {
            let end = filled + self.unread.min(GROWTH) as usize;
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            self.fill(buffer.get_mut(filled..end).unwrap_or_default())?;
            filled = end;
        }
        buffer.truncate(filled);
        Ok(())
    }

    /// Reads the payload of a BEGIN; an empty list if there is none. `buffer` holds the packed list
    /// and can be reused.
    ///
    /// # Errors
    /// [`StreamError`]: the source fails or ends, or the payload is not a list.
    pub fn read_nvlist(&mut self, buffer: &mut Vec<u8>) -> Result<NvList, StreamError> {
        self.read_payload_to(buffer)?;
        if buffer.is_empty() {
            return Ok(NvList::new());
        }
        NvList::decode(buffer).map_err(|error| self.fail(self.place(), error.into()))
    }

    /// The place of the current record.
    #[must_use]
    pub fn place(&self) -> Place {
        self.current.map_or(self.next, |header| header.place)
    }

    /// The checksum at the end of the current record, if it has one.
    #[must_use]
    pub fn record_checksum(&self) -> Option<ChecksumValue> {
        self.current.and_then(|header| header.checksum)
    }

    /// The position in the grammar after the last record whose header was read.
    #[must_use]
    pub fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// The byte order of the stream; `None` before its first record.
    #[must_use]
    pub fn order(&self) -> Option<ByteOrder> {
        self.order
    }

    /// The source, at the current read position.
    pub fn into_inner(self) -> R {
        self.source
    }

    /// Reads and checks a header; `None` after the last one.
    fn read_header(&mut self) -> Result<Option<Header>, Problem> {
        match self.nesting {
            Nesting::Done => return Ok(None),
            Nesting::Failed => return Err(Problem::Failed),
            _ => {}
        }
        let mut bytes = [0; RECORD_SIZE];
        match read_full(&mut self.source, &mut bytes)? {
            RECORD_SIZE => {}
            0 if self.nesting == Nesting::Start => return Err(Problem::Empty),
            0 => return Err(Problem::NoEnd),
            have if self.nesting == Nesting::Start
                && !may_begin(bytes.get(..have).unwrap_or_default()) =>
            {
                return Err(Problem::Magic);
            }
            have => {
                return Err(Problem::Truncated { need: RECORD_SIZE as u64, have: have as u64 });
            }
        }
        let order = match self.order {
            Some(order) => order,
            None => byte_order(&bytes).ok_or(Problem::Magic)?,
        };
        let record = Record::decode(&bytes, order)?;
        let nesting = self.nesting.after(&record)?;
        if let Record::Begin(begin) = &record {
            if byte_order(&bytes) != Some(order) {
                return Err(Problem::Magic);
            }
            self.running = Running::new(order);
            self.substream = Substream::new(begin);
        }
        let checksum = stored_checksum(&bytes, order);
        if self.options.checksums == Checksums::Verified {
            self.verify(&bytes, &record, checksum)?;
        }
        let payload = rules::payload_length(&record)?;
        self.options.rules.check(&record, &mut self.substream)?;
        self.order = Some(order);
        self.nesting = nesting;
        Ok(Some(Header { record, checksum, place: self.next, payload }))
    }

    /// Compares the checksums of a record with those of the data read.
    fn verify(
        &mut self,
        bytes: &[u8; RECORD_SIZE],
        record: &Record,
        stored: Option<ChecksumValue>,
    ) -> Result<(), Problem> {
        let before = self.running.value();
        let computed = self.running.add_fields(bytes);
        if let Some(stored) = stored
            && stored != computed
        {
            return Err(Problem::Checksum { stored, computed });
        }
        self.running.add_rest(bytes);
        if let Record::End(end) = record {
            if end.checksum != before {
                return Err(Problem::EndChecksum { stored: end.checksum, computed: before });
            }
            // The last END of a package covers nothing.
            self.running = Running::new(self.order.unwrap_or(ByteOrder::NATIVE));
        }
        Ok(())
    }

    /// Fills a buffer with the next bytes of the payload: a multiple of 4, and no more than remain.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        for piece in buffer.chunks_mut(PIECE) {
            let need = piece.len();
            let read = read_full(&mut self.source, piece);
            let problem = match read {
                Ok(have) if have == need => {
                    self.unread = self.unread.saturating_sub(need as u64);
                    if self.options.checksums == Checksums::Verified {
                        self.running.add_payload(piece);
                    }
                    continue;
                }
                Ok(have) => {
                    let length = self.current.map_or(0, |header| header.payload);
                    let before = length.saturating_sub(self.unread);
                    Problem::Truncated { need: length, have: before + have as u64 }
                }
                Err(error) => error.into(),
            };
            return Err(self.fail(self.place(), problem));
        }
        Ok(())
    }

    fn skip_payload(&mut self) -> Result<(), StreamError> {
        if self.unread == 0 {
            return Ok(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(PIECE, 0);
        while self.unread > 0 {
            let length = self.unread.min(PIECE as u64) as usize;
            self.fill(scratch.get_mut(..length).unwrap_or_default())?;
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Nothing can be read after an error.
    fn fail(&mut self, place: Place, problem: Problem) -> StreamError {
        self.nesting = Nesting::Failed;
        self.unread = 0;
        StreamError { place, problem }
    }
}

/// Whether bytes shorter than a record can be the beginning of a stream.
fn may_begin(bytes: &[u8]) -> bool {
    let (kind, magic) = (RecordKind::Begin as u32, MAGIC);
    let is_like = |at: usize, expected: &[u8]| {
        bytes.iter().skip(at).zip(expected).all(|(found, expected)| found == expected)
    };
    is_like(0, &kind.to_le_bytes()) && is_like(8, &magic.to_le_bytes())
        || is_like(0, &kind.to_be_bytes()) && is_like(8, &magic.to_be_bytes())
}

/// Reads until the buffer is full or the source ends; returns the number of bytes.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..)
        && !rest.is_empty()
    {
        match source.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
