//! Reading a stream, record by record.
//!
//! A payload is covered by the checksum of the record after it, so a record is read ahead to
//! [confirm](StreamReader::confirm) the payload of the one before.

use crate::error::{Place, Problem, StreamError};
use crate::nesting::Nesting;
use crate::rules::{self, Rules, Substream};
use crate::running::Running;
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;
use rzfs_format::nvlist::NvList;
use rzfs_format::stream::{MAGIC, RECORD_SIZE, Record, RecordKind, byte_order, stored_checksum};
use std::io::{self, Read};

/// Payloads are read and added up in pieces of this size, which caches hold.
const PIECE: usize = 256 << 10;
/// The bytes of a payload by which a buffer grows at a time.
const GROWTH: u64 = 1 << 20;

/// Whether checksums count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// A wrong one is an error.
    #[default]
    Verified,
    /// They are neither computed nor compared.
    Ignored,
}

/// How a stream is read.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReadOptions {
    /// What records have to keep.
    pub rules: Rules,
    /// Whether checksums count.
    pub checksums: Checksums,
}

/// A record that was read and found right.
#[derive(Clone, Copy, Debug)]
struct Header {
    record: Record,
    checksum: Option<ChecksumValue>,
    place: Place,
    payload: u64,
}

/// Reads one stream, plain or a package, from any source.
///
/// A source without a buffer is asked twice for each record, for 312 bytes and for the payload. A
/// [`std::io::BufReader`] of some KiB joins the records that have no payload, and longer payloads
/// go past it.
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    options: ReadOptions,
    nesting: Nesting,
    /// None before the first record.
    order: Option<ByteOrder>,
    running: Running,
    /// What the rules have to know of the stream that one is in.
    substream: Substream,
    /// Where the next header is.
    next: Place,
    current: Option<Header>,
    /// The record after the current one, once the payload of that is confirmed.
    ahead: Option<Header>,
    /// Bytes of the current payload that were not read yet.
    unread: u64,
    /// For payloads that nobody wants.
    scratch: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// A reader of the stream that begins here.
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

    /// The next record; `None` after the last one. What was not read of the payload before is
    /// skipped, and verified all the same.
    ///
    /// # Errors
    /// [`StreamError`], with the place of the record that is wrong.
    pub fn next_record(&mut self) -> Result<Option<Record>, StreamError> {
        self.confirm()?;
        self.current = self.ahead.take();
        self.unread = self.current.map_or(0, |header| header.payload);
        Ok(self.current.map(|header| header.record))
    }

    /// Reads the next record's header, whose checksum proves that the current record's payload is
    /// what the sender wrote. Whoever applies a payload reads it, and then calls this first; what
    /// was not read by then is skipped.
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

    /// Bytes of the current record's payload that were not read yet.
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
    /// When `buffer` has another length than [`StreamReader::payload_length`]: a bug of the caller,
    /// never of the stream.
    pub fn read_payload(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        assert_eq!(buffer.len() as u64, self.unread, "a buffer for the whole payload");
        self.fill(buffer)
    }

    /// Reads the whole payload of the current record into a buffer, which gets its length and
    /// grows no faster than bytes arrive.
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

    /// Reads the payload of a BEGIN; an empty list when there is none. `buffer` holds the packed
    /// list and can be used again.
    ///
    /// # Errors
    /// [`StreamError`]: the source fails or ends, or the payload is no list.
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

    /// Where in the stream one is, after the last record whose header was read.
    #[must_use]
    pub fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// The byte order of the stream; `None` before its first record.
    #[must_use]
    pub fn order(&self) -> Option<ByteOrder> {
        self.order
    }

    /// The source, behind what was read of it.
    pub fn into_inner(self) -> R {
        self.source
    }

    /// Reads and judges a header; `None` after the last one.
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

    /// Compares the checksums of a record with those of what was read.
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
            // The last END of a package is of nothing.
            self.running = Running::new(self.order.unwrap_or(ByteOrder::NATIVE));
        }
        Ok(())
    }

    /// Fills a buffer with the next bytes of the payload: a multiple of 4, and no more than there
    /// are.
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

    /// Nothing follows an error.
    fn fail(&mut self, place: Place, problem: Problem) -> StreamError {
        self.nesting = Nesting::Failed;
        self.unread = 0;
        StreamError { place, problem }
    }
}

/// Whether fewer bytes than a record has can be how a stream begins.
fn may_begin(bytes: &[u8]) -> bool {
    let (kind, magic) = (RecordKind::Begin as u32, MAGIC);
    let is_like = |at: usize, expected: &[u8]| {
        bytes.iter().skip(at).zip(expected).all(|(found, expected)| found == expected)
    };
    is_like(0, &kind.to_le_bytes()) && is_like(8, &magic.to_le_bytes())
        || is_like(0, &kind.to_be_bytes()) && is_like(8, &magic.to_be_bytes())
}

/// Reads until the buffer is full or the source ends; answers how many bytes there were.
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
