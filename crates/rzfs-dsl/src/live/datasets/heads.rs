//! The heads of a pool that are open for changes.
//!
//! A head is open as long as it is in use or dirty. Opening reads the last durable uberblock, which
//! is only correct for heads that are not open; so both are done under one lock.

use super::head::LiveDataset;
use crate::dataset::{Dataset, DatasetError, DatasetTree};
use crate::live::durable::Durable;
use crate::live::space::accounts::Accounts;
use parking_lot::Mutex;
use rzfs_codec::crypto::CryptoVersion;
use rzfs_dmu::Objset;
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::{ObjectId, Txg};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Txgs after which an unused head is closed: its log may need some.
pub(crate) const SYNCS_TO_CLOSE: usize = 3;

/// The open heads, and how others are opened.
#[derive(Debug)]
pub(crate) struct Heads {
    /// Taken before the locks of accounts and of what is durable.
    heads: Mutex<OpenHeads>,
    engine: Arc<TxgEngine>,
    durable: Arc<Durable>,
    accounts: Arc<Accounts>,
    has_lz4: bool,
}

#[derive(Debug, Default)]
struct OpenHeads {
    open: BTreeMap<ObjectId, Arc<LiveDataset>>,
    /// Destroyed in the syncing txg: on disk they still exist.
    destroyed: BTreeSet<ObjectId>,
}

impl OpenHeads {
    fn insert(&mut self, dataset: LiveDataset) -> Arc<LiveDataset> {
        let dataset = Arc::new(dataset);
        self.open.insert(dataset.id(), Arc::clone(&dataset));
        dataset
    }

    fn all(&self) -> Vec<Arc<LiveDataset>> {
        self.open.values().cloned().collect()
    }

    /// Closes the heads that are neither in use nor dirty; returns them.
    fn close_unused(&mut self, synced: Txg) -> Vec<ObjectId> {
        let mut closed = Vec::new();
        self.open.retain(|id, dataset| {
            let stays = dataset.is_used() || !dataset.is_idle(synced);
            if !stays {
                closed.push(*id);
            }
            stays
        });
        closed
    }

