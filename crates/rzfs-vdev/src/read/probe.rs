//! Probing a leaf after an error: a bad sector or a dead device? (spec 07, section 21.1)

use crate::health::LeafEvent;
use crate::leaf::Leaf;
use crate::tree::{NodeId, VdevTree};
use rzfs_blockdev::{BlockDevice, read_exact_at};
use rzfs_format::label::{BOOT_ENV_OFFSET, BOOT_ENV_SIZE, LabelIndex, LeafSize};

/// Whether a device responds at all.
pub(crate) fn answers(device: &dyn BlockDevice) -> bool {
    LeafSize::of_device(device.geometry().size).is_some_and(|size| {
        LabelIndex::ALL.into_iter().skip(1).any(|label| {
            let position = size.label_offset(label).saturating_add(BOOT_ENV_OFFSET);
            read_exact_at(device, position, BOOT_ENV_SIZE).is_ok()
        })
    })
}

impl VdevTree {
    /// Reads the boot environment of three labels. If none can be read the leaf is faulted, so that
    /// it is not waited for again, unless it is required.
    pub(crate) fn probe(&self, id: NodeId) {
        let Some(leaf) = self.leaf(id) else { return };
        let Some(device) = leaf.usable_device() else { return };
        if !leaf.begin_probe() {
            return;
        }
        if !answers(device.as_ref()) {
            let event = if self.would_lose(id, leaf) {
                LeafEvent::ErrorsTolerated
            } else {
                LeafEvent::ProbeFailed
            };
            self.transition(id, event);
        }
        leaf.end_probe();
    }

    /// Whether the top-level vdev would be lost without this leaf, or data on it.
    fn would_lose(&self, id: NodeId, leaf: &Leaf) -> bool {
        let assumed = leaf.health().after(LeafEvent::ProbeFailed);
        !self.health_assuming(self.top_of(id), &[(id, assumed)]).is_usable() || self.is_needed(id)
    }
}
