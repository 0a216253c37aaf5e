//! The condition of a pool, as reported by `zpool status` and the list of importable pools.

use super::compatibility;
use super::erratum::Erratum;
use super::properties::FailMode;
use super::scan::{ScanFunction, ScanState, ScanStatus};
use crate::mos::features::{FeatureNeed, FeatureStates};
use rzfs_format::features::{Feature, Release};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_vdev::{AuxReason, Health, Vdev, VdevState, VdevTree};
use serde::{Deserialize, Serialize};

/// The most important condition of a pool. Worse ones come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolStatus {
    /// Essential devices fail; writers wait.
    IoFailureWait,
    /// Essential devices fail; writers get errors.
    IoFailureContinue,
    /// Another host has the pool open.
    ActiveElsewhere,
    /// The pool has multihost protection and this host has no id.
    HostIdRequired,
    /// A device is being resilvered.
    Resilvering,
    /// Another host used the pool last and did not export it.
    LastUsedElsewhere,
    /// The version is newer than supported.
    VersionNewer,
    /// Unsupported features are in use that are needed for reading.
    UnsupportedFeatures,
    /// Unsupported features are in use that are needed for writing.
    UnsupportedFeaturesForWriting,
    /// Some vdevs are missing in the configuration.
    GuidSum,
    /// Too many faulted devices.
    FaultedNoReplicas,
    /// Too many missing devices.
    MissingNoReplicas,
    /// Too many damaged or foreign labels.
    CorruptLabelNoReplicas,
    /// Missing devices; the others work, but lack data written while they were offline.
    MissingNewer,
    /// The pool's metadata is damaged.
    CorruptPool,
    /// Blocks are damaged.
    CorruptData,
    /// Faulted devices; redundancy suffices.
    Faulted,
    /// Missing devices; redundancy suffices.
    Missing,
    /// Damaged or foreign labels; redundancy suffices.
    CorruptLabel,
    /// Devices lack data written while they were offline.
    LacksData,
    /// Device errors that were corrected from other copies.
    Failing,
    /// Devices were taken offline.
    Offline,
    /// Devices were removed.
    Removed,
    /// Devices have larger sectors than the pool uses.
    NonNativeAshift,
    /// An on-disk incompatibility caused by old software.
    Erratum(Erratum),
    /// The version has no feature flags.
    VersionOlder,
    /// The files that the property `compatibility` names cannot be read.
    CompatibilityError,
    /// Features are enabled that the property `compatibility` excludes.
    IncompatibleFeatures,
    /// Features could be enabled.
    FeaturesDisabled,
    /// No condition to report.
    #[default]
    Healthy,
}

impl PoolStatus {
    /// The condition of a pool that waits for its devices.
    #[must_use]
    pub const fn suspended(fail_mode: FailMode) -> Self {
        match fail_mode {
            FailMode::Continue => Self::IoFailureContinue,
            FailMode::Wait | FailMode::Panic => Self::IoFailureWait,
        }
    }

    /// Whether the pool waits for its devices.
    #[must_use]
    pub const fn is_suspended(self) -> bool {
        matches!(self, Self::IoFailureWait | Self::IoFailureContinue)
    }

    /// Whether it concerns the format of the pool: its version, its features, traces of old
    /// software.
    #[must_use]
    pub const fn is_about_format(self) -> bool {
        matches!(
            self,
            Self::VersionOlder
                | Self::VersionNewer
                | Self::UnsupportedFeatures
                | Self::UnsupportedFeaturesForWriting
                | Self::CompatibilityError
                | Self::IncompatibleFeatures
                | Self::FeaturesDisabled
                | Self::Erratum(_)
        )
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

    /// The last part of the URL of OpenZFS's page about this condition; `None` without one.
    #[must_use]
    pub const fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Self::IoFailureWait => "ZFS-8000-HC",
            Self::IoFailureContinue => "ZFS-8000-JQ",
            Self::ActiveElsewhere | Self::HostIdRequired | Self::LastUsedElsewhere => "ZFS-8000-EY",
            Self::VersionNewer => "ZFS-8000-A5",
            Self::GuidSum => "ZFS-8000-6X",
            Self::MissingNoReplicas | Self::MissingNewer => "ZFS-8000-3C",
            Self::Missing => "ZFS-8000-2Q",
            Self::CorruptLabelNoReplicas => "ZFS-8000-5E",
            Self::CorruptLabel => "ZFS-8000-4J",
            Self::CorruptPool => "ZFS-8000-72",
            Self::CorruptData => "ZFS-8000-8A",
            Self::Failing => "ZFS-8000-9P",
            Self::Erratum(_) => "ZFS-8000-ER",
            _ => return None,
        })
    }
}

/// The symptoms of a pool. Unknown ones are left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Symptoms<'a> {
    pub(crate) last_used_elsewhere: bool,
    pub(crate) health: Option<Health>,
    pub(crate) vdevs: Option<&'a VdevTree>,
    pub(crate) version: u64,
    pub(crate) features: Option<&'a FeatureStates>,
    pub(crate) compatibility: Option<&'a str>,
    pub(crate) scan: Option<&'a ScanState>,
    pub(crate) damaged_blocks: usize,
    pub(crate) erratum: Option<Erratum>,
}

