//! What is to be said about a pool: the condition that `zpool status` and the list of importable
//! pools report.

use super::compatibility;
use super::erratum::Erratum;
use super::properties::FailMode;
use super::scan::{ScanFunction, ScanState, ScanStatus};
use crate::mos::features::{FeatureNeed, FeatureStates};
use rzfs_format::features::{Feature, Release};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_vdev::{AuxReason, Health, Vdev, VdevState, VdevTree};
use serde::{Deserialize, Serialize};

/// The one condition of a pool that matters most. Worse ones come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolStatus {
    /// Devices fail that the pool cannot do without; writers wait.
    IoFailureWait,
    /// Devices fail that the pool cannot do without; writers get errors.
    IoFailureContinue,
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
    /// Devices were taken offline.
    Offline,
    /// Devices were taken out.
    Removed,
    /// Devices have larger sectors than the pool assumes.
    NonNativeAshift,
    /// An on-disk incompatibility of old software.
    Erratum(Erratum),
    /// The version has no feature flags.
    VersionOlder,
    /// The files that the property `compatibility` names cannot be read.
    CompatibilityError,
    /// Features are enabled that the property `compatibility` excludes.
    IncompatibleFeatures,
    /// Features could be enabled.
    FeaturesDisabled,
    /// Nothing is to be said.
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

    /// Whether it is about the format of the pool: its version, its features, what old software
    /// left in it.
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

    /// The last part of the address of OpenZFS's page about this condition; `None` without one.
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

/// What a pool's condition is told from. What is not known is left out.
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

/// Something that can be seen of a leaf.
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
