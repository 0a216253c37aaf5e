//! The one thing to be said about a pool.

use serde::{Deserialize, Serialize};

/// The condition of a pool that matters most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Nothing is to be said.
    #[default]
    Healthy,
    /// Another host has the pool open.
    ActiveElsewhere,
    /// The pool is guarded by multihost and this host has no id.
    HostIdRequired,
    /// A device is being resilvered.
    Resilvering,
    /// Another host had the pool last and did not export it.
    LastUsedElsewhere,
    /// The version is newer than this software.
    VersionNewer,
    /// Features are in use without which the pool cannot be read.
    UnsupportedFeatures,
    /// Features are in use without which the pool can only be read.
    UnsupportedFeaturesForWriting,
    /// The vdevs are not all the vdevs.
    GuidSum,
    /// Faulted devices, too many of them.
    FaultedNoReplicas,
    /// Missing devices, too many of them.
    MissingNoReplicas,
    /// Damaged or foreign labels, too many of them.
    CorruptLabelNoReplicas,
    /// Missing devices; the others work, but lack data that was written while they were away.
    MissingNewer,
    /// The pool's metadata is damaged.
    CorruptPool,
    /// Blocks are damaged.
    CorruptData,
    /// Faulted devices; the others are enough.
    Faulted,
    /// Missing devices; the others are enough.
    Missing,
    /// Damaged or foreign labels; the other devices are enough.
    CorruptLabel,
    /// Devices lack data that was written while they were away.
    LacksData,
    /// Devices made errors that other copies made up for.
    Failing,
    /// Devices fail that the pool cannot do without; writers wait.
    IoFailureWait,
    /// Devices fail that the pool cannot do without; writers get errors.
    IoFailureContinue,
    /// Devices were taken offline.
    Offline,
    /// Devices were taken out.
    Removed,
    /// Devices have larger sectors than the pool assumes.
    NonNativeAshift,
    /// An on-disk incompatibility of old software, by its number.
    Erratum(u64),
    /// The version has no feature flags.
    VersionOlder,
    /// The files that the property `compatibility` names cannot be read.
    CompatibilityError,
    /// Features are enabled that the property `compatibility` excludes.
    IncompatibleFeatures,
    /// Features could be enabled.
    FeaturesDisabled,
}

impl Condition {
    /// Whether the pool waits for its devices.
    #[must_use]
    pub const fn is_suspended(self) -> bool {
        matches!(self, Self::IoFailureWait | Self::IoFailureContinue)
    }

    /// Whether `zpool status -x` shows a pool in this condition.
    #[must_use]
    pub const fn is_trouble(self) -> bool {
        !matches!(
            self,
            Self::Healthy
                | Self::Erratum(_)
                | Self::VersionOlder
                | Self::CompatibilityError
                | Self::IncompatibleFeatures
                | Self::FeaturesDisabled
        )
    }
}
