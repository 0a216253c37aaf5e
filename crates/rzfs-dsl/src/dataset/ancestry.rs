//! The snapshots a dataset descends from.

use super::{Dataset, DatasetError};
use rzfs_format::dsl::DslDataset;
use rzfs_format::{FormatError, ObjectId};

impl Dataset {
    /// Whether a snapshot is an earlier state of this dataset or of its chain of origins.
    ///
    /// # Errors
    /// A snapshot in between cannot be read.
    pub fn descends_from(&self, snapshot: &Self) -> Result<bool, DatasetError> {
        let since = snapshot.dataset.creation_txg;
        for earlier in self.earlier_snapshots() {
            let (object, dataset) = earlier?;
            if object == snapshot.object || dataset.creation_txg <= since {
                return Ok(object == snapshot.object);
            }
        }
        Ok(false)
    }

    /// The snapshots before it, newest first, with their object numbers; the first one of a clone
    /// is followed by its origin. The last is that of `$ORIGIN`, where the pool has one.
    pub fn earlier_snapshots(
        &self,
    ) -> impl Iterator<Item = Result<(ObjectId, DslDataset), DatasetError>> + '_ {
        let mut next = self.dataset.previous_snapshot;
        let mut limit = self.dataset.previous_snapshot_txg;
        std::iter::from_fn(move || {
            let object = next.take()?;
            let dataset = match self.tree.dataset_object(object) {
                Ok((_, dataset)) => dataset,
                Err(error) => return Some(Err(error)),
            };
            if dataset.creation_txg > limit || dataset.previous_snapshot_txg >= dataset.creation_txg
            {
                let problem = FormatError::invalid("DSL dataset", "snapshots are not in order");
                return Some(Err(self.tree.corrupt(object, problem)));
            }
            (next, limit) = (dataset.previous_snapshot, dataset.previous_snapshot_txg);
            Some(Ok((object, dataset)))
        })
    }
}
