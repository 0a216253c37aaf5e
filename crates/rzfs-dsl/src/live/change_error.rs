//! Why a pool's datasets or properties are not changed.

use crate::live::LiveError;
use crate::pool::SweepKind;
use crate::{PoolError, dataset::DatasetError};
use rzfs_codec::crypto::CryptoError;
use rzfs_vdev::ConfigError;
use rzfs_vdev::create::PlanError;
use rzfs_vdev::label::LabelError;
use std::sync::Arc;

/// Why a dataset is not encrypted as it should be, in OpenZFS's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncryptionProblem {
    /// The pool does not have the feature.
    #[error("Encryption feature not enabled.")]
    Feature,
    /// There is a key but nothing to encrypt with it.
    #[error("Encryption must be turned on to set encryption properties.")]
    Off,
    /// Nobody says how the key is given, and there is none above.
    #[error("Keyformat required for new encryption root.")]
    NoKeyFormat,
    /// The key of the dataset above is not there.
    #[error("encryption root's key is not loaded or provided")]
    KeyNotLoaded,
    /// A key cannot be where it is said to be.
    #[error("Invalid keylocation.")]
    KeyLocation,
    /// What has no key of its own has it nowhere.
    #[error("keylocation may only be set on encryption roots")]
    LocationOfNoRoot,
    /// There is no key to change.
    #[error("Dataset not encrypted.")]
    NotEncrypted,
    /// The keys of a clone are those of its origin.
    #[error("Clones use the encryption key of their origin.")]
    Clone,
    /// The key that is to be changed is not there.
    #[error("Key must be loaded.")]
    OldKeyNotLoaded,
    /// What has no key of its own cannot lose it.
    #[error("Key inheriting can only be performed on encryption roots.")]
    NotRoot,
    /// There is no key to inherit.
    #[error("Parent must be encrypted.")]
    ParentNotEncrypted,
    /// The key to inherit is not there.
    #[error("Parent key must be loaded.")]
    ParentKeyNotLoaded,
    /// Keys cannot be made, or those that are stored are not what they should be.
    #[error(transparent)]
    Key(CryptoError),
}

impl EncryptionProblem {
    const fn errno(&self) -> i32 {
        const EACCES: i32 = 13;
        const EINVAL: i32 = 22;
        const ENOTSUP: i32 = 95;
        match self {
            Self::Feature => ENOTSUP,
            Self::KeyNotLoaded | Self::OldKeyNotLoaded | Self::ParentKeyNotLoaded => EACCES,
            _ => EINVAL,
        }
    }
}

/// Why a stream is not received, in OpenZFS's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReceiveProblem {
    /// The target does not have the snapshot that the stream says the changes of.
    #[error("most recent snapshot of {target} does not\nmatch incremental source")]
    NoSource {
        /// The target.
        target: String,
    },
    /// The target has changes that the stream does not know.
    #[error("destination {target} has been modified\nsince most recent snapshot")]
    Modified {
        /// The target.
        target: String,
    },
    /// The target has what has arrived of a stream that broke off.
    #[error("destination {target} contains partially-complete state from \"zfs receive -s\".")]
    Partial {
        /// The target.
        target: String,
    },
    /// The stream is the rest of another one, or not the one that is next.
    #[error("invalid backup stream\nit does not begin where what has arrived ends")]
    NotTheRest,
    /// What is to be overwritten by what has arrived is not said to be given up.
    #[error("Resuming recv on existing dataset without force")]
    NotForced {
        /// The target.
        target: String,
    },
    /// The pool does not have a feature that the stream has.
    #[error("pool must be upgraded to receive this stream.")]
    PoolTooOld {
        /// The feature's name.
        feature: &'static str,
    },
    /// The source has large blocks, which the stream would split.
    #[error("incremental send stream requires -L (--large-block), to match previous receive.")]
    LargeBlocks,
    /// What has snapshots is not overwritten.
    #[error("destination has snapshots (eg. {example})\nmust destroy them to overwrite it")]
    TargetHasSnapshots {
        /// One of them.
        example: String,
    },
    /// What is a clone is not overwritten.
    #[error("destination '{target}' is a clone\nmust destroy it to overwrite it")]
    TargetIsClone {
        /// The target.
        target: String,
    },
    /// What is encrypted is not overwritten.
    #[error(
        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
         unencrypted one with an encrypted one"
    )]
    TargetIsEncrypted {
        /// The target.
        target: String,
    },
}

