//! The current devices of a pool.

use super::writer::VdevWriter;
use crate::pool::{AuxiliaryKind, AuxiliaryVdev};
use parking_lot::RwLock;
use rzfs_dmu::write::DeviceWriter;
use rzfs_vdev::{CurrentTree, VdevTree};
use std::fmt;
use std::sync::Arc;

/// The devices of a pool.
pub(crate) struct PoolDevices {
    current: Arc<CurrentTree>,
    writer: Arc<dyn DeviceWriter>,
    /// Hot spares, then cache devices.
    auxiliary: RwLock<Vec<AuxiliaryVdev>>,
}

impl fmt::Debug for PoolDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolDevices").field("auxiliary", &self.auxiliary).finish_non_exhaustive()
    }
}

impl PoolDevices {
    pub(crate) fn new(current: &Arc<CurrentTree>, auxiliary: Vec<AuxiliaryVdev>) -> Self {
        Self {
            current: Arc::clone(current),
            writer: Arc::new(VdevWriter(Arc::clone(current))),
            auxiliary: RwLock::new(auxiliary),
        }
    }

    /// The current vdevs.
    pub(crate) fn vdevs(&self) -> Arc<VdevTree> {
        self.current.get()
    }

    /// Writes blocks to the vdevs.
    pub(crate) const fn writer(&self) -> &Arc<dyn DeviceWriter> {
        &self.writer
    }

    /// Hot spares, then cache devices.
    pub(crate) fn auxiliary(&self) -> Vec<AuxiliaryVdev> {
        self.auxiliary.read().clone()
    }

    /// Those of one kind.
    pub(crate) fn auxiliary_of(&self, kind: AuxiliaryKind) -> Vec<AuxiliaryVdev> {
        self.auxiliary.read().iter().filter(|vdev| vdev.kind == kind).cloned().collect()
    }

    /// Adds more of them.
    pub(super) fn add_auxiliary(&self, new: impl IntoIterator<Item = AuxiliaryVdev>) {
        let mut all = self.auxiliary.write();
        all.extend(new);
        // Spares come first.
        all.sort_by_key(|vdev| vdev.kind);
    }

    /// Replaces the tree by one grown from it.
    pub(super) fn replace_vdevs(&self, tree: Arc<VdevTree>) {
        self.current.replace(tree);
    }
}
