//! The books of the syncing thread: which log each metaslab needs, and pending writes of its
//! arrays.

use super::topology::Topology;
use crate::log::book::{LogBook, MetaslabId};
use crate::space_map::SpaceMap;
use rzfs_format::VdevId;
use std::collections::{BTreeMap, BTreeSet};

/// Elements of arrays to write, by vdev.
pub(crate) type ArrayChanges = BTreeMap<VdevId, BTreeMap<u64, u64>>;

/// State of the syncing thread only.
#[derive(Debug)]
pub(crate) struct SyncBooks {
    pub(crate) book: LogBook,
    /// The log of the txg that is syncing.
    pub(crate) log: Option<SpaceMap>,
    /// Metaslabs that changed in this txg.
    pub(crate) touched: BTreeSet<MetaslabId>,
    /// Metaslabs with deferred frees.
    pub(crate) draining: BTreeSet<MetaslabId>,
    /// Bytes of memory of unflushed changes.
    pub(crate) unflushed_memory: u64,
    pub(crate) map_changes: ArrayChanges,
    pub(crate) unflushed_changes: ArrayChanges,
}

impl SyncBooks {
    pub(crate) const fn new(book: LogBook) -> Self {
        Self {
            book,
            log: None,
            touched: BTreeSet::new(),
            draining: BTreeSet::new(),
            unflushed_memory: 0,
            map_changes: BTreeMap::new(),
            unflushed_changes: BTreeMap::new(),
        }
    }

    /// Counts the memory of all unflushed changes.
    pub(crate) fn count_memory(&mut self, topology: &Topology) {
        let metaslabs = topology.vdevs.values().flat_map(|vdev| &vdev.metaslabs);
        self.unflushed_memory =
            metaslabs.map(|metaslab| metaslab.state.lock().unflushed_memory()).sum();
    }
}
