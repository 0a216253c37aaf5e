//! Errors in a stream, with their place.

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

/// A stream that cannot be read or written further.
#[derive(Debug, thiserror::Error)]
#[error("{place} of the stream: {problem}")]
pub struct StreamError {
    /// The invalid record.
    pub place: Place,
    /// The problem.
    #[source]
    pub problem: Problem,
}

/// A problem with a record.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The source cannot be read, or the sink not written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no stream.
    #[error("the stream is empty")]
    Empty,
    /// The stream ends where a record should be: saved from an interrupted receive, or truncated.
    #[error("the stream ends without DRR_END")]
    NoEnd,
    /// The stream ends inside a record or its payload.
    #[error("the stream ends: {need} bytes are needed, {have} are there")]
    Truncated {
        /// Bytes required.
        need: u64,
        /// Bytes available.
        have: u64,
    },
    /// The first record is not a BEGIN.
    #[error("bad magic number")]
    Magic,
    /// A record cannot be decoded.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// A record is out of place.
    #[error("{} must not follow here", .found.name())]
    Order {
        /// The record.
        found: RecordKind,
    },
    /// The data before the checksum of a record are corrupt: this record, or the payload of the
    /// previous one.
    #[error("checksum mismatch: {stored} is stored, the bytes give {computed}")]
    Checksum {
        /// The checksum in the record.
        stored: ChecksumValue,
        /// The checksum of the bytes.
        computed: ChecksumValue,
    },
    /// The same for the whole stream, at its end.
    #[error("checksum mismatch of the stream: {stored} is stored, the bytes give {computed}")]
    EndChecksum {
        /// The checksum in END.
        stored: ChecksumValue,
        /// The checksum of the bytes.
        computed: ChecksumValue,
    },
    /// A feature of streams that is no longer supported.
    #[error("stream has deprecated feature: {feature}")]
    Deprecated {
        /// The feature.
        feature: &'static str,
    },
    /// Unknown features.
    #[error("unsupported features {:#x} of {:#x}", .unknown.0, .features.0)]
    UnknownFeatures {
        /// All of the stream's.
        features: StreamFeatures,
        /// The unknown ones.
        unknown: StreamFeatures,
    },
    /// A record that requires, or excludes, a feature of the stream.
    #[error("{}: {problem}", .kind.name())]
    Feature {
        /// The record.
        kind: RecordKind,
        /// The requirement.
        problem: &'static str,
    },
    /// A field has an invalid value.
    #[error("{}: {field} is {value:#x}", .kind.name())]
    Field {
        /// The record.
        kind: RecordKind,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A field exceeds a limit.
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
    /// The payload to be written does not have the length in its record.
    #[error("{}: the payload has {have} bytes, the record says {says}", .kind.name())]
    Payload {
        /// The record.
        kind: RecordKind,
        /// The length in the record.
        says: u64,
        /// Bytes of the payload.
        have: u64,
    },
    /// An earlier call has failed; no more records are available.
    #[error("the stream has failed before")]
    Failed,
}
