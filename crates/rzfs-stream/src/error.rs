//! What is wrong with a stream, and where.

use rzfs_format::FormatError;
use rzfs_format::checksum::ChecksumValue;
use rzfs_format::stream::{RecordKind, StreamFeatures};
use std::{fmt, io};

/// A place in a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Place {
    /// Records before this one.
    pub record: u64,
    /// Bytes before this record.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} at byte {}", self.record, self.offset)
    }
}

/// A stream that cannot be read or written any further.
#[derive(Debug, thiserror::Error)]
#[error("{place} of the stream: {problem}")]
pub struct StreamError {
    /// The record that is wrong.
    pub place: Place,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The source cannot be read, or the sink not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no stream.
    #[error("the stream is empty")]
    Empty,
    /// The stream ends where a record should be: it was saved from an interrupted receive, or cut.
    #[error("the stream ends without DRR_END")]
    NoEnd,
    /// The stream ends inside of a record or of its payload.
    #[error("the stream ends: {need} bytes are needed, {have} are there")]
    Truncated {
        /// Bytes of the record or payload.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// The first record is no BEGIN.
    #[error("bad magic number")]
    Magic,
    /// A record cannot be decoded.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// A record stands where it must not stand.
    #[error("{} must not follow here", .found.name())]
    Order {
        /// The record.
        found: RecordKind,
    },
    /// What is before the checksum of a record is not what the sender wrote: this record, or the
    /// payload of the one before.
    #[error("checksum mismatch: {stored} is stored, the bytes give {computed}")]
    Checksum {
        /// The checksum in the record.
        stored: ChecksumValue,
        /// The checksum of the bytes.
        computed: ChecksumValue,
    },
    /// The same of the whole stream, at its end.
    #[error("checksum mismatch of the stream: {stored} is stored, the bytes give {computed}")]
    EndChecksum {
        /// The checksum in END.
        stored: ChecksumValue,
        /// The checksum of the bytes.
        computed: ChecksumValue,
    },
    /// A feature of streams that is not received any more.
    #[error("stream has deprecated feature: {feature}")]
    Deprecated {
        /// The feature.
        feature: &'static str,
    },
    /// Features that nobody knows.
    #[error("unsupported features {:#x} of {:#x}", .unknown.0, .features.0)]
    UnknownFeatures {
        /// All of the stream's.
        features: StreamFeatures,
        /// Those that are not known.
        unknown: StreamFeatures,
    },
    /// A record that only streams with a certain feature, or without it, may have.
    #[error("{}: {problem}", .kind.name())]
    Feature {
        /// The record.
        kind: RecordKind,
        /// What it would take.
        problem: &'static str,
    },
    /// A field has a value that it must not have.
    #[error("{}: {field} is {value:#x}", .kind.name())]
    Field {
        /// The record.
        kind: RecordKind,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A field is beyond a limit.
    #[error("{}: {field} is {value}, the limit is {limit}", .kind.name())]
    TooLarge {
        /// The record.
        kind: RecordKind,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest value.
        limit: u64,
    },
    /// The payload that is to be written has another length than its record says.
    #[error("{}: the payload has {have} bytes, the record says {says}", .kind.name())]
    Payload {
        /// The record.
        kind: RecordKind,
        /// What the record says.
        says: u64,
        /// Bytes of the payload.
        have: u64,
    },
    /// An earlier call has failed; there is nothing more to be had.
    #[error("the stream has failed before")]
    Failed,
}
