//! Forgetting errors, and giving devices that work again another chance (`zpool clear`; spec 07,
//! section 4.4).

use super::{NodeId, Vdev, VdevTree};
use crate::health::{AuxReason, LeafEvent, VdevState};
use crate::label::{DeviceUse, Look, PoolUse};
use crate::leaf::{Leaf, LeafDevices};
use rzfs_blockdev::BlockDevice;
use rzfs_format::label::UberblockRing;
use rzfs_format::{Guid, Txg};
use std::sync::Arc;

impl VdevTree {
    /// Forgets the errors of a vdev and of those below it, of all for `None`. Devices that were
    /// given up because of errors, or had vanished, are used again if they are what they were, by
    /// their labels, and no older than what was committed on them; what they lack meanwhile stays in
    /// their dirty time logs. Whatever they have not confirmed, they and those that work, is written
    /// again before the next flush counts. Those that work, but have become something else, are
    /// closed. Returns whether there is such a vdev.
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

    /// Uses a leaf again whose device is what it should be, and no longer one that has certainly become
    /// something else.
    fn give_another_chance(&self, vdev: Vdev<'_>, devices: &dyn LeafDevices) {
        let Some(leaf) = self.leaf(vdev.node_id()) else { return };
        if vdev.health().state == VdevState::Offline {
            return;
        }
        let own = vdev.device().map_or(Err(AuxReason::OpenFailed), |device| {
            check_identity(vdev, leaf.committed(), device.as_ref())
        });
        let returned = own.or_else(|why| {
            let Ok(other) = devices.device(&vdev.own_config()) else { return Err(why) };
            check_identity(vdev, leaf.committed(), other.as_ref())?;
            leaf.take_device(other)
        });
        match returned {
            Ok(()) => {
                self.happen(vdev.node_id(), LeafEvent::Opened { degraded: false });
            }
            // Nothing new is known of it, but that it may have been away without anybody noticing.
            Err(AuxReason::OpenFailed) if leaf.usable_device().is_some() => leaf.suspect(),
            Err(AuxReason::OpenFailed) => {}
            Err(aux) => {
                self.happen(vdev.node_id(), LeafEvent::OpenFailed(aux));
            }
        }
    }

    /// What a device of a leaf, which was the right one when it was opened, has certainly become
    /// instead.
    pub(crate) fn has_become_another(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
    ) -> Option<AuxReason> {
        // What is new may have no labels before its first txg is committed.
        let committed = self.leaf(id).map(Leaf::committed).filter(|txg| *txg > Txg(0))?;
        let checked = check_identity(Vdev::new(self, id), committed, device.as_ref());
        checked.err().filter(|why| *why != AuxReason::OpenFailed)
    }
}

/// Checks that a device answers, is what its labels should say, and has the uberblock that was
/// `committed` on it: a copy from earlier would be read as if it were the pool's present. That txg
/// has to be asked for before, as another one may be committed meanwhile.
///
/// # Errors
/// [`AuxReason::OpenFailed`] if it cannot be told; anything else is certain.
fn check_identity(
    vdev: Vdev<'_>,
    committed: Txg,
    device: &dyn BlockDevice,
) -> Result<(), AuxReason> {
    if !device.is_reachable() {
        return Err(AuxReason::OpenFailed);
    }
    let ashift = vdev.top_level().and_then(Vdev::ashift).unwrap_or(0);
    let look = Look::at(device, UberblockRing::of_ashift(u64::from(ashift)));
    let pool = vdev.tree().root().guid();
    let is_own = |user: &DeviceUse| match user {
        DeviceUse::Member { pool: named, state, guid } => {
            named.guid == pool && *guid == vdev.guid() && *state != PoolUse::Destroyed
        }
        _ => false,
    };
    match look {
        look if is_own(&look.user) && look.newest >= committed => Ok(()),
        look if !look.is_whole => Err(AuxReason::OpenFailed),
        look if is_own(&look.user) => Err(AuxReason::CorruptData),
        _ => Err(AuxReason::BadLabel),
    }
}
