//! Why a file operation fails.

use rzfs_dmu::DmuError;
use rzfs_dmu::intent_log::ChainEnd;
use rzfs_dmu::txg::{BeginError, Stopped};
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::ChangeError;
use rzfs_format::znode::ZplVersion;
use rzfs_format::{FormatError, ObjectId, ObjsetId};
use rzfs_zap::ZapError;

/// The object that an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Its file system.
    pub objset: ObjsetId,
    /// Its number.
    pub object: ObjectId,
}

impl Place {
    /// Gives an error of the object's ZAP its place.
    pub(crate) fn zap_failure(self, source: ZapError<DmuError>) -> ZplError {
        let Self { objset, object } = self;
        DmuError::Zap { objset, object, source: Box::new(source) }.into()
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object {} of objset {}", self.object, self.objset)
    }
}

/// Why a file operation fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ZplError {
    /// A block, object or ZAP cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The object set does not hold what it is opened as.
    #[error("objset {objset} holds {found}, not {wanted}")]
    WrongKind {
        /// The object set.
        objset: ObjsetId,
        /// What it holds.
        found: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// The key of an encrypted dataset is not loaded.
    #[error("objset {objset} is encrypted and its key is not loaded")]
    Locked {
        /// The object set.
        objset: ObjsetId,
    },
    /// The version of the file system is newer than the pool allows or this software knows.
    #[error("objset {objset}: file system version {version} is not supported by this pool")]
    Version {
        /// The object set.
        objset: ObjsetId,
        /// The version.
        version: u64,
    },
    /// The version of the file system is older than those that can be changed.
    #[error(
        "objset {objset}: file system version {version} can be read here, but not be changed: \
         it has to be mounted read-only (-o ro){}",
        or_upgraded(*version)
    )]
    OldVersion {
        /// The object set.
        objset: ObjsetId,
        /// The version.
        version: u64,
    },
    /// The master node has no such entry.
    #[error("objset {objset}: the master node has no {entry}")]
    MasterEntry {
        /// The object set.
        objset: ObjsetId,
        /// The entry.
        entry: &'static str,
    },
    /// An object is damaged.
    #[error("{place}: {source}")]
    Corrupt {
        /// The object.
        place: Place,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A directory names an object that cannot be opened.
    #[error("{directory}: an entry leads to object {object}: {source}")]
    DanglingEntry {
        /// The directory.
        directory: Place,
        /// The object that the entry names.
        object: ObjectId,
        /// Why it cannot be opened.
        source: Box<ZplError>,
    },
    /// An entry's value is not the number that it has to be.
    #[error("{directory}: the value of an entry is no number")]
    EntryValue {
        /// The directory.
        directory: Place,
    },
    /// The object is not a file.
    #[error("{place} is not a file")]
    NotFile {
        /// The object.
        place: Place,
    },
    /// The directory has no such entry, or the object no link.
    #[error("{place}: no such file")]
    NotFound {
        /// The directory, or the object without links.
        place: Place,
    },
    /// The object is not a directory.
    #[error("{place} is not a directory")]
    NotDirectory {
        /// The object.
        place: Place,
    },
    /// The object is a directory.
    #[error("{place} is a directory")]
    IsDirectory {
        /// The object.
        place: Place,
    },
    /// The object is not a symbolic link, or has no contents to read.
    #[error("{place} is of another kind")]
    WrongFileKind {
        /// The object.
        place: Place,
    },
    /// The name is longer than names can be.
    #[error("{directory}: the name has {length} bytes")]
    NameTooLong {
        /// The directory.
        directory: Place,
        /// Length in bytes.
        length: usize,
    },
    /// The intent log goes on where it cannot be read.
    #[error(
        "objset {objset}: the intent log cannot be read: {end}\n\
         The last changes that were synced to disk are in it. Import the pool again when its \
         devices can be read,\nor with 'zpool import -m', which discards what follows."
    )]
    UnreadableLog {
        /// The object set.
        objset: ObjsetId,
        /// Where, and why.
        end: Box<ChainEnd>,
    },
    /// The file system takes only names in UTF-8.
    #[error("{directory}: the name is not in UTF-8")]
    NameNotUtf8 {
        /// The directory.
        directory: Place,
    },
    /// The file has no such extended attribute.
    #[error("{place} has no such attribute")]
    NoXattr {
        /// The object.
        place: Place,
    },
    /// Extended attributes of this namespace are not supported here.
    #[error("{place}: attributes of this namespace are not supported")]
    XattrNamespace {
        /// The object.
        place: Place,
    },
    /// The file was quarantined by a virus scanner.
    #[error("{place} is quarantined")]
    Quarantined {
        /// The object.
        place: Place,
    },
    /// A seek starts behind the end, or nothing of what it looks for follows.
    #[error("{place}: nothing there at or behind byte {offset}")]
    BeyondEnd {
        /// The object.
        place: Place,
        /// Where the search began.
        offset: u64,
    },
    /// No snapshot has this name or number.
    #[error("objset {objset}: no such snapshot")]
    NoSnapshot {
        /// The object set whose snapshots were searched.
        objset: ObjsetId,
    },
    /// A volume's size is zero, not a multiple of its block size, or too large.
    #[error("objset {objset}: the volume has {size} bytes")]
    VolumeSize {
        /// The object set.
        objset: ObjsetId,
        /// The size.
        size: u64,
    },
    /// The pool takes no changes any more, or not until somebody has mended it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The pool is suspended: the same may be tried again when it goes on. Only where the callers
    /// wait ([`LiveFileSystem::leave_waiting_to_callers`]).
    ///
    /// [`LiveFileSystem::leave_waiting_to_callers`]: crate::live::LiveFileSystem::leave_waiting_to_callers
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// The name is there already, or the attribute.
    #[error("{place}: the name is there already")]
    Exists {
        /// The directory, or the file that has the attribute.
        place: Place,
    },
    /// A name that no entry can have: empty, `.`, `..`, or with a slash or NUL in it.
    #[error("{directory}: no entry can have this name")]
    BadName {
        /// The directory.
        directory: Place,
    },
    /// The directory has entries.
    #[error("{place} is not empty")]
    NotEmpty {
        /// The directory.
        place: Place,
    },
    /// A flag of the file, or its kind, forbids the change.
    #[error("{place} does not permit this")]
    NotPermitted {
        /// The file.
        place: Place,
    },
    /// Only the owner of the file, or the superuser, may do this.
    #[error("{place} belongs to somebody else")]
    NotOwner {
        /// The file.
        place: Place,
    },
    /// The file may not come into a directory of this project.
    #[error("{place} belongs to another project")]
    OtherProject {
        /// The file.
        place: Place,
    },
    /// The file has as many links as files can have.
    #[error("{place} has too many links")]
    TooManyLinks {
        /// The file.
        place: Place,
    },
    /// What is asked makes no sense.
    #[error("{place}: {problem}")]
    Invalid {
        /// The file.
        place: Place,
        /// What is wrong.
        problem: &'static str,
    },
    /// The file, or an attribute of it, would become longer than it can be.
    #[error("{place} would become too big")]
    TooBig {
        /// The file.
        place: Place,
    },
    /// The file system does not know such files or such a change.
    #[error("{place}: {what} is not supported")]
    Unsupported {
        /// The file.
        place: Place,
        /// What is not.
        what: &'static str,
    },
    /// Snapshots are not changed by changing the directory that shows them.
    #[error("snapshots are not changed in .zfs/snapshot (zfs_admin_snapshot)")]
    SnapshotsFixed,
    /// A change of snapshots was refused.
    #[error(transparent)]
    Snapshots(Box<ChangeError>),
    /// The file system is read-only (property `readonly`).
    #[error("objset {objset} is read-only")]
    ReadOnly {
        /// The object set.
        objset: ObjsetId,
    },
    /// A quota of the dataset, or of a user, group or project, is used up.
    #[error("objset {objset}: the quota is used up")]
    Quota {
        /// The file system.
        objset: ObjsetId,
    },
    /// There is no space left.
    #[error("objset {objset}: no space is left")]
    NoSpace {
        /// The file system.
        objset: ObjsetId,
    },
    /// A background thread could not be started.
    #[error("cannot start a thread: error {errno}")]
    Thread {
        /// What the operating system said.
        errno: i32,
    },
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EMLINK: i32 = 31;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
const EOVERFLOW: i32 = 75;
const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;
const ERESTART: i32 = 85;
const EDQUOT: i32 = 122;

