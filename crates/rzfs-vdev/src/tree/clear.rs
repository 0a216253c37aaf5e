//! Clearing errors, and retrying devices that work again (`zpool clear`; spec 07, sections 4.3 and
//! 12.6).

use super::{NodeId, Vdev, VdevTree};
use crate::health::{AuxReason, LeafEvent, VdevState};
use crate::label::{DeviceUse, Look, PoolUse};
use crate::leaf::{Leaf, LeafDevices};
use crate::read::answers;
use rzfs_blockdev::{BlockDevice, read_exact_at};
use rzfs_format::label::UberblockRing;
use rzfs_format::{Guid, Txg};
use std::sync::Arc;

impl VdevTree {
    /// Clears the errors of a vdev and its descendants, of all for `None`. Devices that were
    /// faulted because of errors, or had vanished, are used again if their labels match and they
    /// are no older than what was committed on them; what they lack meanwhile stays in their dirty
    /// time logs. All unconfirmed writes, of these and of working devices, are repeated before the
    /// next flush counts. Working devices that have become something else are closed. Returns
    /// whether the vdev exists.
    ///
    /// Where a device does not respond, or there was none, `devices` is asked for another one: the
    /// file system with an image may have gone and come back, and handles on it stay dead.
    pub fn clear(&self, vdev: Option<Guid>, devices: &dyn LeafDevices) -> bool {
        let start = match vdev {
            None => Some(NodeId::ROOT),
            Some(guid) => self.find(guid),
        };
        let Some(start) = start else { return false };
        let mut waiting = vec![Vdev::new(self, start)];
        while let Some(vdev) = waiting.pop() {
            vdev.clear_errors();
            self.retry_device(vdev, devices);
            waiting.extend(vdev.children());
        }
        // Errors that persist are found again on the next access.
        drop(self.flush());
        true
    }

    /// Uses a leaf again if its device is right, and stops using one that has certainly become
    /// something else.
    fn retry_device(&self, vdev: Vdev<'_>, devices: &dyn LeafDevices) {
        let Some(leaf) = self.leaf(vdev.node_id()) else { return };
        if vdev.health().state == VdevState::Offline {
            return;
        }
        let is_in_use = leaf.is_usable();
        let own = leaf.device().map_or(Err(AuxReason::OpenFailed), |device| {
            self.check_identity(vdev.node_id(), device.as_ref())
        });
        let returned = own.or_else(|why| {
            let config = vdev.own_config();
            let is_dead =
                |device: Arc<dyn BlockDevice>| !device.is_reachable() || !answers(device.as_ref());
            if why == AuxReason::OpenFailed
                && leaf.device().is_some_and(is_dead)
                && devices.has_candidate(&config)
            {
                leaf.close_device();
            }
            let other = devices.device(&config);
            let taken = other.and_then(|other| {
                self.check_membership(vdev.node_id(), &other)?;
                self.check_identity(vdev.node_id(), other.as_ref())?;
                leaf.take_device(other)
            });
            // Its earlier error is more informative than that of the device found in its place.
            taken.map_err(
                |other| if is_in_use || why != AuxReason::OpenFailed { why } else { other },
            )
        });
        match returned {
            Ok(()) => {
                self.transition(vdev.node_id(), LeafEvent::Opened { degraded: false });
            }
            // Nothing new is known, except that it may have been away unnoticed.
            Err(AuxReason::OpenFailed) if is_in_use => {
                leaf.suspect();
                if leaf.device().is_none() {
                    self.transition(vdev.node_id(), LeafEvent::Vanished);
                }
            }
            Err(AuxReason::OpenFailed) => {}
            Err(aux) => {
                self.transition(vdev.node_id(), LeafEvent::OpenFailed(aux));
            }
        }
    }

    /// What a device in use, which was right when it was opened, has certainly become instead.
    pub(crate) fn replaced_by(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
    ) -> Option<AuxReason> {
        let why = self.check_identity(id, device.as_ref()).err()?;
        (why != AuxReason::OpenFailed).then_some(why)
    }

    /// Checks that a device responds, has the leaf's labels, the last uberblock committed on it and
    /// the last confirmed block: an older copy would be read as if it were current. Nor may another
    /// process have committed to it: the pool would continue as a mixture of both. Where nothing
    /// was committed yet, a device in use may have no labels.
    ///
    /// # Errors
    /// [`AuxReason::OpenFailed`] if it is unknown; anything else is certain.
    fn check_identity(&self, id: NodeId, device: &dyn BlockDevice) -> Result<(), AuxReason> {
        let (vdev, leaf) = (Vdev::new(self, id), self.leaf(id).ok_or(AuxReason::OpenFailed)?);
        // Before the device is examined: a txg may be committed meanwhile.
        let committed = leaf.committed();
        if !device.is_reachable() {
            return Err(AuxReason::OpenFailed);
        }
        if committed == Txg(0) && leaf.is_usable() {
            return Ok(());
        }
        let look = Look::at(device, ring_of(vdev));
        let has_labels = matches!(look.user, DeviceUse::Member { guid, .. } if guid == vdev.guid());
        let is_foreign = look.newest.as_ref().is_some_and(|newest| leaf.is_foreign(newest));
        match look.is_whole {
            _ if has_labels && look.committed() >= committed && !is_foreign => {
                check_witness(leaf, device)
            }
            false => Err(AuxReason::OpenFailed),
            true if has_labels => Err(AuxReason::CorruptData),
            true => Err(AuxReason::BadLabel),
        }
    }

    /// Checks that a device found in a leaf's place belongs to the pool. Labels of a device in use
    /// may have a guid that the pool is just getting, or a destroyed state. Labels with a guid that
    /// was never committed, because of a power failure, do not count.
    fn check_membership(&self, id: NodeId, device: &Arc<dyn BlockDevice>) -> Result<(), AuxReason> {
        let look = Look::at(device.as_ref(), ring_of(Vdev::new(self, id)));
        let is_own = |user: &DeviceUse| {
            matches!(user, DeviceUse::Member { pool, state, .. }
                if pool.guid == self.root().guid() && *state != PoolUse::Destroyed)
        };
        if is_own(&look.user) || is_own(&look.committed_user) {
            Ok(())
        } else if device.is_reachable() {
            Err(AuxReason::BadLabel)
        } else {
            Err(AuxReason::OpenFailed)
        }
    }
}

/// The uberblock layout of a leaf.
fn ring_of(leaf: Vdev<'_>) -> UberblockRing {
    let ashift = leaf.top_level().and_then(Vdev::ashift).unwrap_or(0);
    UberblockRing::of_ashift(u64::from(ashift))
}

/// Checks that a device has the last confirmed block: between two uberblocks the intent log makes
/// blocks durable, too. A read error is no reason to refuse a device.
fn check_witness(leaf: &Leaf, device: &dyn BlockDevice) -> Result<(), AuxReason> {
    loop {
        let Some(witness) = leaf.unconfirmed().witness() else { return Ok(()) };
        match read_exact_at(device, witness.position(), witness.len()) {
            Ok(found) if witness.is_in(&found) => return Ok(()),
            Err(_) if device.is_reachable() => return Ok(()),
            Err(_) => return Err(AuxReason::OpenFailed),
            // Otherwise it has been overwritten by now.
            Ok(_) if leaf.unconfirmed().witness() == Some(witness) => {
                return Err(AuxReason::CorruptData);
            }
            Ok(_) => {}
        }
    }
}
