//! The snapshots of a dataset for its control tree.

use crate::control::{SnapshotEntry, SnapshotSource};
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::options::{FileCaches, FileSystemOptions};
use crate::read_ahead::ReadAhead;
use crate::sync::Arc;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_format::znode::Timestamp;
use rzfs_format::{ObjectId, ObjsetId};

/// The snapshots of a dataset.
#[derive(Clone, Debug)]
pub struct DatasetSnapshots {
    head: Dataset,
    pool_version: u64,
    read_ahead: Option<Arc<ReadAhead>>,
    caches: FileCaches,
}

impl DatasetSnapshots {
    /// The snapshots of head dataset `head`, in a pool of version `pool_version`; their file
    /// systems prefetch with `read_ahead` and share `caches`.
    #[must_use]
    pub const fn new(
        head: Dataset,
        pool_version: u64,
        read_ahead: Option<Arc<ReadAhead>>,
        caches: FileCaches,
    ) -> Self {
        Self { head, pool_version, read_ahead, caches }
    }

    fn entry(snapshot: &Dataset) -> SnapshotEntry {
        let name = snapshot.name().split_once('@').map_or("", |(_, name)| name);
        SnapshotEntry {
            name: name.as_bytes().to_vec(),
            objset: ObjsetId(snapshot.object().0),
            created: Timestamp {
                seconds: i64::try_from(snapshot.dsl_dataset().creation_time).unwrap_or(0),
                nanoseconds: 0,
            },
        }
    }
}

impl SnapshotSource for DatasetSnapshots {
    fn snapshots(&self) -> Result<Vec<SnapshotEntry>, ZplError> {
        Ok(self.head.snapshots()?.iter().map(Self::entry).collect())
    }

    fn find(&self, name: &[u8]) -> Result<Option<SnapshotEntry>, ZplError> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        Ok(self.head.snapshot(name)?.as_ref().map(Self::entry))
    }

    fn open(&self, objset: ObjsetId) -> Result<FileSystem, ZplError> {
        let mut snapshots = self.head.snapshots()?.into_iter();
        let snapshot = snapshots
            .find(|snapshot| snapshot.object() == ObjectId(objset.0))
            .ok_or(ZplError::NoSnapshot { objset: ObjsetId(self.head.object().0) })?;
        let mut options = FileSystemOptions::of_dataset(&snapshot, self.pool_version)?;
        options.read_ahead.clone_from(&self.read_ahead);
        options.caches = self.caches.clone();
        FileSystem::open(snapshot.open_objset()?, options)
    }

    fn changed(&self) -> Result<Timestamp, ZplError> {
        let seconds =
            i64::try_from(self.head.number(DatasetProperty::SnapshotsChanged)?).unwrap_or(0);
        // On disk there are whole seconds, but two changes in one second have to be told apart: by
        // this time the kernel knows whether its listing is still right.
        let txg = self.head.snapshot_names_changed()?;
        let nanoseconds = (txg.get() % 1_000_000_000) as u32;
        Ok(Timestamp { seconds, nanoseconds })
    }
}