impl From<BeginError> for ZplError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Stopped(stopped) => Self::Stopped(stopped),
            BeginError::Suspended => Self::Suspended,
        }
    }
}

/// What else can be done with a file system of a version whose files can be changed once it is
/// raised.
fn or_upgraded(version: u64) -> &'static str {
    if version == ZplVersion::USERSPACE.number() { ", or upgraded (zfs upgrade)" } else { "" }
}

impl ZplError {
    /// The errno that a caller of ZFS expects; ERESTART is no answer for a user, but says that the
    /// caller waits and tries again.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Dmu(error) => error.errno(),
            Self::Dataset(error) => error.errno(),
            Self::Locked { .. }
            | Self::Quarantined { .. }
            | Self::NotOwner { .. }
            | Self::SnapshotsFixed => EACCES,
            Self::Snapshots(error) => error.errno(),
            Self::Version { .. } | Self::OldVersion { .. } | Self::XattrNamespace { .. } => {
                EOPNOTSUPP
            }
            Self::MasterEntry { .. } | Self::NotFound { .. } | Self::NoSnapshot { .. } => ENOENT,
            Self::Corrupt { .. } | Self::DanglingEntry { .. } | Self::UnreadableLog { .. } => EIO,
            Self::EntryValue { .. } | Self::BeyondEnd { .. } => ENXIO,
            Self::NotDirectory { .. } => ENOTDIR,
            Self::IsDirectory { .. } => EISDIR,
            Self::WrongKind { .. } | Self::NotFile { .. } | Self::WrongFileKind { .. } => EINVAL,
            Self::NameTooLong { .. } => ENAMETOOLONG,
            Self::NameNotUtf8 { .. } => EILSEQ,
            Self::NoXattr { .. } => ENODATA,
            Self::VolumeSize { size, .. } if *size > i64::MAX as u64 => EOVERFLOW,
            Self::VolumeSize { .. } => EINVAL,
            Self::Thread { errno } => *errno,
            Self::Stopped(_) => EIO,
            Self::Suspended => ERESTART,
            Self::ReadOnly { .. } => EROFS,
            Self::Exists { .. } => EEXIST,
            Self::NotEmpty { .. } => ENOTEMPTY,
            Self::NotPermitted { .. } => EPERM,
            Self::OtherProject { .. } => EXDEV,
            Self::TooManyLinks { .. } => EMLINK,
            Self::BadName { .. } | Self::Invalid { .. } => EINVAL,
            Self::TooBig { .. } => EFBIG,
            Self::Unsupported { .. } => EOPNOTSUPP,
            Self::Quota { .. } => EDQUOT,
            Self::NoSpace { .. } => ENOSPC,
        }
    }

    /// Whether devices that fail or are missing may have what cannot be read: the same may succeed
    /// when they work.
    #[must_use]
    pub fn may_come_back(&self) -> bool {
        match self {
            Self::Dmu(error) => error.may_come_back(),
            Self::DanglingEntry { source, .. } => source.may_come_back(),
            _ => false,
        }
    }

    /// Whether something is damaged for good.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Dmu(error) => error.is_damage(),
            Self::DanglingEntry { source, .. } => source.is_damage(),
            Self::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// Whether it says that the object does not exist, rather than that it cannot be read.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::NotFile { .. }
                | Self::Dmu(
                    DmuError::NotAllocated { .. }
                        | DmuError::InteriorSlot { .. }
                        | DmuError::InvalidObject { .. }
                )
        )
    }
}
