//! Why a pool cannot be imported.

use crate::mos::error::MosError;
use crate::pool::{PoolError, RewindInfo};
use rzfs_dmu::DmuError;
use rzfs_format::config::LastHost;
use rzfs_format::{FormatError, Guid, Txg};
use rzfs_vdev::{AuxReason, ConfigError, Health, VdevConfig, VdevState};

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;
const EREMOTEIO: i32 = 121;
/// OpenZFS's own error number for a pool without a checkpoint.
const ZFS_ERR_NO_CHECKPOINT: i32 = 1026;

/// A feature that this implementation does not support.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsupportedFeature {
    /// Its guid.
    pub guid: String,
    /// The pool's description of it; may be empty.
    pub description: String,
}

/// Why a pool cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The newest label says that another host has the pool, or used it last and did not export it.
    /// The user may import it anyway.
    #[error("pool was previously in use from another system")]
    LastUsedElsewhere {
        /// The other host.
        host: LastHost,
        /// When the pool was last written, in seconds since 1970.
        timestamp: u64,
    },
    /// Another host is writing to the pool right now.
    #[error("pool is imported on a different host")]
    ActiveElsewhere {
        /// The other host.
        host: LastHost,
    },
    /// The pool has multihost protection, which needs a host id, and this host has none.
    #[error("pool has the multihost property on and this system's hostid is not set")]
    HostIdRequired,
    /// The labels or the MOS do not describe a valid vdev tree.
    #[error("invalid vdev configuration: {0}")]
    VdevTree(#[from] ConfigError),
    /// A configuration is damaged.
    #[error("invalid configuration: {0}")]
    Config(#[source] FormatError),
    /// Top-level vdevs are missing or have too few working devices.
    #[error("one or more devices is currently unavailable{}", missing(devices))]
    MissingDevices {
        /// The names of the missing devices, as far as those that are there know them.
        devices: Vec<String>,
    },
    /// The available devices do not have the data: they were offline when it was written, or it is
    /// damaged there.
    #[error(
        "one or more devices is currently unavailable\n\
         {source}\n\
         Missing devices may have it. Attach them, then import the pool:\n\t{}",
        devices.join("\n\t")
    )]
    MissingNewer {
        /// The names of the missing devices.
        devices: Vec<String>,
        /// What is missing, and why.
        source: Box<Self>,
    },
    /// Log devices are missing; the pool can be imported without them.
    #[error("log devices are missing or corrupted")]
    MissingLogs {
        /// The log vdevs.
        logs: Vec<VdevConfig>,
    },
    /// No device has an uberblock, or none that is old enough.
    #[error("no valid uberblock was found")]
    NoUberblock,
    /// A RAID-Z expansion has progressed past the uberblock, and has overwritten what it needs.
    #[error("txg {txg} is from before the progress of a RAID-Z expansion")]
    BeforeExpansion {
        /// The uberblock's txg.
        txg: Txg,
    },
    /// The pool's version is unknown.
    #[error("pool is formatted using an unsupported ZFS version ({version})")]
    UnsupportedVersion {
        /// The version.
        version: u64,
    },
    /// No label of the uberblock's device says which features the MOS needs.
    #[error("the label lacks the list of features")]
    NoLabelFeatures,
    /// The pool uses features that this implementation does not support.
    #[error("unsupported version or feature")]
    UnsupportedFeatures {
        /// The features.
        features: Vec<UnsupportedFeature>,
    },
    /// The sum of the guids of all vdevs differs from that of the uberblock: a vdev is missing in
    /// the configuration.
    #[error("the vdevs are not those of the uberblock: their guid sum is {found}, not {expected}")]
    GuidSum {
        /// The uberblock's sum.
        expected: u64,
        /// The configuration's.
        found: u64,
    },
    /// The configuration in the MOS belongs to another pool.
    #[error("the MOS is that of pool {found}")]
    ForeignPool {
        /// Guid in the MOS.
        found: Guid,
    },
    /// The pool has no checkpoint.
    #[error("checkpoint does not exist")]
    NoCheckpoint,
    /// The meta object set cannot be read.
    #[error("I/O error: {0}")]
    Mos(#[from] DmuError),
    /// An object that every pool has is missing or damaged.
    #[error("I/O error: {0}")]
    Pool(#[from] PoolError),
    /// Metadata of the last transaction groups is damaged.
    #[error("I/O error: {metadata} metadata and {data} data blocks of recent txgs are damaged")]
    Damaged {
        /// Damaged blocks of metadata.
        metadata: u64,
        /// Damaged blocks of data.
        data: u64,
        /// Damaged blocks of metadata that may be on failing or missing devices.
        on_missing: u64,
    },
    /// A wait was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// The next step, where the names of missing devices are known.
fn missing(devices: &[String]) -> String {
    match devices {
        [] => String::new(),
        devices => {
            let names = devices.join("\n\t");
            format!("\nAttach those that are missing, then import the pool:\n\t{names}")
        }
    }
}

impl From<MosError> for ImportError {
    fn from(error: MosError) -> Self {
        Self::Pool(error.into())
    }
}

impl ImportError {
    /// The errno that OpenZFS gives to its tools.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::LastUsedElsewhere { .. } => EINVAL,
            Self::ActiveElsewhere { .. } | Self::HostIdRequired => EREMOTEIO,
            Self::VdevTree(_) | Self::Config(_) => EINVAL,
            Self::MissingDevices { .. }
            | Self::MissingNewer { .. }
            | Self::MissingLogs { .. }
            | Self::NoUberblock
            | Self::BeforeExpansion { .. }
            | Self::NoLabelFeatures
            | Self::GuidSum { .. }
            | Self::ForeignPool { .. } => ENXIO,
            Self::UnsupportedVersion { .. } | Self::UnsupportedFeatures { .. } => ENOTSUP,
            Self::NoCheckpoint => ZFS_ERR_NO_CHECKPOINT,
            Self::Mos(_) | Self::Pool(_) | Self::Damaged { .. } => EIO,
            Self::Interrupted => EINTR,
        }
    }

    /// The resulting state of the pool as a whole; `None` when the vdevs determine it.
    #[must_use]
    pub fn health(&self) -> Option<Health> {
        let aux = match self {
            Self::UnsupportedVersion { .. } => AuxReason::VersionNewer,
            Self::UnsupportedFeatures { .. } => AuxReason::UnsupportedFeature,
            Self::GuidSum { .. } => AuxReason::BadGuidSum,
            Self::NoUberblock
            | Self::BeforeExpansion { .. }
            | Self::NoLabelFeatures
            | Self::ForeignPool { .. }
            | Self::Config(_)
            | Self::Mos(_)
            | Self::Pool(_)
            | Self::Damaged { .. } => AuxReason::CorruptData,
            Self::LastUsedElsewhere { .. }
            | Self::ActiveElsewhere { .. }
            | Self::HostIdRequired
            | Self::VdevTree(_)
            | Self::MissingDevices { .. }
            | Self::MissingNewer { .. }
            | Self::MissingLogs { .. }
            | Self::NoCheckpoint
            | Self::Interrupted => return None,
        };
        Some(Health { state: VdevState::CantOpen, aux })
    }

    /// Whether failing or missing devices may have the unreadable data.
    pub(super) fn may_come_back(&self) -> bool {
        match self {
            Self::Mos(error) | Self::Pool(PoolError::Mos(MosError::Dmu(error))) => {
                error.may_come_back()
            }
            Self::Damaged { on_missing, .. } => *on_missing > 0,
            _ => false,
        }
    }

    /// Whether an older uberblock could help.
    pub(super) fn is_worth_rewinding(&self) -> bool {
        !matches!(
            self,
            Self::NoCheckpoint
                | Self::LastUsedElsewhere { .. }
                | Self::ActiveElsewhere { .. }
                | Self::HostIdRequired
                | Self::Interrupted
        )
    }
}

/// A pool that could not be imported.
#[derive(Debug, thiserror::Error)]
#[error("cannot import '{name}': {error}")]
pub struct ImportFailure {
    /// The pool's name.
    pub name: String,
    /// Why.
    #[source]
    pub error: Box<ImportError>,
    /// The older state to which a rewind would bring the pool, if there is one.
    pub recovery: Option<RewindInfo>,
}

impl ImportFailure {
    /// The errno that OpenZFS gives to its tools.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.error.errno()
    }
}

/// Why no pool was chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectError {
    /// No pool has this name or guid.
    #[error("cannot import '{name}': no such pool available")]
    NotFound {
        /// The requested name.
        name: String,
    },
    /// Several pools have the name; only the guid distinguishes them.
    #[error("cannot import '{name}': more than one matching pool")]
    Ambiguous {
        /// The requested name.
        name: String,
        /// Their guids.
        guids: Vec<Guid>,
    },
}

impl SelectError {
    /// The corresponding errno.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NotFound { .. } => ENOENT,
            Self::Ambiguous { .. } => EINVAL,
        }
    }
}
