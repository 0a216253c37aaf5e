//! Forgetting errors, and giving devices that work again another chance (`zpool clear`; spec 07,
//! section 4.4).

use super::{NodeId, Vdev, VdevTree};
use crate::health::{AuxReason, LeafEvent, VdevState};
use crate::label::{DeviceUse, PoolUse, answers, newest_uberblock};
use crate::leaf::{Leaf, LeafDevices};
use rzfs_blockdev::BlockDevice;
use rzfs_format::Guid;
use rzfs_format::label::UberblockRing;
use std::sync::Arc;

impl VdevTree {
    /// Forgets the errors of a vdev and of those below it, of all for `None`. Devices that were
    /// given up because of errors, or had vanished, are used again if they are what they were, by
    /// their labels, and no older than what was committed on them; what they lack meanwhile stays in their dirty time logs. Whatever they
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
        let own = vdev
            .device()
            .map_or(Err(AuxReason::OpenFailed), |device| self.check_return(vdev, leaf, device));
        if !may_return && own.is_ok() {
            if leaf.usable_device().is_some() {
                // It may have been away without anybody noticing.
                leaf.unconfirmed().suspect();
            }
            return;
        }
        let returned = own.or_else(|why| {
            let Ok(other) = devices.device(&vdev.own_config()) else { return Err(why) };
            self.check_return(vdev, leaf, &other)?;
            leaf.take_device(other)
        });
        let event = match returned {
            Ok(()) => LeafEvent::Opened { degraded: false },
            // Nothing new is known of it: what works as well as before stays as it is.
            Err(AuxReason::OpenFailed) => return,
            Err(aux) => LeafEvent::OpenFailed(aux),
        };
        self.happen(vdev.node_id(), event);
    }

    /// Whether a leaf that is in use has a device that does not answer.
    fn is_silent(&self, vdev: Vdev<'_>) -> bool {
        let device = self.leaf(vdev.node_id()).and_then(|leaf| leaf.usable_device());
        device.is_some_and(|device| !answers(device.as_ref()))
    }

    /// Whether a device answers, is what its labels should say, and has the last uberblock that was
    /// written to the leaf: a copy from earlier would be read as if it were the pool's present.
    ///
    /// # Errors
    /// [`AuxReason::OpenFailed`] if it cannot be told; anything else is certain.
    fn check_return(
        &self,
        vdev: Vdev<'_>,
        leaf: &Leaf,
        device: &Arc<dyn BlockDevice>,
    ) -> Result<(), AuxReason> {
        // Before the device is looked at: a txg may be committed meanwhile.
        let committed = leaf.committed();
        if !answers(device.as_ref()) {
            return Err(AuxReason::OpenFailed);
        }
        let ashift = vdev.top_level().and_then(Vdev::ashift).unwrap_or(0);
        let ring = UberblockRing::of_ashift(u64::from(ashift));
        let newest = newest_uberblock(device.as_ref(), ring).ok_or(AuxReason::OpenFailed)?;
        let DeviceUse::Member { pool, state, guid } = DeviceUse::of(device.as_ref()) else {
            return Err(AuxReason::BadLabel);
        };
        if guid != vdev.guid() || pool.guid != self.root().guid() || state == PoolUse::Destroyed {
            return Err(AuxReason::BadLabel);
        }
        if newest >= committed { Ok(()) } else { Err(AuxReason::CorruptData) }
    }
}
