//! A file system on a dataset of a live pool: with its space limits and properties.

use super::file_system::LiveFileSystem;
use super::options::{
    AccessTimes, Changes, DatasetSpace, DnodeSize, LiveOptions, SyncMode, XattrStore,
};
use crate::error::ZplError;
use crate::options::{AclType, MAX_LONG_NAME, MAX_NAME, SnapshotDirectory, XattrUse};
use crate::sync::Arc;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::live::{
    DatasetSettings, HeadBudget, LiveDataset, LivePool, SettingsObserver, SpaceDemand,
    SpaceRefusal, SpaceUse,
};
use rzfs_format::{BlockPointer, Txg};
use std::sync::Weak;

impl DatasetSpace for HeadBudget {
    fn admit(&self, txg: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal> {
        HeadBudget::admit(self, txg, demand)
    }

    fn usage(&self) -> SpaceUse {
        self.space()
    }

    fn with_copies(&self, bytes: u64) -> u64 {
        HeadBudget::with_copies(self, bytes)
    }

    fn sharing(&self) -> Option<ObjsetPolicy> {
        self.sharing_policy()
    }

    fn can_count(&self, pointer: &BlockPointer) -> bool {
        HeadBudget::can_count(self, pointer)
    }
}

impl LiveFileSystem {
    /// Opens the file system of a head. It respects the space limits of the dataset and the pool,
    /// and follows the dataset's properties; `options` has the rest. Its intent log is replayed
    /// first.
    ///
    /// # Errors
    /// As [`LiveFileSystem::open`].
    pub fn open_dataset(
        pool: &LivePool,
        dataset: &Arc<LiveDataset>,
        options: LiveOptions,
    ) -> Result<Arc<Self>, ZplError> {
        let mut options = LiveOptions {
            space: Arc::new(pool.budget(dataset)),
            fallocate_reserve_percent: pool.tunables().zfs_fallocate_reserve_percent,
            ..options
        };
        options.reading.counters = Arc::clone(dataset.counters());
        let engine = Arc::clone(pool.engine());
        let contents = dataset.generation();
        let this = Self::open(contents.objset().clone(), engine, options)?;
        this.settings_changed(&dataset.settings());
        this.replay_log(pool, (&dataset.name(), &contents))?;
        this.attach_log(pool.intent_log(dataset, &contents));
        let observer: Weak<Self> = Arc::downgrade(&this);
        dataset.observe(observer);
        this.settings_changed(&dataset.settings());
        Ok(this)
    }
}

impl SettingsObserver for LiveFileSystem {
    fn settings_changed(&self, settings: &DatasetSettings) {
        let before = self.options().sync_mode;
        self.change_options(|options| follow(options, settings));
        if before == SyncMode::Disabled {
            // Earlier changes have no records.
            self.mark_unlogged_until(self.engine.open_txg());
        }
    }
}

/// Applies properties to the options.
fn follow(options: &mut LiveOptions, settings: &DatasetSettings) {
    let number = |property| settings.number(property);
    if let Some(readonly) = number(DatasetProperty::ReadOnly) {
        options.changes = if readonly == 0 { Changes::Allowed } else { Changes::Refused };
    }
    if let (Some(atime), Some(relatime)) =
        (number(DatasetProperty::Atime), number(DatasetProperty::Relatime))
    {
        options.access_times = match (atime, relatime) {
            (0, _) => AccessTimes::Off,
            (_, 0) => AccessTimes::Always,
            _ => AccessTimes::Relative,
        };
    }
    if let Some(xattr) = number(DatasetProperty::Xattr) {
        options.reading.xattrs = if xattr == 0 { XattrUse::Off } else { XattrUse::On };
        options.xattr_store =
            if xattr == 1 { XattrStore::Directory } else { XattrStore::SystemAttribute };
    }
    if let Some(sync) = number(DatasetProperty::Sync) {
        options.sync_mode = match sync {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        };
    }
    if let Some(size) = number(DatasetProperty::DnodeSize) {
        options.dnode_size = match u32::try_from(size) {
            Ok(0) => DnodeSize::LEGACY,
            Ok(size) => DnodeSize::of_bytes(size).unwrap_or(DnodeSize::AUTO),
            Err(_) => DnodeSize::AUTO,
        };
    }
    if let Some(size) =
        number(DatasetProperty::RecordSize).and_then(|size| u32::try_from(size).ok())
        && DatasetProperty::RecordSize.values().check(size.into()).is_ok()
    {
        options.reading.record_size = size;
    }
    if let Some(acl) = number(DatasetProperty::AclType) {
        options.reading.acl_type = match acl {
            1 => AclType::Posix,
            2 => AclType::Nfsv4,
            _ => AclType::Off,
        };
    }
    if let Some(longname) = number(DatasetProperty::LongName) {
        options.reading.max_name = if longname == 0 { MAX_NAME } else { MAX_LONG_NAME };
    }
    if let Some(snapdir) = number(DatasetProperty::SnapDir) {
        options.reading.snapshot_directory = match snapdir {
            1 => SnapshotDirectory::Visible,
            2 => SnapshotDirectory::Absent,
            _ => SnapshotDirectory::Hidden,
        };
    }
}
