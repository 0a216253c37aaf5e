//! The stored record of a vdev.

use crate::config::VdevConfig;
use parking_lot::RwLock;
use rzfs_format::Guid;
use std::sync::Arc;

/// The stored record of a vdev, without its children.
///
/// The root of a grown tree shares it with the root of the tree before.
#[derive(Clone, Debug)]
pub(crate) struct ConfigRecord(Arc<RwLock<Arc<VdevConfig>>>);

impl ConfigRecord {
    pub(super) fn new(config: VdevConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    pub(crate) fn get(&self) -> Arc<VdevConfig> {
        Arc::clone(&self.0.read())
    }

    /// Changes it; returns whether anything differs.
    pub(super) fn change(&self, change: impl FnOnce(&mut VdevConfig)) -> bool {
        let mut record = self.0.write();
        let mut config = VdevConfig::clone(&record);
        change(&mut config);
        // What the tree is built on is kept.
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
