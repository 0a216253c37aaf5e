//! Why a pool is not served, or not all of it.

use crate::control::ControlError;
use crate::daemon::DaemonError;
use crate::protocol::Refusal;
use rzfs::setting::SettingError;
use rzfs::{CreateError, OpenError};
use rzfs_blockdev::without_number;
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::{ChangeError, LiveError};
use rzfs_fuse::PlaceError;
use rzfs_zpl::ZplError;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What to do about the directory where a new pool belongs.
const OTHER_MOUNT_POINT: &str = "use '-m' option to provide a different default";

/// Why a pool is not served, or was not served to a good end.
///
/// Commands have words of their own for much of this: they know what they were asked for.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot be found, or not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// There is something in the directory where a new pool belongs.
    #[error("mountpoint '{}' exists and is not empty\n{OTHER_MOUNT_POINT}", .0.display())]
    MountPointInUse(PathBuf),
    /// The directory where a new pool belongs cannot be read.
    #[error("mountpoint '{}' : {}\n{OTHER_MOUNT_POINT}", path.display(), without_number(source))]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A pool with this name is served already.
    #[error("a pool with the name '{0}' is in use")]
    NameTaken(String),
    /// Another process has the same pool imported for writing.
    #[error("cannot import '{pool}': pool is busy\nprocess {process} has it imported as '{name}'")]
    Imported {
        /// The pool.
        pool: String,
        /// The process.
        process: u32,
        /// The name that the pool has there.
        name: String,
    },
    /// The control socket cannot be made.
    #[error("control socket: {0}")]
    Socket(io::Error),
    /// Other processes of this user cannot be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A property that the pool is imported with has no such value.
    #[error("cannot import pool '{pool}': {source}")]
    Setting {
        /// The pool.
        pool: String,
        /// Why not.
        source: SettingError,
    },
    /// A property that the pool is imported with is not changed.
    #[error("cannot import pool '{pool}': {source}")]
    Change {
        /// The pool.
        pool: String,
        /// Why not.
        source: ChangeError,
    },
    /// The pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A dataset cannot be found or read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A key that was named is of no use, or nobody can be asked for one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Mounts are expected of the pool, and none are planned.
    #[error("cannot mount '{pool}': no file system to mount")]
    NothingToMount {
        /// The pool.
        pool: String,
        /// What keeps the root of the pool from being mounted.
        reason: Unmountable,
    },
    /// Of what was planned nothing is mounted, which was told.
    #[error("nothing is mounted")]
    NothingMounted,
    /// File systems cannot be opened.
    #[error(transparent)]
    FileSystem(#[from] Box<ZplError>),
    /// The pool has failed before it was served.
    #[error("cannot import '{pool}': {reason}")]
    Stopped {
        /// The pool.
        pool: String,
        /// Why.
        reason: Arc<LiveError>,
    },
    /// The pool was let go of, but not as it was to be.
    #[error(transparent)]
    Ended(#[from] Refusal),
    /// Nobody could be answered.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The system does not let the process have its signals.
    #[error("{0}")]
    Signals(io::Error),
}

/// What keeps the root file system of a pool from being mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmountable {
    /// Property `canmount` has this value.
    CanMount(String),
    /// Property `mountpoint` has this value.
    MountPoint(String),
    /// There is no file system.
    Missing,
}

/// Why a key is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The dataset that a key was named for does not exist.
    #[error("cannot open '{0}': dataset does not exist")]
    NoDataset(String),
    /// A key that was named for no dataset fits none.
    #[error(
        "Key load error: '{}' is not the key of any encryption root of '{pool}'.",
        path.display()
    )]
    FitsNothing {
        /// The file with the key.
        path: PathBuf,
        /// The pool.
        pool: String,
    },
    /// The file that property `keylocation` names cannot be read.
    #[error("Failed to open key material file '{}': {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not the key of the dataset.
    #[error("Key load error: Incorrect key provided for '{0}'.")]
    Wrong(String),
    /// The dataset has no key.
    #[error("Key load error: '{0}' is not encrypted.")]
    NotEncrypted(String),
    /// Anything else that keeps a key from being loaded.
    #[error("Key load error: {0}")]
    Load(Box<DatasetError>),
    /// What there is to know about keys cannot be read.
    #[error(transparent)]
    Unreadable(Box<DatasetError>),
    /// Nobody can be asked for a key.
    #[error("terminal: {0}")]
    Terminal(io::Error),
}

impl From<DatasetError> for KeyError {
    fn from(error: DatasetError) -> Self {
        Self::Unreadable(Box::new(error))
    }
}

impl KeyError {
    /// A key that the dataset with this name does not take.
    pub(crate) fn of_load(name: &str, error: DatasetError) -> Self {
        match error {
            DatasetError::WrongKey { .. } => Self::Wrong(name.to_owned()),
            DatasetError::NotEncrypted { .. } => Self::NotEncrypted(name.to_owned()),
            error => Self::Load(Box::new(error)),
        }
    }
}

/// Why a file system is not mounted, in the words of `zfs`.
#[derive(Debug, thiserror::Error)]
pub enum NotMounted {
    /// There is something in its directory, which is not to be hidden.
    #[error("cannot mount '{}': directory is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// It cannot have its directory.
    #[error("cannot mount '{dataset}': {source}")]
    Place {
        /// The file system.
        dataset: String,
        /// Why not.
        source: PlaceError,
    },
    /// Anything else.
    #[error("cannot mount '{dataset}': {source}")]
    Other {
        /// The file system.
        dataset: String,
        /// What happened.
        source: Box<dyn Error>,
    },
}

impl NotMounted {
    pub(crate) fn at_place(dataset: &str) -> impl Fn(PlaceError) -> Self {
        move |source| Self::Place { dataset: dataset.to_owned(), source }
    }

    pub(crate) fn as_of<E: Into<Box<dyn Error>>>(dataset: &str) -> impl Fn(E) -> Self {
        move |source| Self::Other { dataset: dataset.to_owned(), source: source.into() }
    }

    /// One that was to share the mount of another.
    pub(crate) fn inside(
        dataset: &str,
        directory: PathBuf,
        kind: io::ErrorKind,
        source: impl Into<Box<dyn Error>>,
    ) -> Self {
        match kind {
            io::ErrorKind::DirectoryNotEmpty => Self::NotEmpty(directory),
            _ => Self::as_of(dataset)(source),
        }
    }

    /// Whether this user may not have a directory where it belongs.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Place { source, .. } if source.is_denied())
    }
}
