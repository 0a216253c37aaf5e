//! The options of a live file system: policies of its dataset, a clock and a space budget.

use crate::options::FileSystemOptions;
use crate::sync::Arc;
use rzfs_clock::Clock;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_dsl::live::{SpaceDemand, SpaceRefusal, SpaceUse};
use rzfs_format::dnode::SLOT_SIZE;
use rzfs_format::znode::Timestamp;
use rzfs_format::{BlockPointer, Txg};
use rzfs_tunables::Tunables;
use std::fmt::Debug;

/// Tells the time.
pub trait WallClock: Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

impl WallClock for Clock {
    fn now(&self) -> Timestamp {
        let since = self.since_1970();
        Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        }
    }
}

/// Enforces the space limits of a dataset.
pub trait DatasetSpace: Debug + Send + Sync {
    /// Admits a change of a transaction group before anything is modified.
    ///
    /// # Errors
    /// There is no room for it.
    fn admit(&self, txg: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal>;

    /// Space as `statfs` shows it.
    fn usage(&self) -> SpaceUse;

    /// Bytes used by contents, with all their copies.
    fn with_copies(&self, bytes: u64) -> u64 {
        bytes
    }

    /// How the dataset's blocks are written, if it can share blocks with others; impossible without
    /// a pool.
    fn sharing(&self) -> Option<ObjsetPolicy> {
        None
    }

    /// Whether the pool can count another reference to a block.
    fn can_count(&self, _: &BlockPointer) -> bool {
        true
    }
}

/// A dataset without limits, for tests and tools that account for space in another way.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnboundedSpace;

impl DatasetSpace for UnboundedSpace {
    fn admit(&self, _: Txg, _: SpaceDemand) -> Result<(), SpaceRefusal> {
        Ok(())
    }

    fn usage(&self) -> SpaceUse {
        SpaceUse { referenced: 0, available: i64::MAX as u64 }
    }
}

/// When reads update the access time (properties `atime` and `relatime`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AccessTimes {
    /// Never.
    Off,
    /// When it is not newer than the modification and change times, or a day old.
    #[default]
    Relative,
    /// Always.
    Always,
}

/// Whether files can be changed (property `readonly`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Changes {
    /// They can.
    #[default]
    Allowed,
    /// They cannot, nor can access times.
    Refused,
}

/// Overrides of properties by a mount, while it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Overrides {
    /// Overrides property `readonly`.
    pub changes: Option<Changes>,
    /// Overrides properties `atime` and `relatime`.
    pub access_times: Option<AccessTimes>,
}

/// Where extended attributes are stored (property `xattr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum XattrStore {
    /// In a system attribute, as far as they fit.
    #[default]
    SystemAttribute,
    /// In a directory of files.
    Directory,
}

/// Size of new dnodes (property `dnodesize`), in slots of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DnodeSize(u8);

impl DnodeSize {
    /// 512 bytes: `legacy`.
    pub const LEGACY: Self = Self(1);
    /// 1 KiB: what `auto` means for files.
    pub const AUTO: Self = Self(2);

    /// This many bytes: a power of two from 512 to 16 KiB.
    #[must_use]
    pub fn of_bytes(bytes: u32) -> Option<Self> {
        let is_valid = bytes.is_power_of_two() && (512..=16 << 10).contains(&bytes);
        is_valid.then_some(Self((bytes as usize / SLOT_SIZE) as u8))
    }

    pub(super) const fn slots(self) -> u8 {
        self.0
    }
}

/// When operations are durable (property `sync`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SyncMode {
    /// On request.
    #[default]
    Standard,
    /// Before they return.
    Always,
    /// With their transaction group, regardless of requests.
    Disabled,
}

/// The options of a live file system.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The options shared with read-only ones.
    pub reading: FileSystemOptions,
    /// When reads update access times.
    pub access_times: AccessTimes,
    /// Where extended attributes are stored.
    pub xattr_store: XattrStore,
    /// When operations are durable.
    pub sync_mode: SyncMode,
    /// Size of new dnodes.
    pub dnode_size: DnodeSize,
    /// Whether files can be changed (property `readonly`).
    pub changes: Changes,
    /// Overrides by the mount.
    pub overrides: Overrides,
    /// The clock.
    pub clock: Arc<dyn WallClock>,
    /// The space budget.
    pub space: Arc<dyn DatasetSpace>,
    /// Percentage of a reservation that must be available.
    pub fallocate_reserve_percent: u64,
    /// A random number, from which the salts of new directories are derived.
    pub seed: u64,
}

impl LiveOptions {
    /// The defaults of OpenZFS, with a random number for the salts of new directories.
    #[must_use]
    pub fn new(reading: FileSystemOptions, seed: u64) -> Self {
        Self {
            reading,
            access_times: AccessTimes::default(),
            xattr_store: XattrStore::default(),
            sync_mode: SyncMode::default(),
            dnode_size: DnodeSize::LEGACY,
            changes: Changes::Allowed,
            overrides: Overrides::default(),
            clock: Arc::new(Clock::system()),
            space: Arc::new(UnboundedSpace),
            fallocate_reserve_percent: Tunables::default().zfs_fallocate_reserve_percent,
            seed,
        }
    }

    /// Whether files can be changed.
    pub(super) fn changes(&self) -> Changes {
        self.overrides.changes.unwrap_or(self.changes)
    }

    /// When reads update access times.
    pub(super) fn access_times(&self) -> AccessTimes {
        self.overrides.access_times.unwrap_or(self.access_times)
    }
}
