//! Forgetting errors, and giving devices that work again another chance (`zpool clear`; spec 07,
//! section 4.4).

use super::{NodeId, Vdev, VdevTree};
use crate::health::{LeafEvent, VdevState};
use crate::label::{DeviceUse, PoolUse, answers};
use crate::leaf::LeafDevices;
use rzfs_blockdev::BlockDevice;
use rzfs_format::Guid;
use std::sync::Arc;

impl VdevTree {
    /// Forgets the errors of a vdev and of those below it, of all for `None`. Devices that were
    /// given up because of errors, or had vanished, are used again if their labels say that they
    /// are what they were; what they lack meanwhile stays in their dirty time logs. Whatever they
    /// have not confirmed, they and those that work, is written again before the next flush counts.
    /// Returns whether there is such a vdev.
    ///
    /// Where a device does not answer, or there was none, `devices` are asked for another one: the
    /// file system that an image is in may have gone and come back, and what is open there stays
    /// dead.
    pub fn clear(&self, vdev: Option<Guid>, devices: &dyn LeafDevices) -> bool {
        let start = match vdev {
            None => Some(NodeId::ROOT),
            Some(guid) => self.find(guid),
        };
        let Some(start) = start else { return false };
        let mut waiting = vec![Vdev::new(self, start)];
        while let Some(vdev) = waiting.pop() {
            vdev.clear_errors();
            self.give_another_chance(vdev, devices);
            waiting.extend(vdev.children());
        }
        // What does not work still is found out again by whoever needs it.
        drop(self.flush());
        true
    }

    /// Uses a leaf again that answers as it should.
    fn give_another_chance(&self, vdev: Vdev<'_>, devices: &dyn LeafDevices) {
        let may_return = matches!(
            vdev.health().state,
            VdevState::Faulted | VdevState::Removed | VdevState::Degraded | VdevState::CantOpen
        ) || self.is_silent(vdev);
        let Some(leaf) = self.leaf(vdev.node_id()) else { return };
        if !may_return {
            if leaf.usable_device().is_some() {
                // It may have been away without anybody noticing.
                leaf.unconfirmed().suspect();
            }
            return;
        }
        let is_back = vdev.device().is_some_and(|device| self.is_of(vdev, device)) || {
            let other = devices.device(&vdev.own_config()).ok();
            let other = other.filter(|device| self.is_of(vdev, device));
            other.is_some_and(|device| leaf.take_device(device))
        };
        if is_back {
            self.happen(vdev.node_id(), LeafEvent::Opened { degraded: false });
        }
    }

    /// Whether a leaf that is in use has a device that does not answer.
    fn is_silent(&self, vdev: Vdev<'_>) -> bool {
        let device = self.leaf(vdev.node_id()).and_then(|leaf| leaf.usable_device());
        device.is_some_and(|device| !answers(device.as_ref()))
    }

    /// Whether a device answers, and is what its labels should say.
    fn is_of(&self, vdev: Vdev<'_>, device: &Arc<dyn BlockDevice>) -> bool {
        if !answers(device.as_ref()) {
            return false;
        }
        match DeviceUse::of(device.as_ref()) {
            DeviceUse::Member { pool, state, guid } => {
                let is_alive = state != PoolUse::Destroyed;
                guid == vdev.guid() && pool.guid == self.root().guid() && is_alive
            }
            _ => false,
        }
    }
}