impl Symptoms<'_> {
    /// The worst condition.
    pub(crate) fn status(self) -> PoolStatus {
        let resilvering = self.scan.is_some_and(|scan| {
            scan.function == ScanFunction::Resilver && scan.status == ScanStatus::Running
        });
        if resilvering {
            return PoolStatus::Resilvering;
        }
        if self.last_used_elsewhere {
            return PoolStatus::LastUsedElsewhere;
        }
        if let Some(fatal) = self.health.and_then(|health| self.fatal(health)) {
            return fatal;
        }
        let for_writing =
            |features: &FeatureStates| features.unsupported(FeatureNeed::Writing).next().is_some();
        if self.features.is_some_and(for_writing) {
            return PoolStatus::UnsupportedFeaturesForWriting;
        }
        if self.damaged_blocks > 0 {
            return PoolStatus::CorruptData;
        }
        self.degraded().unwrap_or_else(|| self.advice())
    }

    /// Why the pool cannot be used.
    fn fatal(self, health: Health) -> Option<PoolStatus> {
        if health.is_usable() {
            return None;
        }
        Some(match health.aux {
            AuxReason::VersionNewer => PoolStatus::VersionNewer,
            AuxReason::UnsupportedFeature => PoolStatus::UnsupportedFeatures,
            AuxReason::BadGuidSum => PoolStatus::GuidSum,
            _ if self.any(is_faulted) => PoolStatus::FaultedNoReplicas,
            _ if self.any(is_missing) => PoolStatus::MissingNoReplicas,
            _ if self.any(is_broken) => PoolStatus::CorruptLabelNoReplicas,
            _ => PoolStatus::CorruptPool,
        })
    }

    fn degraded(self) -> Option<PoolStatus> {
        if self.vdevs.is_some_and(|tree| !tree.missed_leaves().is_empty()) {
            return Some(PoolStatus::MissingNewer);
        }
        let conditions: [(Sign, PoolStatus); 8] = [
            (is_faulted, PoolStatus::Faulted),
            (is_missing, PoolStatus::Missing),
            (is_broken, PoolStatus::CorruptLabel),
            (|vdev| vdev.lacks_data(), PoolStatus::LacksData),
            (is_failing, PoolStatus::Failing),
            (|vdev| vdev.health().state == VdevState::Offline, PoolStatus::Offline),
            (|vdev| vdev.health().state == VdevState::Removed, PoolStatus::Removed),
            (has_larger_sectors, PoolStatus::NonNativeAshift),
        ];
        conditions.into_iter().find(|(applies, _)| self.any(*applies)).map(|(_, status)| status)
    }

    fn advice(self) -> PoolStatus {
        if let Some(erratum) = self.erratum {
            return PoolStatus::Erratum(erratum);
        }
        if self.version < FEATURES_VERSION {
            return PoolStatus::VersionOlder;
        }
        let Some(features) = self.features else { return PoolStatus::Healthy };
        let Ok(wanted) = compatibility::requested(self.compatibility) else {
            return PoolStatus::CompatibilityError;
        };
        let is_disabled = |feature: &&Feature| !features.state(**feature).is_enabled();
        let known = || Feature::ALL.iter().filter(|feature| feature.since() <= Release::V2_3);
        if known().any(|feature| wanted.contains(feature) && is_disabled(&feature)) {
            return PoolStatus::FeaturesDisabled;
        }
        if known().any(|feature| !wanted.contains(feature) && !is_disabled(&feature)) {
            return PoolStatus::IncompatibleFeatures;
        }
        PoolStatus::Healthy
    }

    fn any(self, applies: Sign) -> bool {
        self.vdevs
            .is_some_and(|tree| tree.vdevs().any(|vdev| vdev.kind().is_leaf() && applies(vdev)))
    }
}

/// An observable symptom of a leaf.
type Sign = fn(Vdev<'_>) -> bool;

fn is_faulted(vdev: Vdev<'_>) -> bool {
    vdev.health().state == VdevState::Faulted
}

fn is_missing(vdev: Vdev<'_>) -> bool {
    let health = vdev.health();
    health.state == VdevState::CantOpen && health.aux == AuxReason::OpenFailed
}

fn is_broken(vdev: Vdev<'_>) -> bool {
    vdev.health().state == VdevState::CantOpen
}

fn is_failing(vdev: Vdev<'_>) -> bool {
    let errors = vdev.errors();
    let counted = errors.read.saturating_add(errors.write).saturating_add(errors.checksum);
    vdev.health().state == VdevState::Degraded || counted > 0
}

fn has_larger_sectors(vdev: Vdev<'_>) -> bool {
    let ashift = vdev.top_level().and_then(Vdev::ashift);
    let sector = vdev.device().map(|device| device.geometry().physical_sector);
    ashift.zip(sector).is_some_and(|(ashift, sector)| u64::from(sector) > 1 << ashift)
}
