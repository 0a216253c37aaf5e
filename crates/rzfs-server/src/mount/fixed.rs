//! The file systems of a read-only pool, for statistics.

use crate::protocol::ObjsetName;
use rzfs_dsl::dataset::{Dataset, ObjsetStats};
use rzfs_zpl::FileSystem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// File systems of a read-only pool, as long as they are in use.
#[derive(Debug, Default)]
pub(super) struct ReadOnlyFileSystems(Mutex<Known>);

type Known = Vec<(ObjsetName, Weak<FileSystem>)>;

impl ReadOnlyFileSystems {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, dataset: &Dataset, files: &Arc<FileSystem>) {
        let name = ObjsetName { id: dataset.object().get(), name: dataset.name().to_owned() };
        let mut all = self.known();
        all.retain(|(_, files)| files.strong_count() > 0);
        all.push((name, Arc::downgrade(files)));
    }

    /// Their counters.
    pub(super) fn stats(&self) -> Vec<(ObjsetName, ObjsetStats)> {
        let stats = |(name, files): &(ObjsetName, Weak<FileSystem>)| {
            Some((name.clone(), files.upgrade()?.stats()))
        };
        self.known().iter().filter_map(stats).collect()
    }
}
