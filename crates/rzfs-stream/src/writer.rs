//! Writes a stream record by record.

use crate::error::{Place, Problem, StreamError};
use crate::nesting::Nesting;
use crate::rules;
use crate::running::Running;
use rzfs_format::stream::{End, RECORD_SIZE, Record, stamp};
use rzfs_format::{ByteOrder, Guid};
use std::io::{self, IoSlice, Write};

/// Writes one stream, plain or a package, to any sink.
///
/// Every record is written at once, together with its payload if the sink supports vectored writes;
/// a [`std::io::BufWriter`] of some KiB merges records without payload.
#[derive(Debug)]
pub struct StreamWriter<W> {
    sink: W,
    order: ByteOrder,
    nesting: Nesting,
    running: Running,
    place: Place,
}

impl<W: Write> StreamWriter<W> {
    /// A writer of a stream in this byte order.
    pub fn new(sink: W, order: ByteOrder) -> Self {
        let running = Running::new(order);
        Self { sink, order, nesting: Nesting::Start, running, place: Place::default() }
    }

    /// Writes a record and its payload. The writer computes the checksums, also those in an END.
    ///
    /// # Errors
    /// The sink fails; the record is out of place; the payload's length differs from the record's,
    /// or no reader accepts it. Nothing can be written after that.
    pub fn write(&mut self, record: &Record, payload: &[u8]) -> Result<(), StreamError> {
        self.put(record, payload).map_err(|problem| {
            self.nesting = Nesting::Failed;
            StreamError { place: self.place, problem }
        })
    }

    /// Ends a stream, or with guid 0 the head of a package or the package.
    ///
    /// # Errors
    /// As [`StreamWriter::write`].
    pub fn end(&mut self, to_guid: Guid) -> Result<(), StreamError> {
        self.write(&Record::End(End { to_guid, ..End::default() }), &[])
    }

    /// The place of the next record: the number of records so far, and their bytes.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The position in the grammar of the stream.
    #[must_use]
    pub fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// The sink.
    pub fn into_inner(self) -> W {
        self.sink
    }

    fn put(&mut self, record: &Record, payload: &[u8]) -> Result<(), Problem> {
        if self.nesting == Nesting::Failed {
            return Err(Problem::Failed);
        }
        let (kind, says, have) =
            (record.kind(), rules::payload_length(record)?, payload.len() as u64);
        if says != have {
            return Err(Problem::Payload { kind, says, have });
        }
        let nesting = self.nesting.after(record)?;
        let bytes = match record {
            Record::Begin(_) => {
                self.running = Running::new(self.order);
                record.encode(self.order)
            }
            Record::End(end) => {
                let end = End { checksum: self.running.value(), ..*end };
                Record::End(end).encode(self.order)
            }
            _ => record.encode(self.order),
        };
        let bytes = self.sealed(bytes);
        self.running.add_payload(payload);
        if let Record::End(_) = record {
            self.running = Running::new(self.order);
        }
        write_both(&mut self.sink, &bytes, payload)?;
        self.nesting = nesting;
        self.place.record += 1;
        self.place.offset += RECORD_SIZE as u64 + have;
        Ok(())
    }

    /// The record with its running checksum. BEGIN has none, and the ENDs of packages have zeros.
    fn sealed(&mut self, mut bytes: [u8; RECORD_SIZE]) -> [u8; RECORD_SIZE] {
        let checksum = self.running.add_fields(&bytes);
        if self.nesting.is_in_substream() {
            stamp(&mut bytes, checksum, self.order);
        }
        self.running.add_rest(&bytes);
        bytes
    }
}

/// Writes a record and its payload, in one call if possible.
fn write_both(sink: &mut impl Write, record: &[u8], payload: &[u8]) -> io::Result<()> {
    if payload.is_empty() {
        return sink.write_all(record);
    }
    let mut written = 0;
    while written < record.len() {
        let rest = record.get(written..).unwrap_or_default();
        match sink.write_vectored(&[IoSlice::new(rest), IoSlice::new(payload)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(some) => written += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    sink.write_all(payload.get(written - record.len()..).unwrap_or_default())
}
