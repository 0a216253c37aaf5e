//! The snapshots of a file system in a pool that changes.

use rzfs::WritablePool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_format::znode::Timestamp;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{DatasetSnapshots, FileCaches, FileSystem, SnapshotEntry, SnapshotSource, ZplError};
use std::sync::Weak;

/// The snapshots of a head, looked up in the pool as it is at the time.
#[derive(Debug)]
pub(super) struct LiveSnapshots {
    pool: Weak<WritablePool>,
    /// The head's object: its name may change.
    head: ObjectId,
    pool_version: u64,
    caches: FileCaches,
}

impl LiveSnapshots {
    pub(super) fn new(
        pool: Weak<WritablePool>,
        head: &Dataset,
        pool_version: u64,
        caches: FileCaches,
    ) -> Self {
        Self { pool, head: head.object(), pool_version, caches }
    }

    fn now(&self) -> Result<DatasetSnapshots, Box<ZplError>> {
        let gone = || ZplError::NoSnapshot { objset: ObjsetId(self.head.get()) };
        let pool = self.pool.upgrade().ok_or_else(gone)?;
        let unreadable = |error: DatasetError| Box::new(ZplError::from(error));
        let datasets = pool.live().dataset_tree().map_err(unreadable)?;
        let head = datasets.by_object(self.head).map_err(unreadable)?;
        let (read_ahead, caches) = (pool.read_ahead().cloned(), self.caches.clone());
        Ok(DatasetSnapshots::new(head, self.pool_version, read_ahead, caches))
    }
}

impl SnapshotSource for LiveSnapshots {
    fn snapshots(&self) -> Result<Vec<SnapshotEntry>, ZplError> {
        self.now().map_err(|error| *error)?.snapshots()
    }

    fn find(&self, name: &[u8]) -> Result<Option<SnapshotEntry>, ZplError> {
        self.now().map_err(|error| *error)?.find(name)
    }

    fn open(&self, objset: ObjsetId) -> Result<FileSystem, ZplError> {
        self.now().map_err(|error| *error)?.open(objset)
    }

    fn changed(&self) -> Result<Timestamp, ZplError> {
        self.now().map_err(|error| *error)?.changed()
    }
}
