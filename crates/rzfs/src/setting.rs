//! Typed properties: which may be set, their valid values, and their stored form (spec 09, sections
//! 3.3 and 5).

mod dataset;
mod encryption;
mod owner;
mod pool;
mod rules;
mod usage;

pub use dataset::{DatasetSetting, NewDatasetProperties, Occasion};
pub use encryption::EncryptionProperties;
pub use owner::{OwnerAspect, OwnerProperty};
pub use pool::{CacheFile, DefaultFeatures, NewPoolProperties, PoolSetting};
pub use usage::{dataset_properties, pool_properties};

use crate::quantity::SizeError;
use rzfs_format::property::PoolProperty;

/// Why a property cannot be set; the messages are OpenZFS's, where it has them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such property.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// It cannot be set, or no longer.
    #[error("'{0}' is readonly")]
    ReadOnly(String),
    /// Datasets of this kind do not have it.
    #[error("'{0}' does not apply to datasets of this type")]
    NotApplicable(String),
    /// Not one of the property's words.
    #[error("'{name}' must be one of '{values}'")]
    Word {
        /// The property.
        name: String,
        /// Its words.
        values: String,
    },
    /// Names can only be normalized if all are UTF-8.
    #[error("'utf8only' must be set 'on' if normalization chosen")]
    NotNormalizable,
    /// Not a number.
    #[error(transparent)]
    Number(#[from] SizeError),
    /// Not a power of two within bounds.
    #[error("'{name}' must be power of 2 from {min} to {max}")]
    PowerOfTwo {
        /// The property.
        name: String,
        /// The smallest value.
        min: String,
        /// The largest value.
        max: String,
    },
    /// Neither 0 nor a power of two within bounds.
    #[error("invalid '{name}={value}' property: must be zero or a power of 2 from 512B to 16M")]
    SmallBlocks {
        /// The property.
        name: String,
        /// The number.
        value: u64,
    },
    /// A limit of 0.
    #[error("use 'none' to disable {0}")]
    ZeroLimit(String),
    /// Not a valid mount point.
    #[error("'{0}' must be an absolute path, 'none', or 'legacy'")]
    MountPoint(String),
    /// Not a valid location of a key.
    #[error("invalid keylocation")]
    KeyLocation,
    /// Too few iterations, which would only ease guessing.
    #[error("minimum pbkdf2 iterations is 100000")]
    FewIterations,
    /// Iterations without a passphrase.
    #[error("pbkdf2iters may only be specified with keyformat=passphrase")]
    IterationsWithoutPassphrase,
    /// Inconsistent encryption properties.
    #[error(transparent)]
    Encryption(rzfs_dsl::live::EncryptionProblem),
    /// An invalid number.
    #[error("'{name}' {problem}")]
    Value {
        /// The property.
        name: String,
        /// The constraint.
        problem: &'static str,
    },
    /// A text of more than 8191 bytes.
    #[error("property value too long")]
    ValueTooLong,
    /// A name of more than 255 bytes.
    #[error("property name '{0}' is too long")]
    NameTooLong(String),
    /// A user property's name with invalid characters.
    #[error("invalid property '{0}'")]
    UserName(String),
    /// A property of an unknown user or group.
    #[error("'{0}' has an invalid user/group name")]
    OwnerName(String),
    /// The feature needed by the value is not enabled.
    #[error("pool and or dataset must be upgraded to set this property or value")]
    NeedsUpgrade,
    /// A value that this software does not support.
    #[error("property '{name}' cannot be set to '{value}': it is only read by this software")]
    NotWritten {
        /// The property.
        name: String,
        /// The value.
        value: String,
    },
    /// A number out of bounds.
    #[error("property '{name}' number {value} is invalid{}", hint(name))]
    PoolNumber {
        /// The property.
        name: String,
        /// The typed value.
        value: String,
    },
    /// A pool property that only an import can set.
    #[error("property '{0}' can only be set at import time")]
    ImportTime(String),
    /// A pool property that only creation or import can set.
    #[error("property '{0}' can only be set during pool creation or import")]
    CreationOrImport(String),
    /// A pool property that needs an existing pool.
    #[error("property '{0}' cannot be set at creation time")]
    NotAtCreation(String),
    /// An unknown feature.
    #[error("feature '{0}' unsupported by kernel")]
    UnknownFeature(String),
    /// A feature can only be enabled, or before creation disabled.
    #[error("property '{0}' can only be set to 'enabled' or 'disabled'")]
    FeatureWord(String),
    /// Features of an existing pool cannot be disabled.
    #[error("property '{0}' can only be set to 'disabled' at creation time")]
    FeatureDisabled(String),
    /// A comment with control characters.
    #[error("comment may only have printable characters")]
    Unprintable,
    /// A comment that is too long.
    #[error("comment must not exceed 32 characters")]
    CommentTooLong,
    /// A file of a feature set cannot be used.
    #[error(transparent)]
    Compatibility(#[from] rzfs_dsl::pool::compatibility::CompatibilityError),
    /// An invalid path.
    #[error("property '{name}' must be empty, an absolute path, or 'none'")]
    Path {
        /// The property.
        name: String,
    },
    /// The path of a directory.
    #[error("'{0}' is not a valid file")]
    NoFile(String),
    /// A missing directory.
    #[error("'{0}' is not a valid directory")]
    NoDirectory(String),
    /// An invalid alternate root.
    #[error("bad alternate root '{0}'")]
    AlternateRoot(String),
    /// The name of no file system in the pool.
    #[error("'{0}' is an invalid name")]
    BootFileSystem(String),
    /// An unknown property of pools.
    #[error("property '{0}' is not a valid pool or vdev property")]
    UnknownPool(String),
    /// An unknown property of a new pool's file system.
    #[error("property '{0}' is not a valid filesystem property")]
    UnknownFileSystem(String),
    /// The same property twice.
    #[error("property '{0}' specified multiple times")]
    Repeated(String),
}

fn hint(name: &str) -> &'static str {
    match PoolProperty::from_name(name) {
        Some(PoolProperty::Ashift) => ", only values between 9 and 16 are allowed.",
        _ => ".",
    }
}
