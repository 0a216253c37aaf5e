//! Errors of sending a snapshot.

use rzfs_dmu::DmuError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_format::units::Bookmark;
use rzfs_format::{FormatError, ObjectId};
use rzfs_stream::{Problem, StreamError};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;

/// Why a snapshot is not sent, or only partially.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It is not a snapshot.
    #[error("{name} is not a snapshot")]
    NotASnapshot {
        /// Its name.
        name: String,
    },
    /// The source of the increment is not an ancestor of the snapshot.
    #[error("{from} is not an earlier snapshot of {name}")]
    NotEarlier {
        /// The snapshot.
        name: String,
        /// The source.
        from: String,
    },
    /// A redacted dataset, or a redaction bookmark as the source.
    #[error("{name} is redacted, which is not sent")]
    Redacted {
        /// The dataset or bookmark.
        name: String,
    },
    /// Large microzaps can only be sent in large blocks.
    #[error("{name} has large microzaps, which takes large blocks")]
    LargeMicrozap {
        /// The snapshot.
        name: String,
    },
    /// It was encrypted by a development version, whose keys no receiver accepts.
    #[error("{name} was encrypted by a development version, which is not sent raw")]
    OldKeys {
        /// The snapshot.
        name: String,
    },
    /// The object set is neither a file system nor a volume.
    #[error("{name} is neither a file system nor a volume")]
    Kind {
        /// The snapshot.
        name: String,
    },
    /// A block of foreign byte order would have to be swapped.
    #[error("block {bookmark} has a foreign byte order, which is not sent")]
    ForeignOrder {
        /// The block.
        bookmark: Bookmark,
    },
    /// A block of an encrypted object set that cannot be in a raw stream: not encrypted, or larger
    /// than the file system allows.
    #[error("block {bookmark} is not encrypted, or larger than its file system says")]
    NotSealed {
        /// The block.
        bookmark: Bookmark,
    },
    /// A pointer is invalid.
    #[error("block {bookmark}: {source}")]
    Pointer {
        /// The block.
        bookmark: Bookmark,
        /// The problem.
        source: FormatError,
    },
    /// The requested start of a stream does not exist.
    #[error("there is no object {object} to go on with")]
    NoPlace {
        /// The missing object.
        object: ObjectId,
    },
    /// The list of the stream cannot be packed.
    #[error(transparent)]
    List(FormatError),
    /// The dataset cannot be opened.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Part of the snapshot cannot be read.
    #[error(transparent)]
    Read(#[from] DmuError),
    /// The stream cannot be written.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl SendError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotASnapshot { .. } => EINVAL,
            Self::NotEarlier { .. } => EXDEV,
            Self::Redacted { .. }
            | Self::LargeMicrozap { .. }
            | Self::Kind { .. }
            | Self::OldKeys { .. }
            | Self::ForeignOrder { .. } => ENOTSUP,
            Self::NoPlace { .. } => ENOENT,
            Self::Pointer { .. } | Self::NotSealed { .. } | Self::List(_) => EIO,
            Self::Dataset(error) => error.errno(),
            Self::Read(error) => error.errno(),
            Self::Stream(StreamError { problem: Problem::Io(error), .. }) => {
                error.raw_os_error().unwrap_or(EIO)
            }
            Self::Stream(_) => EIO,
        }
    }
}
