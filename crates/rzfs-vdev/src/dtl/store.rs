//! Loading and storing dirty time logs (spec 07, section 5.3).

use super::{DirtyTimeLog, TxgSet};
use crate::tree::{Node, Role, VdevTree};
use rzfs_format::{Guid, ObjectId};

/// The objects that hold dirty time logs: space maps of txgs in the MOS, that begin at 0, are 2^64
/// - 1 long and count in ones, with nothing but allocations in them.
///
/// Implemented by the layer above, like [`DtlStore`].
pub trait DtlReader {
    /// The error type.
    type Error;

    /// The txgs of an object.
    ///
    /// # Errors
    /// When the object cannot be read or is damaged.
    fn load(&self, object: ObjectId) -> Result<TxgSet, Self::Error>;
}

/// The same objects, for changes: only in the syncing thread.
pub trait DtlStore {
    /// The error type.
    type Error;

    /// Replaces the contents of an object, or creates one. Returns the object.
    ///
    /// # Errors
    /// When the object cannot be changed; the txg must then not be committed.
    fn replace(&mut self, object: Option<ObjectId>, txgs: &TxgSet)
    -> Result<ObjectId, Self::Error>;
}

/// The log of a leaf.
fn log(node: &Node) -> Option<&DirtyTimeLog> {
    match &node.role {
        Role::Device(leaf) => Some(leaf.missing()),
        Role::DistributedSpare(spare) => Some(&spare.missing),
        _ => None,
    }
}

impl VdevTree {
    /// The log of a leaf or distributed spare.
    pub(super) fn dirty_time_log(&self, vdev: Guid) -> Option<&DirtyTimeLog> {
        self.by_guid.get(&vdev).and_then(|id| log(self.node(*id)))
    }

    /// Loads the logs of all leaves. Those that cannot be loaded stay unknown and are returned with
    /// the reasons. They must be loaded before anything is repaired.
    pub fn load_dirty_time_logs<R: DtlReader>(&self, reader: &R) -> Vec<(Guid, R::Error)> {
        let mut failures = Vec::new();
        for node in &self.nodes {
            let Some(log) = log(node) else { continue };
            let object = node.config.get().leaf.dtl_object.and_then(ObjectId::non_zero);
            match object.map_or_else(|| Ok(TxgSet::new()), |object| reader.load(object)) {
                Ok(stored) => log.load(stored),
                Err(error) => failures.push((node.guid, error)),
            }
        }
        failures
    }

    /// Whether logs have changed since they were stored.
    #[must_use]
    pub fn has_changed_dirty_times(&self) -> bool {
        self.nodes.iter().filter_map(|node| log(node)).any(DirtyTimeLog::is_changed)
    }

    /// Stores all changed logs. Returns whether there were any: then this is not the last pass of
    /// the txg. A leaf that gets its object has a new configuration.
    ///
    /// # Errors
    /// The first log that could not be stored.
    pub fn store_dirty_time_logs<S: DtlStore>(&self, store: &mut S) -> Result<bool, S::Error> {
        let mut has_stored = false;
        for node in &self.nodes {
            let Some(log) = log(node) else { continue };
            let Some(missing) = log.take_changes() else { continue };
            let known = node.config.get().leaf.dtl_object.and_then(ObjectId::non_zero);
            if known.is_none() && missing.is_empty() {
                continue;
            }
            match store.replace(known, &missing) {
                Ok(object) if known == Some(object) => {}
                Ok(object) => {
                    self.change(node.guid, |config| config.leaf.dtl_object = Some(object));
                }
                Err(error) => {
                    log.mark_changed();
                    return Err(error);
                }
            }
            has_stored = true;
        }
        Ok(has_stored)
    }
}
