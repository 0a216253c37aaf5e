//! The options of a file system: properties of its dataset that affect it, and budgets.

use crate::ZplError;
use crate::cache::SharedCache;
use crate::node::Node;
use crate::read_ahead::ReadAhead;
use crate::sync::{Arc, Mutex};
use rzfs_cache::PrefetchStreams;
use rzfs_dmu::Object;
use rzfs_dmu::live::LiveObject;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{Dataset, ObjsetCounters};
use rzfs_dsl::live::SpaceUse;
use rzfs_format::ObjsetId;
use rzfs_zap::Zap;

/// Maximum length of a name in bytes.
pub(crate) const MAX_NAME: usize = 255;
/// Maximum length of a name in bytes with the property `longname`.
pub(crate) const MAX_LONG_NAME: usize = 1023;
/// Default of the property `recordsize`.
const DEFAULT_RECORD_SIZE: u32 = 128 << 10;

/// The visibility of `.zfs` in the root directory (property `snapdir`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SnapshotDirectory {
    /// It can be looked up but is not listed.
    #[default]
    Hidden,
    /// It is listed.
    Visible,
    /// It does not exist, in snapshots either.
    Absent,
}

/// The access control lists visible to users (property `acltype`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AclType {
    /// None: mode bits only.
    #[default]
    Off,
    /// POSIX lists, as extended attributes.
    Posix,
    /// NFSv4 lists; on Linux the same as off.
    Nfsv4,
}

/// Whether users have extended attributes (property `xattr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum XattrUse {
    /// All namespaces.
    #[default]
    On,
    /// All but that of users.
    Off,
}

/// Memory limits of caches in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheBudget {
    /// Attributes of files.
    pub nodes: usize,
    /// Open directories: indexes of microzaps, headers of fat ZAPs.
    pub directories: usize,
    /// Those of live file systems.
    pub live_directories: usize,
    /// Read streams of files, for prefetching.
    pub streams: usize,
}

impl Default for CacheBudget {
    fn default() -> Self {
        Self {
            nodes: 16 << 20,
            directories: 16 << 20,
            live_directories: 48 << 20,
            streams: 1 << 20,
        }
    }
}

/// Cached state of recently used files, with one budget for any number of file systems; clones
/// share the caches.
#[derive(Clone, Debug)]
pub struct FileCaches {
    pub(crate) nodes: Arc<SharedCache<Arc<Node>>>,
    pub(crate) directories: Arc<SharedCache<Arc<Zap<Object>>>>,
    pub(crate) live_directories: Arc<SharedCache<Arc<Zap<LiveObject>>>>,
    pub(crate) streams: Arc<SharedCache<Arc<Mutex<PrefetchStreams>>>>,
}

impl FileCaches {
    /// Empty caches.
    #[must_use]
    pub fn new(budget: CacheBudget) -> Self {
        Self {
            nodes: SharedCache::new(budget.nodes),
            directories: SharedCache::new(budget.directories),
            live_directories: SharedCache::new(budget.live_directories),
            streams: SharedCache::new(budget.streams),
        }
    }
}

impl Default for FileCaches {
    fn default() -> Self {
        Self::new(CacheBudget::default())
    }
}

/// The options of a file system.
#[derive(Clone, Debug)]
pub struct FileSystemOptions {
    /// The pool's version, which bounds that of the file system.
    pub pool_version: u64,
    /// Property `recordsize`, in bytes.
    pub record_size: u32,
    /// Property `snapdir`.
    pub snapshot_directory: SnapshotDirectory,
    /// Property `acltype`.
    pub acl_type: AclType,
    /// Property `xattr`.
    pub xattrs: XattrUse,
    /// Maximum length of a name in bytes: 255, or 1023 with `longname`.
    pub max_name: usize,
    /// Space.
    pub space: SpaceUse,
    /// The counters of the dataset.
    pub counters: Arc<ObjsetCounters>,
    /// Caches, which should be shared by all file systems of a pool.
    pub caches: FileCaches,
    /// The prefetcher; `None` = no prefetching.
    pub read_ahead: Option<Arc<ReadAhead>>,
    /// The head of a snapshot; `None` for other datasets.
    pub snapshot_of: Option<ObjsetId>,
}

impl Default for FileSystemOptions {
    fn default() -> Self {
        Self {
            pool_version: 5000,
            record_size: DEFAULT_RECORD_SIZE,
            snapshot_directory: SnapshotDirectory::default(),
            acl_type: AclType::default(),
            xattrs: XattrUse::default(),
            max_name: MAX_NAME,
            space: SpaceUse::default(),
            counters: Arc::default(),
            caches: FileCaches::default(),
            read_ahead: None,
            snapshot_of: None,
        }
    }
}

impl FileSystemOptions {
    /// The options given by a dataset's properties, in a pool of this version.
    ///
    /// # Errors
    /// A property cannot be read.
    pub fn of_dataset(dataset: &Dataset, pool_version: u64) -> Result<Self, ZplError> {
        // A snapshot inherits the properties of its head.
        let head = dataset.head()?;
        let defaults = Self::default();
        let record_size = u32::try_from(head.number(DatasetProperty::RecordSize)?).unwrap_or(0);
        Ok(Self {
            pool_version,
            record_size: if record_size == 0 { defaults.record_size } else { record_size },
            snapshot_directory: if dataset.is_snapshot() {
                SnapshotDirectory::Absent
            } else {
                match &*head.text(DatasetProperty::SnapDir)? {
                    "visible" => SnapshotDirectory::Visible,
                    "disabled" => SnapshotDirectory::Absent,
                    _ => SnapshotDirectory::Hidden,
                }
            },
            acl_type: match &*head.text(DatasetProperty::AclType)? {
                "posix" | "posixacl" => AclType::Posix,
                "nfsv4" => AclType::Nfsv4,
                _ => AclType::Off,
            },
            xattrs: match &*head.text(DatasetProperty::Xattr)? {
                "off" => XattrUse::Off,
                _ => XattrUse::On,
            },
            max_name: match &*head.text(DatasetProperty::LongName)? {
                "on" => MAX_LONG_NAME,
                _ => MAX_NAME,
            },
            space: SpaceUse {
                referenced: dataset.number(DatasetProperty::Referenced)?,
                available: head.number(DatasetProperty::Available)?,
            },
            snapshot_of: dataset.is_snapshot().then(|| ObjsetId(head.object().0)),
            ..defaults
        })
    }
}