impl ReceiveProblem {
    const fn errno(&self) -> i32 {
        const EEXIST: i32 = 17;
        const EBUSY: i32 = 16;
        const ENODEV: i32 = 19;
        const EINVAL: i32 = 22;
        const ETXTBSY: i32 = 26;
        const ENOTSUP: i32 = 95;
        const ZFS_ERR_STREAM_LARGE_BLOCK_MISMATCH: i32 = 1041;
        const ZFS_ERR_RESUME_EXISTS: i32 = 1047;
        match self {
            Self::NoSource { .. } => ENODEV,
            Self::Modified { .. } => ETXTBSY,
            Self::Partial { .. } => EBUSY,
            Self::NotTheRest => EINVAL,
            Self::NotForced { .. } => ZFS_ERR_RESUME_EXISTS,
            Self::PoolTooOld { .. } => ENOTSUP,
            Self::LargeBlocks => ZFS_ERR_STREAM_LARGE_BLOCK_MISMATCH,
            Self::TargetHasSnapshots { .. } => EEXIST,
            Self::TargetIsClone { .. } | Self::TargetIsEncrypted { .. } => EINVAL,
        }
    }
}

/// Why a change that an administrator asked for was not made. Nothing has changed then.
///
/// The texts are OpenZFS's reasons: what follows `cannot create 'NAME': `.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is a dataset with the name.
    #[error("dataset already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no dataset with the name.
    #[error("dataset does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The dataset above does not exist.
    #[error("parent does not exist")]
    NoParent {
        /// The name that was to be below it.
        name: String,
    },
    /// The dataset above is a volume.
    #[error("parent is not a filesystem")]
    WrongParent {
        /// The name that was to be below it.
        name: String,
    },
    /// No dataset can have the name.
    #[error("invalid name")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The name, or that of a dataset below it, would have more than 255 bytes.
    #[error("name is too long")]
    NameTooLong {
        /// The name.
        name: String,
    },
    /// Datasets would be nested too deeply.
    #[error("maximum name nesting depth exceeded")]
    TooDeep {
        /// The name.
        name: String,
    },
    /// Somebody uses the dataset.
    #[error("dataset is busy")]
    Busy {
        /// The dataset.
        name: String,
    },
    /// Somebody holds the snapshot.
    #[error("it's being held. Run 'zfs holds -r {name}' to see holders.")]
    Held {
        /// The snapshot.
        name: String,
    },
    /// There are datasets below.
    #[error("filesystem has children")]
    HasChildren {
        /// The dataset.
        name: String,
    },
    /// The dataset has snapshots.
    #[error("filesystem has children")]
    HasSnapshots {
        /// The dataset.
        name: String,
    },
    /// The dataset is no clone.
    #[error("not a cloned filesystem")]
    NotAClone {
        /// The dataset.
        name: String,
    },
    /// A clone has snapshots with the names of those that it would get.
    #[error("conflicting snapshot{} '{}'", if conflicts.len() == 1 { "" } else { "s" }, conflicts.join("', '"))]
    ConflictingSnapshots {
        /// The clone.
        name: String,
        /// The names, without what they are of.
        conflicts: Vec<String>,
    },
    /// A bookmark can be made of what is in the past of its file system only.
    #[error("is not an ancestor of the new bookmark's dataset")]
    NotAnAncestor {
        /// The snapshot or bookmark.
        name: String,
    },
    /// Others were made of the snapshot.
    #[error("snapshot has dependent clones")]
    HasClones {
        /// The snapshot.
        name: String,
    },
    /// A head can have one snapshot at a time.
    #[error("multiple snapshots of same fs not permitted")]
    SameHead {
        /// The snapshot.
        name: String,
    },
    /// The snapshot is held with this tag already.
    #[error("tag already exists on this dataset")]
    TagExists {
        /// The snapshot.
        name: String,
    },
    /// The snapshot is not held with this tag.
    #[error("no such tag on this dataset")]
    NoSuchTag {
        /// The snapshot.
        name: String,
    },
    /// A tag has more than 256 bytes.
    #[error("tag too long")]
    TagTooLong {
        /// The snapshot.
        name: String,
    },
    /// A tag is empty, or no text.
    #[error("invalid tag")]
    InvalidTag {
        /// The snapshot.
        name: String,
    },
    /// Several were to be changed together, and these cannot be.
    #[error("{}", .0.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join(", "))]
    Each(Vec<(String, ChangeError)>),
    /// The dataset has no snapshot of its own.
    #[error("dataset has no snapshots")]
    NoSnapshot {
        /// The dataset.
        name: String,
    },
    /// The dataset has snapshots or bookmarks that are younger than what it is to be rolled back to.
    #[error("more recent snapshots or bookmarks exist")]
    MoreRecent {
        /// The dataset.
        name: String,
    },
    /// A dataset would be below itself.
    #[error("New dataset name cannot be a descendant of current dataset name")]
    BelowItself {
        /// The dataset.
        name: String,
    },
    /// A dataset cannot go to another pool, and the root of a pool cannot go anywhere.
    #[error("operation crosses datasets or pools")]
    CrossesPools {
        /// The dataset.
        name: String,
    },
    /// The operation is not for datasets of this kind.
    #[error("operation not applicable to datasets of this type")]
    WrongKind {
        /// The dataset.
        name: String,
    },
    /// A property has no such value.
    #[error("'{property}' {problem}")]
    InvalidValue {
        /// The property.
        property: String,
        /// What values it has.
        problem: &'static str,
    },
    /// There is no such property, or it does not apply to this kind of dataset or pool.
    #[error("property doesn't apply to datasets of this type")]
    UnknownProperty {
        /// The property.
        property: String,
    },
    /// The property cannot be set, or only when a dataset is made.
    #[error("{property} property is readonly")]
    ReadOnlyProperty {
        /// The property.
        property: String,
    },
    /// The property has no inherited value.
    #[error("property cannot be inherited")]
    NotInheritable {
        /// The property.
        property: String,
    },
    /// The name of a property has more than 255 bytes.
    #[error("property name is too long")]
    PropertyNameTooLong {
        /// The property.
        property: String,
    },
    /// The value of a property is too long.
    #[error("property value too long")]
    ValueTooLong {
        /// The property.
        property: String,
    },
    /// A quota is smaller than what is used or reserved already.
    #[error("size is less than current used or reserved space")]
    QuotaTooSmall {
        /// The property.
        property: String,
    },
    /// There is not so much space to reserve.
    #[error("size is greater than available space")]
    ReservationTooLarge {
        /// The property.
        property: String,
    },
    /// A feature has to be enabled first.
    #[error("pool must be upgraded to set this property or value")]
    FeatureDisabled {
        /// The feature's name.
        feature: &'static str,
    },
    /// There is no such feature, or this software does not have it.
    #[error("invalid feature '{feature}'")]
    UnknownFeature {
        /// The feature.
        feature: String,
    },
    /// A pool has this version already, or a later one, or the version does not exist.
    #[error("invalid version {version}")]
    InvalidVersion {
        /// The version.
        version: u64,
    },
    /// The datasets above have no room for what moves.
    #[error("out of space")]
    Quota {
        /// The dataset.
        name: String,
    },
    /// The pool has a checkpoint, which would be lost.
    #[error("checkpoint exists")]
    CheckpointExists,
    /// The pool has no such device.
    #[error("no such device in pool")]
    NoSuchDevice,
    /// The vdev is made of others.
    #[error("invalid device")]
    NotALeaf,
    /// The leaf's free space is being swept already.
    #[error("currently {}", match .0 { SweepKind::Initialize => "initializing", SweepKind::Trim => "trimming" })]
    SweepActive(SweepKind),
    /// The leaf's free space is not being swept.
    #[error("there is no active {}", match .0 { SweepKind::Initialize => "initialization", SweepKind::Trim => "trim" })]
    NoSweep(SweepKind),
    /// The device cannot discard.
    #[error("trim operations are not supported by this device")]
    TrimUnsupported,
    /// A device of the pool is missing.
    #[error("one or more devices is currently unavailable")]
    DeviceMissing,
    /// Devices cannot become vdevs.
    #[error(transparent)]
    Vdevs(#[from] PlanError),
    /// New vdevs make no tree.
    #[error(transparent)]
    Tree(#[from] ConfigError),
    /// The labels of new vdevs cannot be written.
    #[error(transparent)]
    Labels(#[from] LabelError),
    /// New vdevs need a later version or a feature.
    #[error("pool must be upgraded to add these vdevs")]
    PoolTooOld,
    /// Blocks of vdevs that were removed may be anywhere, but on a vdev with parity.
    #[error(
        "invalid config; a pool with removing/removed vdevs does not support adding raidz or \
         dRAID vdevs"
    )]
    RemovedVdevs,
    /// New vdevs have another sector size than the pool.
    #[error(
        "new device has a different optimal sector size; use the option '-o ashift=N' to \
         override the optimal size"
    )]
    SectorSize,
    /// The pool is full.
    #[error("out of space")]
    NoSpace,
    /// The structure is one that this software does not change.
    #[error("{what} of '{name}' cannot be changed")]
    Unsupported {
        /// The dataset.
        name: String,
        /// What it has.
        what: &'static str,
    },
    /// Encryption does not allow it.
    #[error("{0}")]
    Encryption(EncryptionProblem),
    /// A stream does not fit.
    #[error("{0}")]
    Receive(ReceiveProblem),
    /// The dataset has its key from what is above it, and would not have it any more.
    #[error("cannot move encrypted child outside of its encryption root")]
    OtherEncryptionRoot {
        /// The dataset.
        name: String,
    },
    /// The key is in use.
    #[error("'{name}' is busy.")]
    KeyInUse {
        /// The encryption root.
        name: String,
    },
    /// Something of the pool cannot be read.
    #[error("{0}")]
    Unreadable(Arc<LiveError>),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(Box<DatasetError>),
    /// The pool is suspended.
    #[error("pool I/O is currently suspended{}", reason.as_ref().map_or_else(String::new, |r| format!(": {r}")))]
    Suspended {
        /// Because of what.
        reason: Option<Arc<LiveError>>,
    },
}

