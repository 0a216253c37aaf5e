//! Errors of receiving a stream.

use crate::package::PackageProblem;
use rzfs_codec::compress::DecompressError;
use rzfs_dmu::DmuError;
use rzfs_dmu::txg::{BeginError, Stopped};
use rzfs_dsl::live::ChangeError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_stream::{Place, Problem, StreamError};

/// A kind of stream that is not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsupported {
    /// Blocks in encrypted form.
    #[error("raw streams of encrypted datasets are not received")]
    Raw,
    /// A stream that omits blocks.
    #[error("redacted streams are not received")]
    Redacted,
    /// The stream comes from a machine with the other byte order.
    #[error("streams in another byte order are not received")]
    ByteOrder,
    /// A full stream for a clone.
    #[error("full streams are not received as clones")]
    FullClone,
}

/// An impossible request in a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordProblem {
    /// It concerns an object that does not exist.
    #[error("object {object} does not exist")]
    NoObject {
        /// The object.
        object: ObjectId,
    },
    /// The slots of a new object are taken.
    #[error("the place of object {object} is taken")]
    Taken {
        /// The object.
        object: ObjectId,
    },
    /// A payload cannot be decompressed.
    #[error("the block does not decompress: {0}")]
    Payload(#[from] DecompressError),
    /// A file would get smaller blocks.
    #[error("blocks of object {object} would shrink")]
    SmallerBlocks {
        /// The object.
        object: ObjectId,
    },
    /// An object whose only block has an irregular size cannot get a second one.
    #[error("object {object} has one block only, of an odd size")]
    OddBlocks {
        /// The object.
        object: ObjectId,
    },
    /// A dnode has no room for its bonus and a spill block.
    #[error("the bonus of object {object} leaves no room for a spill block")]
    NoRoom {
        /// The object.
        object: ObjectId,
    },
    /// A number in the record is invalid.
    #[error("{0}")]
    Format(#[from] FormatError),
}

/// Why a stream is not received. Nothing of it remains then unless it is to be kept, and the target
/// is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is invalid, or cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A record does not match the target.
    #[error("{place} of the stream: {problem}")]
    Record {
        /// The record.
        place: Place,
        /// The problem.
        problem: RecordProblem,
    },
    /// The head of a package is invalid.
    #[error("the head of the package: {0}")]
    Package(#[from] PackageProblem),
    /// The kind of stream is not supported.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// It does not match the target, or the target cannot be changed.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// An object cannot be read or changed.
    #[error("{place} of the stream: {source}")]
    Dmu {
        /// The record that concerns it.
        place: Place,
        /// The reason.
        source: Box<DmuError>,
    },
    /// The pool has no origin for a clone.
    #[error("local origin for clone {snapshot} does not exist")]
    NoOrigin {
        /// The clone's snapshot.
        snapshot: String,
    },
    /// The pool is full.
    #[error("out of space")]
    NoSpace,
    /// A quota of the target, or of a parent, is used up.
    #[error("destination {target} space quota exceeded.")]
    Quota {
        /// The target.
        target: String,
    },
    /// The pool takes no more changes.
    #[error("the pool takes no changes any more")]
    Stopped,
}

impl ReceiveError {
    /// The errno that callers of ZFS expect (spec 08, section 10).
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const ECKSUM: i32 = 52;
        const ENOTSUP: i32 = 95;
        const EDQUOT: i32 = 122;
        const ZFS_ERR_UNKNOWN_SEND_STREAM_FEATURE: i32 = 1037;
        const ZFS_ERR_STREAM_TRUNCATED: i32 = 1040;
        match self {
            Self::Stream(error) => match &error.problem {
                Problem::Io(error) => error.raw_os_error().unwrap_or(EIO),
                Problem::Empty | Problem::NoEnd | Problem::Truncated { .. } => {
                    ZFS_ERR_STREAM_TRUNCATED
                }
                Problem::Checksum { .. } | Problem::EndChecksum { .. } => ECKSUM,
                Problem::UnknownFeatures { .. } => ZFS_ERR_UNKNOWN_SEND_STREAM_FEATURE,
                Problem::Deprecated { .. } => ENOTSUP,
                _ => EINVAL,
            },
            Self::Record { .. } | Self::Package(_) => EINVAL,
            Self::Unsupported(_) => ENOTSUP,
            Self::Change(error) => error.errno(),
            Self::Dmu { source, .. } => source.errno(),
            Self::NoOrigin { .. } => ENOENT,
            Self::NoSpace => ENOSPC,
            Self::Quota { .. } => EDQUOT,
            Self::Stopped => EIO,
        }
    }
}

impl From<BeginError> for ReceiveError {
    fn from(_: BeginError) -> Self {
        Self::Stopped
    }
}

impl From<Stopped> for ReceiveError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}
