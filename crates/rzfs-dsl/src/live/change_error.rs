//! Why a change of a pool's datasets or properties failed.

use crate::live::LiveError;
use crate::pool::SweepKind;
use crate::{PoolError, dataset::DatasetError};
use rzfs_codec::crypto::CryptoError;
use rzfs_vdev::ConfigError;
use rzfs_vdev::create::PlanError;
use rzfs_vdev::label::LabelError;
use std::sync::Arc;

/// Why the requested encryption is impossible, in OpenZFS's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncryptionProblem {
    /// The pool does not have the feature.
    #[error("Encryption feature not enabled.")]
    Feature,
    /// A key is given, but encryption is off.
    #[error("Encryption must be turned on to set encryption properties.")]
    Off,
    /// No key format is given, and none can be inherited.
    #[error("Keyformat required for new encryption root.")]
    NoKeyFormat,
    /// The key of the parent is not loaded.
    #[error("encryption root's key is not loaded or provided")]
    KeyNotLoaded,
    /// Invalid key location.
    #[error("Invalid keylocation.")]
    KeyLocation,
    /// Only encryption roots have a key location.
    #[error("keylocation may only be set on encryption roots")]
    LocationOfNoRoot,
    /// The dataset is not encrypted.
    #[error("Dataset not encrypted.")]
    NotEncrypted,
    /// A clone uses the keys of its origin.
    #[error("Clones use the encryption key of their origin.")]
    Clone,
    /// The key to be changed is not loaded.
    #[error("Key must be loaded.")]
    OldKeyNotLoaded,
    /// Only an encryption root can give up its key.
    #[error("Key inheriting can only be performed on encryption roots.")]
    NotRoot,
    /// The parent has no key to inherit.
    #[error("Parent must be encrypted.")]
    ParentNotEncrypted,
    /// The key to inherit is not loaded.
    #[error("Parent key must be loaded.")]
    ParentKeyNotLoaded,
    /// Keys cannot be made, or the stored ones are invalid.
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

/// Why a stream cannot be received, in OpenZFS's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReceiveProblem {
    /// The target does not have the snapshot that the stream is based on.
    #[error("most recent snapshot of {target} does not\nmatch incremental source")]
    NoSource {
        /// The target.
        target: String,
    },
    /// The target has been modified since the source snapshot.
    #[error("destination {target} has been modified\nsince most recent snapshot")]
    Modified {
        /// The target.
        target: String,
    },
    /// The target has a partially received state.
    #[error("destination {target} contains partially-complete state from \"zfs receive -s\".")]
    Partial {
        /// The target.
        target: String,
    },
    /// The stream does not continue the partial state.
    #[error("invalid backup stream\nit does not begin where what has arrived ends")]
    NotTheRest,
    /// Overwriting existing data needs a forced receive.
    #[error("Resuming recv on existing dataset without force")]
    NotForced {
        /// The target.
        target: String,
    },
    /// The pool lacks a feature that the stream needs.
    #[error("pool must be upgraded to receive this stream.")]
    PoolTooOld {
        /// The feature's name.
        feature: &'static str,
    },
    /// The source has large blocks, which the stream would split.
    #[error("incremental send stream requires -L (--large-block), to match previous receive.")]
    LargeBlocks,
    /// A target with snapshots is not overwritten.
    #[error("destination has snapshots (eg. {example})\nmust destroy them to overwrite it")]
    TargetHasSnapshots {
        /// One of them.
        example: String,
    },
    /// A clone is not overwritten.
    #[error("destination '{target}' is a clone\nmust destroy it to overwrite it")]
    TargetIsClone {
        /// The target.
        target: String,
    },
    /// An encrypted target is not overwritten.
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