    /// Whether one of the heads gets its key from an encryption root.
    fn has_key_of(&self, tree: &DatasetTree, root: &str) -> Result<bool, DatasetError> {
        for head in self.open.keys() {
            let above = tree.by_object(*head)?.encryption_root()?;
            if above.is_some_and(|above| above.name() == root) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Heads {
    pub(crate) fn new(
        engine: &Arc<TxgEngine>,
        durable: &Arc<Durable>,
        accounts: &Arc<Accounts>,
        has_lz4: bool,
    ) -> Self {
        Self {
            heads: Mutex::default(),
            engine: Arc::clone(engine),
            durable: Arc::clone(durable),
            accounts: Arc::clone(accounts),
            has_lz4,
        }
    }

    /// Adds a newly created head.
    pub(crate) fn insert(&self, dataset: LiveDataset) -> Arc<LiveDataset> {
        self.heads.lock().insert(dataset)
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<LiveDataset>> {
        self.heads.lock().open.get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<LiveDataset>> {
        self.heads.lock().all()
    }

    /// Opens a head for changes.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read, is a snapshot, or a receive into it is unfinished.
    pub(crate) fn open(&self, dataset: &Dataset) -> Result<Arc<LiveDataset>, DatasetError> {
        dataset.require_consistent()?;
        self.close_locked(dataset.object());
        let mut heads = self.heads.lock();
        match heads.open.get(&dataset.object()) {
            Some(open) if open.is_locked() => {
                return Err(DatasetError::KeyNotLoaded { root: dataset.name().to_owned() });
            }
            Some(open) => return Ok(Arc::clone(open)),
            None => {}
        }
        let current = self.current(&heads, dataset)?;
        current.require_consistent()?;
        self.open_current(&mut heads, &current)
    }

    /// Opens a head exclusively, to resume a receive into it; `None` if it is in use.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read.
    pub(crate) fn open_received(
        &self,
        dataset: &Dataset,
    ) -> Result<Option<Arc<LiveDataset>>, DatasetError> {
        self.close_locked(dataset.object());
        let mut heads = self.heads.lock();
        let current = self.current(&heads, dataset)?;
        match heads.open.get(&dataset.object()) {
            Some(open) if open.is_used() || open.is_locked() => Ok(None),
            Some(open) => Ok(Some(Arc::clone(open))),
            None => self.open_current(&mut heads, &current).map(Some),
        }
    }

    /// The current dataset: what the caller saw may have been changed and closed since.
    fn current(&self, heads: &OpenHeads, dataset: &Dataset) -> Result<Dataset, DatasetError> {
        let current = self.durable.dataset_tree()?.open(dataset.name())?;
        let is_destroyed = heads.destroyed.contains(&dataset.object());
        if current.object() != dataset.object() || is_destroyed {
            return Err(DatasetError::NotFound { name: dataset.name().to_owned() });
        }
        Ok(current)
    }

    fn open_current(
        &self,
        heads: &mut OpenHeads,
        current: &Dataset,
    ) -> Result<Arc<LiveDataset>, DatasetError> {
        let objset = current.open_objset()?;
        if objset.key().is_some_and(|key| key.version() == CryptoVersion::Zero) {
            return Err(DatasetError::OldEncryption { name: current.name().to_owned() });
        }
        let open = LiveDataset::open(current, objset, self.has_lz4)?;
        self.accounts.open(current)?;
        Ok(heads.insert(open))
    }

    /// Opens a head for its intent log, possibly without its key.
    pub(crate) fn open_for_log(
        &self,
        dataset: &Dataset,
        objset: Objset,
    ) -> Result<Arc<LiveDataset>, DatasetError> {
        let open = LiveDataset::open(dataset, objset, self.has_lz4)?;
        self.accounts.open(dataset)?;
        Ok(self.insert(open))
    }

    /// Closes a head that was opened without its key, for its intent log.
    fn close_locked(&self, id: ObjectId) {
        for _ in 0..SYNCS_TO_CLOSE {
            let is_locked = self.get(id).is_some_and(|open| open.is_locked());
            let sync = || self.engine.wait_synced_unless_suspended(self.engine.open_txg());
            // It stays open if it cannot be synced.
            if !is_locked || sync().is_err() {
                return;
            }
        }
    }

    /// Forgets the key of an encryption root, unless an open head uses it; returns whether it was
    /// forgotten.
    pub(crate) fn forget_key(&self, root: &Dataset) -> Result<bool, DatasetError> {
        // No head is opened meanwhile.
        let heads = self.heads.lock();
        let tree = self.durable.dataset_tree()?;
        let is_free = !heads.has_key_of(&tree, root.name())?;
        if is_free {
            root.unload_key()?;
            tree.mos().pipeline().cache().clear();
        }
        Ok(is_free)
    }

    /// Whether the intent log of a head has blocks that the txg being synced cannot free, or
    /// records.
    pub(crate) fn has_busy_log(&self, id: ObjectId, txg: Txg) -> bool {
        self.heads.lock().open.get(&id).is_some_and(|dataset| dataset.has_busy_log(txg))
    }

    /// Whether a head is open elsewhere.
    pub(crate) fn is_used(&self, id: ObjectId) -> bool {
        self.heads.lock().open.get(&id).is_some_and(LiveDataset::is_used)
    }

    /// Removes a head that is to be destroyed, unless it is in use.
    pub(crate) fn retire(&self, id: ObjectId) -> bool {
        let mut heads = self.heads.lock();
        if heads.open.get(&id).is_some_and(LiveDataset::is_used) {
            return false;
        }
        heads.open.remove(&id);
        heads.destroyed.insert(id)
    }

    /// Drops log records of a txg, which is now on disk, and updates open heads with these names,
    /// and those below them, from what it changed.
    pub(crate) fn settle(&self, txg: Txg, changed: &[String]) {
        let open = {
            let mut heads = self.heads.lock();
            heads.destroyed.clear();
            heads.open.values().for_each(|dataset| dataset.generation().log().settle(txg));
            self.accounts.close_heads(&heads.close_unused(txg));
            if changed.is_empty() {
                return;
            }
            heads.all()
        };
        let settled = self.durable.dataset_tree().and_then(|tree| {
            open.iter().try_for_each(|dataset| self.follow(dataset, &tree, changed))
        });
        if let Err(error) = settled {
            tracing::warn!(%error, "properties of open datasets are not what they should be");
        }
    }

    fn follow(
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
            self.accounts.open(&dataset)?;
        }
        Ok(())
    }
}
