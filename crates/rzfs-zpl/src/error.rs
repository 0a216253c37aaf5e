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
    /// Adds the location to an error of the object's ZAP.
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
    /// The object set has the wrong type.
    #[error("objset {objset} holds {found}, not {wanted}")]
    WrongKind {
        /// The object set.
        objset: ObjsetId,
        /// The type of its contents.
        found: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
    /// The key of an encrypted dataset is not loaded.
    #[error("objset {objset} is encrypted and its key is not loaded")]
    Locked {
        /// The object set.
        objset: ObjsetId,
    },
    /// The version of the file system is newer than allowed by the pool, or unsupported.
    #[error("objset {objset}: file system version {version} is not supported by this pool")]
    Version {
        /// The object set.
        objset: ObjsetId,
        /// The version.
        version: u64,
    },
    /// The version of the file system is too old to be changed.
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
        /// The error.
        source: FormatError,
    },
    /// The target of a directory entry cannot be opened.
    #[error("{directory}: an entry leads to object {object}: {source}")]
    DanglingEntry {
        /// The directory.
        directory: Place,
        /// The target.
        object: ObjectId,
        /// Why it cannot be opened.
        source: Box<ZplError>,
    },
    /// An entry's value is not a valid number.
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
    /// The directory has no such entry, or the object has no link.
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
    /// The name is too long.
    #[error("{directory}: the name has {length} bytes")]
    NameTooLong {
        /// The directory.
        directory: Place,
        /// Length in bytes.
        length: usize,
    },
    /// The intent log continues where it cannot be read.
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
    /// The file system only accepts UTF-8 names.
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
    /// A seek starts beyond the end, or finds nothing.
    #[error("{place}: nothing there at or behind byte {offset}")]
    BeyondEnd {
        /// The object.
        place: Place,
        /// The start of the search.
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
    /// The pool no longer accepts changes, or not until it is repaired.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The pool is suspended: retry when it resumes. Only where callers wait
    /// ([`LiveFileSystem::set_callers_wait`]).
    ///
    /// [`LiveFileSystem::set_callers_wait`]: crate::live::LiveFileSystem::set_callers_wait
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// The name or attribute already exists.
    #[error("{place}: the name is there already")]
    Exists {
        /// The directory, or the file that has the attribute.
        place: Place,
    },
    /// An invalid name: empty, `.`, `..`, or with a slash or NUL.
    #[error("{directory}: no entry can have this name")]
    BadName {
        /// The directory.
        directory: Place,
    },
    /// The directory is not empty.
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
    /// The file belongs to another project than the directory.
    #[error("{place} belongs to another project")]
    OtherProject {
        /// The file.
        place: Place,
    },
    /// The file has the maximum number of links.
    #[error("{place} has too many links")]
    TooManyLinks {
        /// The file.
        place: Place,
    },
    /// The request is invalid.
    #[error("{place}: {problem}")]
    Invalid {
        /// The file.
        place: Place,
        /// The problem.
        problem: &'static str,
    },
    /// The file, or one of its attributes, would become too long.
    #[error("{place} would become too big")]
    TooBig {
        /// The file.
        place: Place,
    },
    /// The file system does not support such files or changes.
    #[error("{place}: {what} is not supported")]
    Unsupported {
        /// The file.
        place: Place,
        /// The unsupported feature.
        what: &'static str,
    },
    /// Snapshots cannot be changed through this directory.
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
    /// A quota of the dataset, or of a user, group or project, is exceeded.
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

/// How else to handle a file system of a version whose files can be changed after an upgrade.
fn or_upgraded(version: u64) -> &'static str {
    if version == ZplVersion::USERSPACE.number() { ", or upgraded (zfs upgrade)" } else { "" }
}

impl ZplError {
    /// The errno that callers of ZFS expect; ERESTART is not for users, but tells the caller to
    /// wait and retry.
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

    /// Whether the unreadable data may be on failing or missing devices: a retry may succeed when
    /// they work.
    #[must_use]
    pub fn may_come_back(&self) -> bool {
        match self {
            Self::Dmu(error) => error.may_come_back(),
            Self::DanglingEntry { source, .. } => source.may_come_back(),
            _ => false,
        }
    }

    /// Whether there is permanent damage.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Dmu(error) => error.is_damage(),
            Self::DanglingEntry { source, .. } => source.is_damage(),
            Self::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// Whether the object does not exist, as opposed to being unreadable.
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