/// Why an administrative change was refused. Nothing has changed.
///
/// The texts are OpenZFS's reasons: what follows `cannot create 'NAME': `.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// A dataset with the name exists.
    #[error("dataset already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// No dataset has the name.
    #[error("dataset does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The parent does not exist.
    #[error("parent does not exist")]
    NoParent {
        /// The name of the new dataset.
        name: String,
    },
    /// The parent is a volume.
    #[error("parent is not a filesystem")]
    WrongParent {
        /// The name of the new dataset.
        name: String,
    },
    /// The name is not a valid dataset name.
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
    /// The dataset is in use.
    #[error("dataset is busy")]
    Busy {
        /// The dataset.
        name: String,
    },
    /// The snapshot has holds.
    #[error("it's being held. Run 'zfs holds -r {name}' to see holders.")]
    Held {
        /// The snapshot.
        name: String,
    },
    /// The dataset has children.
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
    /// The dataset is not a clone.
    #[error("not a cloned filesystem")]
    NotAClone {
        /// The dataset.
        name: String,
    },
    /// A clone has snapshots whose names collide with those it would get.
    #[error("conflicting snapshot{} '{}'", if conflicts.len() == 1 { "" } else { "s" }, conflicts.join("', '"))]
    ConflictingSnapshots {
        /// The clone.
        name: String,
        /// The snapshot names, without the dataset.
        conflicts: Vec<String>,
    },
    /// A bookmark can only be made of a moment in its file system's past.
    #[error("is not an ancestor of the new bookmark's dataset")]
    NotAnAncestor {
        /// The snapshot or bookmark.
        name: String,
    },
    /// The snapshot has clones.
    #[error("snapshot has dependent clones")]
    HasClones {
        /// The snapshot.
        name: String,
    },
    /// Only one snapshot per head can be taken at a time.
    #[error("multiple snapshots of same fs not permitted")]
    SameHead {
        /// The snapshot.
        name: String,
    },
    /// The snapshot already has a hold with this tag.
    #[error("tag already exists on this dataset")]
    TagExists {
        /// The snapshot.
        name: String,
    },
    /// The snapshot has no hold with this tag.
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
    /// A tag is empty, or not text.
    #[error("invalid tag")]
    InvalidTag {
        /// The snapshot.
        name: String,
    },
    /// Several were to be changed together, and these failed.
    #[error("{}", .0.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join(", "))]
    Each(Vec<(String, ChangeError)>),
    /// The dataset has no snapshot of its own.
    #[error("dataset has no snapshots")]
    NoSnapshot {
        /// The dataset.
        name: String,
    },
    /// The dataset has snapshots or bookmarks younger than the rollback target.
    #[error("more recent snapshots or bookmarks exist")]
    MoreRecent {
        /// The dataset.
        name: String,
    },
    /// A dataset would become its own descendant.
    #[error("New dataset name cannot be a descendant of current dataset name")]
    BelowItself {
        /// The dataset.
        name: String,
    },
    /// A dataset cannot move to another pool, and the root of a pool cannot move.
    #[error("operation crosses datasets or pools")]
    CrossesPools {
        /// The dataset.
        name: String,
    },
    /// The operation does not apply to datasets of this kind.
    #[error("operation not applicable to datasets of this type")]
    WrongKind {
        /// The dataset.
        name: String,
    },
    /// Invalid value of a property.
    #[error("'{property}' {problem}")]
    InvalidValue {
        /// The property.
        property: String,
        /// The valid values.
        problem: &'static str,
    },
    /// The property does not exist, or does not apply to this kind of dataset or pool.
    #[error("property doesn't apply to datasets of this type")]
    UnknownProperty {
        /// The property.
        property: String,
    },
    /// The property cannot be set, or only at creation.
    #[error("{property} property is readonly")]
    ReadOnlyProperty {
        /// The property.
        property: String,
    },
    /// The property cannot be inherited.
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
    /// A quota is smaller than the space already used or reserved.
    #[error("size is less than current used or reserved space")]
    QuotaTooSmall {
        /// The property.
        property: String,
    },
    /// There is not enough space to reserve.
    #[error("size is greater than available space")]
    ReservationTooLarge {
        /// The property.
        property: String,
    },
    /// A feature must be enabled first.
    #[error("pool must be upgraded to set this property or value")]
    FeatureDisabled {
        /// The feature's name.
        feature: &'static str,
    },
    /// The feature does not exist, or is not supported.
    #[error("invalid feature '{feature}'")]
    UnknownFeature {
        /// The feature.
        feature: String,
    },
    /// The pool already has this version or a later one, or the version does not exist.
    #[error("invalid version {version}")]
    InvalidVersion {
        /// The version.
        version: u64,
    },
    /// The new ancestors have no room for what moves.
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
    /// The vdev is not a leaf.
    #[error("invalid device")]
    NotALeaf,
    /// A sweep of the leaf's free space is already running.
    #[error("currently {}", match .0 { SweepKind::Initialize => "initializing", SweepKind::Trim => "trimming" })]
    SweepActive(SweepKind),
    /// No sweep of the leaf's free space is running.
    #[error("there is no active {}", match .0 { SweepKind::Initialize => "initialization", SweepKind::Trim => "trim" })]
    NoSweep(SweepKind),
    /// The device does not support discard.
    #[error("trim operations are not supported by this device")]
    TrimUnsupported,
    /// A device of the pool is missing.
    #[error("one or more devices is currently unavailable")]
    DeviceMissing,
    /// The devices cannot become vdevs.
    #[error(transparent)]
    Vdevs(#[from] PlanError),
    /// The new vdevs do not form a valid tree.
    #[error(transparent)]
    Tree(#[from] ConfigError),
    /// The labels of new vdevs cannot be written.
    #[error(transparent)]
    Labels(#[from] LabelError),
    /// New vdevs need a later version or a feature.
    #[error("pool must be upgraded to add these vdevs")]
    PoolTooOld,
    /// Vdevs were removed, whose blocks cannot go to a vdev with parity.
    #[error(
        "invalid config; a pool with removing/removed vdevs does not support adding raidz or \
         dRAID vdevs"
    )]
    RemovedVdevs,
    /// The new vdevs have another sector size than the pool.
    #[error(
        "new device has a different optimal sector size; use the option '-o ashift=N' to \
         override the optimal size"
    )]
    SectorSize,
    /// The pool is full.
    #[error("out of space")]
    NoSpace,
    /// This implementation does not change such a structure.
    #[error("{what} of '{name}' cannot be changed")]
    Unsupported {
        /// The dataset.
        name: String,
        /// The reason.
        what: &'static str,
    },
    /// Encryption does not allow it.
    #[error("{0}")]
    Encryption(EncryptionProblem),
    /// A stream cannot be received.
    #[error("{0}")]
    Receive(ReceiveProblem),
    /// The dataset inherits its key from an ancestor and would lose it.
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
    /// Part of the pool cannot be read.
    #[error("{0}")]
    Unreadable(Arc<LiveError>),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(Box<DatasetError>),
    /// The pool is suspended.
    #[error("pool I/O is currently suspended{}", reason.as_ref().map_or_else(String::new, |r| format!(": {r}")))]
    Suspended {
        /// The cause.
        reason: Option<Arc<LiveError>>,
    },
}

impl ChangeError {
    /// The errno that callers of ZFS expect.
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
