//! The heads of a pool that are open for changes.
//!
//! A head is open as long as somebody has it or something of it is dirty. Opening reads the last
//! durable uberblock; that is right only for heads that are not open, so both are done under one
//! lock.

use crate::dataset::{DatasetError, DatasetTree};
use crate::live::LiveDataset;
use crate::live::pool::Inner;
use crate::live::space::ledger::Ledger;
use rzfs_format::{ObjectId, Txg};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The heads that are open.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    open: BTreeMap<ObjectId, Arc<LiveDataset>>,
    /// Destroyed in the txg that is being synced: on disk they exist still.
    destroyed: BTreeSet<ObjectId>,
}

impl Heads {
    pub(crate) fn insert(&mut self, dataset: LiveDataset) -> Arc<LiveDataset> {
        let dataset = Arc::new(dataset);
        self.open.insert(dataset.id(), Arc::clone(&dataset));
        dataset
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<&Arc<LiveDataset>> {
        self.open.get(&id)
    }

    pub(crate) fn all(&self) -> Vec<Arc<LiveDataset>> {
        self.open.values().cloned().collect()
    }

    pub(crate) fn is_destroyed(&self, id: ObjectId) -> bool {
        self.destroyed.contains(&id)
    }

    /// Closes the heads that nobody has and of which nothing is dirty.
    fn close_unused(&mut self, synced: Txg, ledger: &mut Ledger) {
        self.open.retain(|id, dataset| {
            let is_idle = dataset.objset().is_clean() && dataset.log().is_idle(synced);
            let stays = is_used(dataset) || !is_idle;
            if !stays {
                ledger.close_head(*id);
            }
            stays
        });
    }
}

fn is_used(dataset: &Arc<LiveDataset>) -> bool {
    Arc::strong_count(dataset) > 1 || dataset.objset().is_shared()
}

impl Inner {
    pub(crate) fn add_dataset(&self, dataset: LiveDataset) -> Arc<LiveDataset> {
        self.heads.lock().insert(dataset)
    }

    pub(crate) fn datasets(&self) -> Vec<Arc<LiveDataset>> {
        self.heads.lock().all()
    }

    /// Whether the intent log of a head has blocks that the txg being synced cannot free, or
    /// records.
    pub(crate) fn has_busy_log(&self, id: ObjectId, txg: Txg) -> bool {
        self.heads.lock().get(id).is_some_and(|dataset| !dataset.log().is_idle(txg))
    }

    /// Takes a head away that is to be destroyed, unless somebody has it.
    pub(crate) fn retire_dataset(&self, id: ObjectId) -> bool {
        let mut heads = self.heads.lock();
        if heads.get(id).is_some_and(is_used) {
            return false;
        }
        heads.open.remove(&id);
        heads.destroyed.insert(id)
    }

    /// Drops what logs have of a txg, which is on disk now, and has open heads follow what it has
    /// changed about the datasets with these names and those below them.
    pub(crate) fn settle_datasets(&self, txg: Txg, changed: &[String]) {
        let open = {
            let mut heads = self.heads.lock();
            heads.destroyed.clear();
            heads.open.values().for_each(|dataset| dataset.log().settle(txg));
            heads.close_unused(txg, &mut self.ledger.lock());
            if changed.is_empty() {
                return;
            }
            heads.all()
        };
        let settled = self.dataset_tree().and_then(|tree| {
            open.iter().try_for_each(|dataset| self.settle(dataset, &tree, changed))
        });
        if let Err(error) = settled {
            tracing::warn!(%error, "properties of open datasets are not what they should be");
        }
    }

    fn settle(
        &self,
        open: &LiveDataset,
        tree: &DatasetTree,
        changed: &[String],
    ) -> Result<(), DatasetError> {
        let dataset = tree.by_object(open.id())?;
        let is_below = |above: &String| {
            let rest = dataset.name().strip_prefix(above.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if changed.iter().any(is_below) {
            open.follow(&dataset, self.has_lz4)?;
            self.open_account(&dataset)?;
        }
        Ok(())
    }
}
