//! The snapshots of a file system in a live pool.

use rzfs::WritablePool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_dsl::live::{Destruction, NewSnapshots};
use rzfs_format::znode::Timestamp;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{
    ControlNode, DatasetSnapshots, FileCaches, FileSystem, Place, SnapshotChange, SnapshotEntry,
    SnapshotSource, ZplError,
};
use std::sync::Weak;

/// The snapshots of a head, looked up in the current state of the pool.
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

    const fn objset(&self) -> ObjsetId {
        ObjsetId(self.head.0)
    }

    fn now(&self) -> Result<DatasetSnapshots, Box<ZplError>> {
        let gone = || ZplError::NoSnapshot { objset: self.objset() };
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

    fn change(&self, change: SnapshotChange<'_>, uid: u32) -> Result<(), ZplError> {
        let gone = || ZplError::NoSnapshot { objset: self.objset() };
        let pool = self.pool.upgrade().ok_or_else(gone)?;
        let live = pool.live();
        if !live.tunables().zfs_admin_snapshot {
            return Err(ZplError::SnapshotsFixed);
        }
        // Root, and the pool's owner, could ask its process for the same.
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            let place = Place { objset: self.objset(), object: ControlNode::Snapshots.inode() };
            return Err(ZplError::NotPermitted { place });
        }
        let head = live.dataset_tree()?.by_object(self.head)?;
        // A name that is not UTF-8 is not a valid snapshot name.
        let full = |name: &[u8]| format!("{}@{}", head.name(), String::from_utf8_lossy(name));
        match change {
            SnapshotChange::Take { name } => {
                let names = vec![full(name)];
                live.take_snapshots(&NewSnapshots { names, ..NewSnapshots::default() })
            }
            SnapshotChange::Rename { from, to } => {
                live.rename_snapshots(&[full(from)], &String::from_utf8_lossy(to))
            }
            SnapshotChange::Destroy { name } => {
                live.destroy_snapshots(&[full(name)], Destruction::AtOnce)
            }
        }
        .map_err(|error| ZplError::Snapshots(Box::new(error)))
    }
}
