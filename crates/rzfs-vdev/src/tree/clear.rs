//! Forgetting errors, and giving devices that work again another chance (`zpool clear`; spec 07,
//! section 4.4).

use super::{NodeId, Vdev, VdevTree};
use crate::health::{LeafEvent, VdevState};
use crate::label::{DeviceUse, PoolUse};
use rzfs_format::Guid;

impl VdevTree {
    /// Forgets the errors of a vdev and of those below it, of all for `None`. Devices that were
    /// given up because of errors, or had vanished, are used again if their labels say that they
    /// are what they were; what they lack meanwhile stays in their dirty time logs. Returns whether
    /// there is such a vdev.
    pub fn clear(&self, vdev: Option<Guid>) -> bool {
        let start = match vdev {
            None => Some(NodeId::ROOT),
            Some(guid) => self.find(guid),
        };
        let Some(start) = start else { return false };
        let mut waiting = vec![Vdev::new(self, start)];
        while let Some(vdev) = waiting.pop() {
            vdev.clear_errors();
            self.give_another_chance(vdev);
            waiting.extend(vdev.children());
        }
        true
    }

    /// Uses a leaf again that answers as it should.
    fn give_another_chance(&self, vdev: Vdev<'_>) {
        let health = vdev.health();
        let may_return = matches!(
            health.state,
            VdevState::Faulted | VdevState::Removed | VdevState::Degraded | VdevState::CantOpen
        );
        let Some(device) = vdev.device().filter(|_| may_return) else { return };
        let is_ours = match DeviceUse::of(device.as_ref()) {
            DeviceUse::Member { pool, state, guid } => {
                let is_alive = state != PoolUse::Destroyed;
                guid == vdev.guid() && pool.guid == self.root().guid() && is_alive
            }
            _ => false,
        };
        if is_ours {
            self.happen(vdev.node_id(), LeafEvent::Opened { degraded: false });
        }
    }
}