impl ChangeError {
    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const ESRCH: i32 = 3;
        const EIO: i32 = 5;
        const ENXIO: i32 = 6;
        const E2BIG: i32 = 7;
        const EAGAIN: i32 = 11;
        const EACCES: i32 = 13;
        const EBUSY: i32 = 16;
        const EEXIST: i32 = 17;
        const EXDEV: i32 = 18;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const ENAMETOOLONG: i32 = 36;
        const ENOTSUP: i32 = 95;
        const EDQUOT: i32 = 122;
        const ZFS_ERR_CHECKPOINT_EXISTS: i32 = 1024;
        const ZFS_ERR_ASHIFT_MISMATCH: i32 = 1054;
        match self {
            Self::NotFound { .. } | Self::NoParent { .. } | Self::NoSuchDevice => ENOENT,
            Self::Exists { .. }
            | Self::HasChildren { .. }
            | Self::HasClones { .. }
            | Self::TagExists { .. }
            | Self::ConflictingSnapshots { .. }
            | Self::MoreRecent { .. } => EEXIST,
            Self::Each(errors) => errors.first().map_or(EINVAL, |(_, error)| error.errno()),
            Self::NoSnapshot { .. } | Self::NoSuchTag { .. } => ESRCH,
            Self::Busy { .. } | Self::Held { .. } | Self::HasSnapshots { .. } => EBUSY,
            Self::NameTooLong { .. } | Self::TooDeep { .. } | Self::PropertyNameTooLong { .. } => {
                ENAMETOOLONG
            }
            Self::ValueTooLong { .. } | Self::TagTooLong { .. } => E2BIG,
            Self::CrossesPools { .. } | Self::SameHead { .. } => EXDEV,
            Self::InvalidName { .. }
            | Self::InvalidTag { .. }
            | Self::NotAClone { .. }
            | Self::NotAnAncestor { .. }
            | Self::BelowItself { .. }
            | Self::WrongParent { .. }
            | Self::WrongKind { .. }
            | Self::InvalidValue { .. }
            | Self::UnknownProperty { .. }
            | Self::ReadOnlyProperty { .. }
            | Self::NotInheritable { .. }
            | Self::UnknownFeature { .. }
            | Self::InvalidVersion { .. } => EINVAL,
            Self::FeatureDisabled { .. } | Self::Unsupported { .. } => ENOTSUP,
            Self::QuotaTooSmall { .. } | Self::ReservationTooLarge { .. } | Self::NoSpace => ENOSPC,
            Self::CheckpointExists => ZFS_ERR_CHECKPOINT_EXISTS,
            Self::DeviceMissing => ENXIO,
            Self::NotALeaf => EINVAL,
            Self::SweepActive(_) => EBUSY,
            Self::NoSweep(_) => ESRCH,
            Self::TrimUnsupported => ENOTSUP,
            Self::Vdevs(source) => source.errno(),
            Self::Labels(source) => source.errno(),
            Self::Tree(_) | Self::RemovedVdevs => EINVAL,
            Self::PoolTooOld => ENOTSUP,
            Self::SectorSize => ZFS_ERR_ASHIFT_MISMATCH,
            Self::Quota { .. } => EDQUOT,
            Self::Encryption(problem) => problem.errno(),
            Self::Receive(problem) => problem.errno(),
            Self::OtherEncryptionRoot { .. } => EACCES,
            Self::KeyInUse { .. } => EBUSY,
            Self::Unreadable(source) => source.errno(),
            Self::Dataset(source) => source.errno(),
            Self::Suspended { reason: Some(_) } => EIO,
            Self::Suspended { reason: None } => EAGAIN,
        }
    }
}

impl From<DatasetError> for ChangeError {
    fn from(source: DatasetError) -> Self {
        match source {
            DatasetError::NotFound { name } => Self::NotFound { name },
            source => Self::Dataset(Box::new(source)),
        }
    }
}

impl From<PoolError> for ChangeError {
    fn from(source: PoolError) -> Self {
        Self::Unreadable(Arc::new(source.into()))
    }
}

impl From<EncryptionProblem> for ChangeError {
    fn from(problem: EncryptionProblem) -> Self {
        Self::Encryption(problem)
    }
}

impl From<ReceiveProblem> for ChangeError {
    fn from(problem: ReceiveProblem) -> Self {
        Self::Receive(problem)
    }
}

impl From<CryptoError> for EncryptionProblem {
    fn from(error: CryptoError) -> Self {
        Self::Key(error)
    }
}
