//! Forgetting errors, and giving devices that work again another chance (`zpool clear`; spec 07,
//! sections 4.3 and 12.6).

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
    /// Forgets the errors of a vdev and of those below it, of all for `None`. Devices that were
    /// given up because of errors, or had vanished, are used again if they are what they were, by
    /// their labels, and no older than what was committed on them; what they lack meanwhile stays
    /// in their dirty time logs. Whatever they have not confirmed, they and those that work, is
    /// written again before the next flush counts. Those that work, but have become something else,
    /// are closed. Returns whether there is such a vdev.
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

    /// Uses a leaf again whose device is what it should be, and no longer one that has certainly
    /// become something else.
    fn give_another_chance(&self, vdev: Vdev<'_>, devices: &dyn LeafDevices) {
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
            // Of what it had more is known than of what was found in its place.
            taken.map_err(
                |other| if is_in_use || why != AuxReason::OpenFailed { why } else { other },
            )
        });
        match returned {
            Ok(()) => {
                self.transition(vdev.node_id(), LeafEvent::Opened { degraded: false });
            }
            // Nothing new is known of it, but that it may have been away without anybody noticing.
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

    /// What a device in use, which was the right one when it was opened, has certainly become
    /// instead.
    pub(crate) fn replaced_by(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
    ) -> Option<AuxReason> {
        let why = self.check_identity(id, device.as_ref()).err()?;
        (why != AuxReason::OpenFailed).then_some(why)
    }

    /// Checks that a device answers, has the leaf's labels, the last uberblock that was committed
    /// on it and the last block that was confirmed: a copy from earlier would be read as if it were
    /// the pool's present. Nor may another process have committed to it: the pool would go on as a
    /// mixture of what both have done. Where nothing was committed yet, a device in use may have no
    /// labels.
    ///
    /// # Errors
    /// [`AuxReason::OpenFailed`] if it cannot be told; anything else is certain.
    fn check_identity(&self, id: NodeId, device: &dyn BlockDevice) -> Result<(), AuxReason> {
        let (vdev, leaf) = (Vdev::new(self, id), self.leaf(id).ok_or(AuxReason::OpenFailed)?);
        // Before the device is looked at: a txg may be committed meanwhile.
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

    /// Checks that a device which was found in a leaf's place belongs to the pool. Of one in use
    /// the labels may name a guid that the pool is just getting, or say that it is being destroyed.
    /// Labels with a guid that the pool never got, since the power failed meanwhile, do not count.
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

/// How the uberblocks of a leaf are laid out.
fn ring_of(leaf: Vdev<'_>) -> UberblockRing {
    let ashift = leaf.top_level().and_then(Vdev::ashift).unwrap_or(0);
    UberblockRing::of_ashift(u64::from(ashift))
}

/// Checks that a device has the last block that was confirmed: between two uberblocks the intent log
/// makes blocks durable, too. What cannot be read is no reason to refuse a device.
fn check_witness(leaf: &Leaf, device: &dyn BlockDevice) -> Result<(), AuxReason> {
    loop {
        let Some(witness) = leaf.unconfirmed().witness() else { return Ok(()) };
        match read_exact_at(device, witness.position(), witness.len()) {
            Ok(found) if witness.is_in(&found) => return Ok(()),
            Err(_) if device.is_reachable() => return Ok(()),
            Err(_) => return Err(AuxReason::OpenFailed),
            // Otherwise somebody writes there by now.
            Ok(_) if leaf.unconfirmed().witness() == Some(witness) => {
                return Err(AuxReason::CorruptData);
            }
            Ok(_) => {}
        }
    }
}
