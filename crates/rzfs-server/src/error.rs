//! Errors of serving a pool.

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

/// Advice about the mount point of a new pool.
const OTHER_MOUNT_POINT: &str = "use '-m' option to provide a different default";

/// Why a pool is not served, or was not closed in order.
///
/// Commands have their own messages for much of this: they know the request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot be found or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The mount point of a new pool is not empty.
    #[error("mountpoint '{}' exists and is not empty\n{OTHER_MOUNT_POINT}", .0.display())]
    MountPointInUse(PathBuf),
    /// The mount point of a new pool cannot be read.
    #[error("mountpoint '{}' : {}\n{OTHER_MOUNT_POINT}", path.display(), without_number(source))]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// The reason.
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
        /// The pool's name there.
        name: String,
    },
    /// The control socket cannot be made.
    #[error("control socket: {0}")]
    Socket(io::Error),
    /// Other processes of this user cannot be queried.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A property of the import has an invalid value.
    #[error("cannot import pool '{pool}': {source}")]
    Setting {
        /// The pool.
        pool: String,
        /// The reason.
        source: SettingError,
    },
    /// A property of the import cannot be set.
    #[error("cannot import pool '{pool}': {source}")]
    Change {
        /// The pool.
        pool: String,
        /// The reason.
        source: ChangeError,
    },
    /// The pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A dataset cannot be found or read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A named key is useless, or there is no way to ask for one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The pool has nothing to mount.
    #[error("cannot mount '{pool}': no file system to mount")]
    NothingToMount {
        /// The pool.
        pool: String,
        /// Why the root of the pool cannot be mounted.
        reason: Unmountable,
    },
    /// Nothing of the plan is mounted, which was reported.
    #[error("nothing is mounted")]
    NothingMounted,
    /// File systems cannot be opened.
    #[error(transparent)]
    FileSystem(#[from] Box<ZplError>),
    /// The pool failed before it was served.
    #[error("cannot import '{pool}': {reason}")]
    Stopped {
        /// The pool.
        pool: String,
        /// The reason.
        reason: Arc<LiveError>,
    },
    /// The pool was closed, but not as requested.
    #[error(transparent)]
    Ended(#[from] Refusal),
    /// The daemon failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The process cannot handle its signals.
    #[error("{0}")]
    Signals(io::Error),
}

/// Why the root file system of a pool cannot be mounted.
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
    /// The dataset of a named key does not exist.
    #[error("cannot open '{0}': dataset does not exist")]
    NoDataset(String),
    /// A key named without a dataset fits none.
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
        /// The reason.
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
    /// The properties of keys cannot be read.
    #[error(transparent)]
    Unreadable(Box<DatasetError>),
    /// There is no terminal to ask for a key.
    #[error("terminal: {0}")]
    Terminal(io::Error),
}

impl From<DatasetError> for KeyError {
    fn from(error: DatasetError) -> Self {
        Self::Unreadable(Box::new(error))
    }
}

impl KeyError {
    /// The error for a key that the dataset with this name rejects.
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
    /// Its directory is not empty, and must not be hidden.
    #[error("cannot mount '{}': directory is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// It cannot have its mount point.
    #[error("cannot mount '{dataset}': {source}")]
    Place {
        /// The file system.
        dataset: String,
        /// The reason.
        source: PlaceError,
    },
    /// Anything else.
    #[error("cannot mount '{dataset}': {source}")]
    Other {
        /// The file system.
        dataset: String,
        /// The reason.
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

    /// One that was to share another one's mount.
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

    /// Whether this user lacks permission for its directory.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Place { source, .. } if source.is_denied())
    }
}
