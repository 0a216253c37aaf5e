//! Why a stream is not received.

use crate::package::PackageProblem;
use rzfs_codec::compress::DecompressError;
use rzfs_dmu::DmuError;
use rzfs_dmu::txg::{BeginError, Stopped};
use rzfs_dsl::live::ChangeError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_stream::{Place, Problem, StreamError};

/// A kind of stream that this software does not receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsupported {
    /// Blocks as they are encrypted.
    #[error("raw streams of encrypted datasets are not received")]
    Raw,
    /// A stream that leaves blocks out.
    #[error("redacted streams are not received")]
    Redacted,
    /// The stream comes from a machine with the other byte order.
    #[error("streams in another byte order are not received")]
    ByteOrder,
    /// A stream that has everything, for a clone.
    #[error("full streams are not received as clones")]
    FullClone,
}

/// What a record says that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordProblem {
    /// It is about an object that does not exist.
    #[error("object {object} does not exist")]
    NoObject {
        /// The object.
        object: ObjectId,
    },
    /// The slots of a new object are those of others.
    #[error("the place of object {object} is taken")]
    Taken {
        /// The object.
        object: ObjectId,
    },
    /// A payload is not what its compression says.
    #[error("the block does not decompress: {0}")]
    Payload(#[from] DecompressError),
    /// A file would get smaller blocks.
    #[error("blocks of object {object} would shrink")]
    SmallerBlocks {
        /// The object.
        object: ObjectId,
    },
    /// An object whose only block has such a size cannot get a second one.
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
    /// A number in the record means nothing.
    #[error("{0}")]
    Format(#[from] FormatError),
}

/// Why a stream is not received. Nothing of it is left then unless it is to be kept, and the target is
/// as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream is wrong, or cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A record of it does not fit what is there.
    #[error("{place} of the stream: {problem}")]
    Record {
        /// The record.
        place: Place,
        /// What is wrong.
        problem: RecordProblem,
    },
    /// The head of a package is wrong.
    #[error("the head of the package: {0}")]
    Package(#[from] PackageProblem),
    /// It is of a kind that is not received.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// It does not fit the target, or that cannot be changed.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// An object cannot be read or changed.
    #[error("{place} of the stream: {source}")]
    Dmu {
        /// The record that is about it.
        place: Place,
        /// Why.
        source: Box<DmuError>,
    },
    /// Nothing in the pool is what a clone was made of.
    #[error("local origin for clone {snapshot} does not exist")]
    NoOrigin {
        /// The clone's snapshot.
        snapshot: String,
    },
    /// The pool is full.
    #[error("out of space")]
    NoSpace,
    /// A quota of the target, or of what is above it, is used up.
    #[error("destination {target} space quota exceeded.")]
    Quota {
        /// The target.
        target: String,
    },
    /// The pool takes no changes any more.
    #[error("the pool takes no changes any more")]
    Stopped,
}

impl ReceiveError {
    /// The errno that a caller of ZFS expects (spec 08, section 10).
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
