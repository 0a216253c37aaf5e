//! What a vdev is remembered by.

use crate::config::VdevConfig;
use parking_lot::RwLock;
use rzfs_format::Guid;
use std::sync::Arc;

/// What a vdev is remembered by, without its children.
///
/// The root of a tree that has grown has it in common with the root of the tree before.
#[derive(Clone, Debug)]
pub(crate) struct ConfigRecord(Arc<RwLock<Arc<VdevConfig>>>);

impl ConfigRecord {
    pub(super) fn new(config: VdevConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    pub(crate) fn get(&self) -> Arc<VdevConfig> {
        Arc::clone(&self.0.read())
    }

    /// Changes it; says whether anything is different now.
    pub(super) fn change(&self, change: impl FnOnce(&mut VdevConfig)) -> bool {
        let mut record = self.0.write();
        let mut config = VdevConfig::clone(&record);
        change(&mut config);
        // What the tree is built on stays.
        config.kind = record.kind;
        config.id = record.id;
        config.guid = record.guid;
        config.children.clear();
        let is_different = config != **record;
        if is_different {
            *record = Arc::new(config);
        }
        is_different
    }

    pub(super) fn set_guid(&self, guid: Guid) {
        let mut record = self.0.write();
        let mut config = VdevConfig::clone(&record);
        config.guid = guid;
        *record = Arc::new(config);
    }
}
