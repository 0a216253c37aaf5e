//! A file system on a dataset of a running pool: within its space, and as its properties say.

use super::file_system::LiveFileSystem;
use super::options::{
    AccessTimes, Changes, DatasetSpace, DnodeSize, LiveOptions, SpaceDemand, SpaceRefusal,
    SyncMode, XattrStore,
};
use crate::error::ZplError;
use crate::options::{AclType, MAX_LONG_NAME, MAX_NAME, SnapshotDirectory, SpaceUse, XattrUse};
use crate::sync::Arc;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_dsl::live::{
    DatasetSettings, HeadBudget, HeadSpace, LiveDataset, LivePool, SettingsObserver, SpaceClaim,
    SpaceShortage,
};
use rzfs_format::{BlockPointer, Txg};
use std::sync::Weak;

impl DatasetSpace for HeadBudget {
    fn admit(&self, txg: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal> {
        let claim = match demand {
            SpaceDemand::Takes(bytes) => SpaceClaim::Takes(bytes),
            SpaceDemand::Shares { shared, written } => SpaceClaim::Shares { shared, written },
            SpaceDemand::Frees(bytes) => SpaceClaim::Frees(bytes),
        };
        HeadBudget::admit(self, txg, claim).map_err(|shortage| match shortage {
            SpaceShortage::NoSpace => SpaceRefusal::NoSpace,
            SpaceShortage::Quota => SpaceRefusal::Quota,
            SpaceShortage::Later => SpaceRefusal::Later,
        })
    }

    fn usage(&self) -> SpaceUse {
        let HeadSpace { referenced, available } = self.space();
        SpaceUse { referenced, available }
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
    /// Opens the file system of a head. It keeps within the space of the dataset and of the pool,
    /// and behaves as the dataset's properties say from then on; `options` tell the rest. What its
    /// intent log has is replayed first.
    ///
    /// # Errors
    /// As [`LiveFileSystem::open`].
    pub fn open_dataset(
        pool: &LivePool,
        dataset: &Arc<LiveDataset>,
        options: LiveOptions,
    ) -> Result<Arc<Self>, ZplError> {
        let options = LiveOptions { space: Arc::new(pool.budget(dataset)), ..options };
        let engine = Arc::clone(pool.engine());
        let this = Self::open(dataset.objset().clone(), engine, options)?;
        this.settings_changed(&dataset.settings());
        this.replay_log(dataset, pool.missing_logs())?;
        this.attach_log(pool.intent_log(dataset));
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
            // What was done before has no records.
            self.distrust_log(self.engine.open_txg());
        }
    }
}

/// Does as properties say.
fn follow(options: &mut LiveOptions, settings: &DatasetSettings) {
    let number = |name| settings.number(name);
    if let Some(readonly) = number("readonly") {
        options.changes = if readonly == 0 { Changes::Allowed } else { Changes::Refused };
    }
    if let (Some(atime), Some(relatime)) = (number("atime"), number("relatime")) {
        options.access_times = match (atime, relatime) {
            (0, _) => AccessTimes::Off,
            (_, 0) => AccessTimes::Always,
            _ => AccessTimes::Relative,
        };
    }
    if let Some(xattr) = number("xattr") {
        options.reading.xattrs = if xattr == 0 { XattrUse::Off } else { XattrUse::On };
        options.xattr_store =
            if xattr == 1 { XattrStore::Directory } else { XattrStore::SystemAttribute };
    }
    if let Some(sync) = number("sync") {
        options.sync_mode = match sync {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        };
    }
    if let Some(size) = number("dnodesize") {
        options.dnode_size = match u32::try_from(size) {
            Ok(0) => DnodeSize::LEGACY,
            Ok(size) => DnodeSize::of_bytes(size).unwrap_or(DnodeSize::AUTO),
            Err(_) => DnodeSize::AUTO,
        };
    }
    if let Some(size) = number("recordsize").and_then(|size| u32::try_from(size).ok())
        && size.is_power_of_two()
        && (512..=16 << 20).contains(&size)
    {
        options.reading.record_size = size;
    }
    if let Some(acl) = number("acltype") {
        options.reading.acl_type = match acl {
            1 => AclType::Posix,
            2 => AclType::Nfsv4,
            _ => AclType::Off,
        };
    }
    if let Some(longname) = number("longname") {
        options.reading.max_name = if longname == 0 { MAX_NAME } else { MAX_LONG_NAME };
    }
    if let Some(snapdir) = number("snapdir") {
        options.reading.snapshot_directory = match snapdir {
            1 => SnapshotDirectory::Visible,
            2 => SnapshotDirectory::Absent,
            _ => SnapshotDirectory::Hidden,
        };
    }
}
