//! The state of a pool, as `zpool` shows it.

use super::{Health, PoolStatus, PropertyReport, ScanFunction, SweepReport};
use serde::{Deserialize, Serialize};

/// Everything that `zpool list`, `status` and `get` show of a pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// The last synced txg.
    pub txg: u64,
    /// On-disk version: 1 to 28, or 5000.
    pub version: u64,
    /// State of the pool as the labels have it (0 active, 1 exported, 2 destroyed).
    pub label_state: u64,
    /// The most important condition.
    pub status: PoolStatus,
    /// The administrator's note.
    pub comment: Option<String>,
    /// Properties in the order of `zpool get all`, features last.
    pub properties: Vec<PropertyReport>,
    /// The root vdev with everything below it.
    pub root: VdevReport,
    /// Hot spares.
    pub spares: Vec<VdevReport>,
    /// Cache devices.
    pub caches: Vec<VdevReport>,
    /// The last or running scrub or resilver.
    pub scan: Option<ScanReport>,
    /// The last or running removal of a top-level vdev.
    pub removal: Option<RemovalReport>,
    /// The last or running RAID-Z expansion.
    pub expansion: Option<ExpansionReport>,
    /// The checkpoint.
    pub checkpoint: Option<CheckpointReport>,
    /// Dedup tables, if there are any.
    pub dedup: Option<DedupReport>,
    /// Damaged blocks in the pool's error log.
    pub damage: Vec<DamagedFile>,
    /// Bytes that can never be freed because of damage.
    pub leaked: u64,
    /// How loading went; matters for pools that were only looked at.
    pub load: LoadReport,
}

/// The result of loading a pool for import.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Features that are missing here, as `guid (description)`.
    pub unsupported_features: Vec<String>,
    /// It cannot be imported with these options.
    pub refused: bool,
    /// Host that wrote the labels last; 0 when it had no host id.
    pub hostid: u64,
    /// Name of that host.
    pub hostname: String,
    /// Datasets whose intent log was not replayed; its changes are not visible.
    pub pending_intent_logs: u64,
}

/// What a top-level vdev or auxiliary device is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VdevRole {
    /// Ordinary data.
    #[default]
    Normal,
    /// Intent-log blocks.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// A hot spare.
    Spare,
    /// A cache device.
    Cache,
}

impl VdevRole {
    /// The word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Log => "logs",
            Self::Special => "special",
            Self::Dedup => "dedup",
            Self::Spare => "spares",
            Self::Cache => "l2cache",
        }
    }
}

/// A vdev and its children.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct VdevReport {
    /// `type` in the configuration: `root`, `disk`, `file`, `mirror`, `raidz`, `draid`, ...
    pub kind: String,
    /// Index below the parent.
    pub id: u64,
    /// Guid.
    pub guid: u64,
    /// Where the device is, or its name for a distributed spare.
    pub path: Option<String>,
    /// The device is a whole disk that OpenZFS partitioned.
    pub whole_disk: bool,
    /// The device was not found where the configuration expects it.
    pub not_present: bool,
    /// Parity of a `raidz` or `draid`.
    pub parity: u64,
    /// Data columns of a dRAID group.
    pub draid_data: u64,
    /// Children of a dRAID.
    pub draid_children: u64,
    /// Distributed spares of a dRAID.
    pub draid_spares: u64,
    /// What it is for.
    pub role: VdevRole,
    /// Whether it works, and why not.
    pub health: Health,
    /// log2 of the sector size.
    pub ashift: u64,
    /// Counters and sizes.
    pub statistics: VdevStatistics,
    /// Bytes that can be used, with parity.
    pub asize: u64,
    /// The first and the last txg of which a leaf in use lacks data.
    pub lacks: Option<(u64, u64)>,
    /// The initialization of a leaf, if there was one.
    pub initialize: Option<SweepReport>,
    /// The TRIM of a leaf, if there was one.
    pub trim: Option<SweepReport>,
    /// Whether a leaf cannot discard.
    pub keeps_everything: bool,
    /// Children in order.
    pub children: Vec<VdevReport>,
}

/// Sizes in bytes and counters of a vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VdevStatistics {
    /// Allocated.
    pub allocated: u64,
    /// Space that can be allocated.
    pub space: u64,
    /// Space for data, without parity.
    pub deflated_space: u64,
    /// The smallest size of a device that could replace this one.
    pub replaceable_size: u64,
    /// Space by which the vdev could grow.
    pub expandable_size: u64,
    /// Size of the device.
    pub physical_size: u64,
    /// Space that only the checkpoint holds.
    pub checkpoint_space: u64,
    /// Fragmentation in percent; none when unknown.
    pub fragmentation: Option<u64>,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Wrong checksums.
    pub checksum_errors: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Slow requests; none for vdevs without a device.
    pub slow_ios: Option<u64>,
}

/// The state of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanState {
    /// It continues when the pool is imported writable.
    Scanning,
    /// The administrator paused it.
    Paused,
    /// Done.
    Finished,
    /// Canceled.
    Canceled,
}

/// A scrub or resilver; times in seconds since the epoch, amounts in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScanReport {
    /// Its function.
    pub function: ScanFunction,
    /// Its state.
    pub state: ScanState,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// When it was paused.
    pub pause_time: u64,
    /// Amount to examine.
    pub to_examine: u64,
    /// Amount examined.
    pub examined: u64,
    /// Amount skipped.
    pub skipped: u64,
    /// Amount repaired or resilvered.
    pub processed: u64,
    /// Errors that could not be repaired.
    pub errors: u64,
    /// Amount issued.
    pub issued: u64,
}

/// The removal of a top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RemovalReport {
    /// Its state; [`ScanState::Scanning`] is an interrupted evacuation.
    pub state: ScanState,
    /// The vdev.
    pub vdev: u64,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Memory that the mappings of removed devices need, in bytes.
    pub mapping_memory: u64,
}

/// The expansion of a RAID-Z vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExpansionReport {
    /// Its state.
    pub state: ScanState,
    /// The vdev.
    pub vdev: u64,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_reflow: u64,
    /// Bytes copied.
    pub reflowed: u64,
}

/// A pool checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// When it was taken.
    pub start_time: u64,
    /// Bytes that only the checkpoint holds.
    pub space: u64,
    /// It is being discarded.
    pub discarding: bool,
}

/// Dedup tables.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DedupReport {
    /// Entries.
    pub entries: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes in memory.
    pub core_bytes: u64,
    /// One row per power of two of reference counts: allocated blocks, LSIZE, PSIZE, DSIZE, and
    /// the same four as referenced.
    pub histogram: Vec<[u64; 8]>,
}

/// An entry of the error log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DamagedFile {
    /// `POOL/FS:/path`, or the known part of it: `POOL/FS:<0x2>`, `<metadata>:<0x1>`.
    pub name: String,
}
