//! Properties as they are typed: which may be set, what their values may be, and what is stored
//! for them (spec 09, sections 3.3 and 5).

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

/// Why a property cannot be set; the messages are OpenZFS's, as far as it has them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// No property has the name.
    #[error("invalid property '{0}'")]
    Unknown(String),
    /// It cannot be set, or not any more.
    #[error("'{0}' is readonly")]
    ReadOnly(String),
    /// Datasets of this kind do not have it.
    #[error("'{0}' does not apply to datasets of this type")]
    NotApplicable(String),
    /// Not one of its words.
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
    UseNone(String),
    /// Not a place to mount at.
    #[error("'{0}' must be an absolute path, 'none', or 'legacy'")]
    MountPoint(String),
    /// A place where no key can be.
    #[error("invalid keylocation")]
    KeyLocation,
    /// Iterations that make nothing but guessing easier.
    #[error("minimum pbkdf2 iterations is 100000")]
    FewIterations,
    /// Iterations without a passphrase.
    #[error("pbkdf2iters may only be specified with keyformat=passphrase")]
    IterationsOfNothing,
    /// Properties about encryption that do not fit together.
    #[error(transparent)]
    Encryption(rzfs_dsl::live::EncryptionProblem),
    /// A number that the property cannot have.
    #[error("'{name}' {problem}")]
    Value {
        /// The property.
        name: String,
        /// What it has to be.
        problem: &'static str,
    },
    /// A text of more than 8191 bytes.
    #[error("property value too long")]
    ValueTooLong,
    /// A name of more than 255 bytes.
    #[error("property name '{0}' is too long")]
    NameTooLong(String),
    /// A name of a user property with characters that it cannot have.
    #[error("invalid property '{0}'")]
    UserName(String),
    /// A property about somebody whom nobody knows.
    #[error("'{0}' has an invalid user/group name")]
    OwnerName(String),
    /// The feature that the value needs is not enabled.
    #[error("pool and or dataset must be upgraded to set this property or value")]
    NeedsUpgrade,
    /// Something that this software does not write.
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
        /// What was typed.
        value: String,
    },
    /// A property of pools that only an import can have.
    #[error("property '{0}' can only be set at import time")]
    ImportTime(String),
    /// A property of pools that only a new one can have.
    #[error("property '{0}' can only be set during pool creation or import")]
    CreationOrImport(String),
    /// A property of pools that needs the pool to be there.
    #[error("property '{0}' cannot be set at creation time")]
    NotAtCreation(String),
    /// A feature that nobody knows.
    #[error("feature '{0}' unsupported by kernel")]
    UnknownFeature(String),
    /// A feature can be switched on, and off before the pool is there.
    #[error("property '{0}' can only be set to 'enabled' or 'disabled'")]
    FeatureWord(String),
    /// Features of a pool stay enabled.
    #[error("property '{0}' can only be set to 'disabled' at creation time")]
    FeatureDisabled(String),
    /// A comment with control characters.
    #[error("comment may only have printable characters")]
    Unprintable,
    /// A long comment.
    #[error("comment must not exceed 32 characters")]
    CommentTooLong,
    /// A file whose features decide cannot be used.
    #[error(transparent)]
    Compatibility(#[from] rzfs_dsl::pool::compatibility::CompatibilityError),
    /// A path that is none.
    #[error("property '{name}' must be empty, an absolute path, or 'none'")]
    Path {
        /// The property.
        name: String,
    },
    /// A path that is that of a directory.
    #[error("'{0}' is not a valid file")]
    NoFile(String),
    /// A directory that is not there.
    #[error("'{0}' is not a valid directory")]
    NoDirectory(String),
    /// A place below which a pool cannot be mounted.
    #[error("bad alternate root '{0}'")]
    AlternateRoot(String),
    /// A name that is no file system of the pool.
    #[error("'{0}' is an invalid name")]
    BootFileSystem(String),
    /// A property of pools without the name of one.
    #[error("property '{0}' is not a valid pool or vdev property")]
    UnknownPool(String),
    /// A property of a new pool's file system without the name of one.
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
