//! Probing a leaf that had an error: is it a bad sector or a dead device? (spec 07, section 21.1)

use crate::device_layout::label_positions;
use crate::health::LeafEvent;
use crate::leaf::Leaf;
use crate::tree::{NodeId, VdevTree};
use rzfs_blockdev::read_exact_at;

/// Offset of the probed area in a label: the boot environment block.
const PROBE_OFFSET: u64 = 0x2000;
/// Bytes of it.
const PROBE_SIZE: usize = 0x2000;

impl VdevTree {
    /// Reads a harmless place in three labels. If none can be read the leaf is faulted, so that
    /// nothing waits for it again, unless the pool cannot do without it.
    pub(crate) fn probe(&self, id: NodeId) {
        let Some(leaf) = self.leaf(id) else { return };
        let Some(device) = leaf.usable_device() else { return };
        if !leaf.begin_probe() {
            return;
        }
        let labels = label_positions(device.geometry().size).unwrap_or_default();
        let answers = labels.iter().skip(1).any(|label| {
            read_exact_at(device.as_ref(), label.saturating_add(PROBE_OFFSET), PROBE_SIZE).is_ok()
        });
        if !answers {
            let event = if self.is_required(id, leaf) {
                LeafEvent::ErrorsTolerated
            } else {
                LeafEvent::ProbeFailed
            };
            leaf.apply(event);
        }
        leaf.end_probe();
    }

    /// Whether the top-level vdev would be lost without this leaf.
    fn is_required(&self, id: NodeId, leaf: &Leaf) -> bool {
        let assumed = leaf.health().after(LeafEvent::ProbeFailed);
        !self.top_health_assuming(id, assumed).is_usable()
    }
}
