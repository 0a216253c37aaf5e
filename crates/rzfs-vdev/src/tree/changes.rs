//! Changes of configurations, and the labels to update.
//!
//! The shape of a tree never changes, but the stored records of its vdevs do: objects in the MOS,
//! paths, states. A change is made in one place, [`VdevTree::change`] or [`VdevTree::apply`], and
//! marks the top-level vdev, whose labels are all rewritten with the next txg (see
//! [`crate::ConfigSync`]).

use super::{NodeId, Role, VdevTree};
use crate::config::{PersistentFlags, VdevConfig};
use crate::health::{AuxReason, Health, LeafEvent, VdevState};
use rzfs_format::nvlist::NvString;
use rzfs_format::{Guid, VdevId};
use std::collections::BTreeSet;

/// How long an administrative decision about a leaf lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Until it is revoked.
    Persistent,
    /// Until the next import (`-t`).
    Temporary,
}

impl VdevTree {
    /// Sets a new guid of the root, and so the pool. All labels have to be written with it, and the
    /// uberblock with the new sum.
    pub fn set_root_guid(&self, guid: Guid) {
        self.node(NodeId::ROOT).config.set_guid(guid);
        self.mark_all_configs_dirty();
    }

    /// The node with this guid.
    pub(crate) fn find(&self, guid: Guid) -> Option<NodeId> {
        if guid == self.root().guid() {
            return Some(NodeId::ROOT);
        }
        self.by_guid.get(&guid).copied().filter(|id| *id != NodeId::ROOT)
    }

    /// Changes the record of a vdev: its objects in the MOS, hints, flags. Kind, position, guid and
    /// children are not changed. Marks the configuration of its top-level vdev; a change of the
    /// root marks all. Returns whether the vdev exists.
    pub fn change(&self, vdev: Guid, change: impl FnOnce(&mut VdevConfig)) -> bool {
        let Some(id) = self.find(vdev) else { return false };
        if self.node(id).config.change(change) {
            self.mark(id);
        }
        true
    }

    /// Applies an event to a leaf, and to its configuration unless the event is `Temporary`.
    /// Returns the states before and after, or `None` if it is not a device.
    pub fn apply(
        &self,
        leaf: Guid,
        event: LeafEvent,
        persistence: Persistence,
    ) -> Option<(Health, Health)> {
        let id = self.find(leaf)?;
        self.leaf(id)?.set_temporary(persistence == Persistence::Temporary);
        self.transition(id, event)
    }

    /// Applies an event to a leaf; returns its health before and after, or `None` if it has gone.
    pub(crate) fn transition(&self, id: NodeId, event: LeafEvent) -> Option<(Health, Health)> {
        let (before, after) = self.leaf(id)?.apply(event);
        if before != after {
            self.mark(id);
        }
        if before.is_usable() && !after.is_usable() {
            self.doubt(id);
        }
        Some((before, after))
    }

    /// Marks the configuration of a vdev's top-level vdev, of all for the root.
    fn mark(&self, id: NodeId) {
        let top = self.top_of(id);
        if top == NodeId::ROOT {
            self.mark_all_configs_dirty();
        } else if let Ok(id) = u32::try_from(self.node(top).id) {
            self.mark_config_dirty(VdevId(id));
        }
    }

    /// Marks a top-level vdev, so that its labels and the configuration in the MOS are rewritten
    /// with the next txg.
    pub fn mark_config_dirty(&self, vdev: VdevId) {
        if self.top_node(vdev).is_some_and(|id| self.has_labels(id)) {
            self.labels.dirty.lock().insert(vdev);
        }
    }

    /// Marks all labels to be rewritten with the next txg: after the pool was opened for writing,
    /// and on changes that concern every label.
    pub fn mark_all_configs_dirty(&self) {
        for vdev in self.top_levels().filter_map(super::Vdev::vdev_id) {
            self.mark_config_dirty(vdev);
        }
    }

    /// Top-level vdevs whose labels will be rewritten.
    #[must_use]
    pub fn dirty_configs(&self) -> BTreeSet<VdevId> {
        self.labels.dirty.lock().clone()
    }

    /// Whether a top-level vdev has its own leaves, with labels.
    pub(crate) fn has_labels(&self, top: NodeId) -> bool {
        !matches!(self.node(top).role, Role::Indirect(_) | Role::Empty | Role::Root)
    }

    /// The top-level vdev that contains a vdev; the root for itself.
    pub(crate) fn top_of(&self, id: NodeId) -> NodeId {
        let mut top = id;
        while let Some(parent) = self.node(top).parent.filter(|parent| *parent != NodeId::ROOT) {
            top = parent;
        }
        top
    }

    /// The flags of a leaf to store.
    pub(crate) fn flags_to_store(&self, id: NodeId, known: &PersistentFlags) -> PersistentFlags {
        match self.leaf(id) {
            Some(leaf) if leaf.is_temporary() => known.clone(),
            Some(leaf) => remembered(leaf.health(), known),
            None => known.clone(),
        }
    }
}

/// The stored part of a leaf's state (spec 07, section 4.3): decisions of administrators and
/// faults, but not open failures.
fn remembered(health: Health, known: &PersistentFlags) -> PersistentFlags {
    let reason = match health.aux {
        AuxReason::ErrorsExceeded => NvString::new("err_exceeded").ok(),
        AuxReason::External => NvString::new("external").ok(),
        _ => None,
    };
    let mut flags = known.clone();
    match health.state {
        VdevState::Offline => flags.offline = true,
        VdevState::Removed => flags.removed = true,
        VdevState::Faulted => {
            flags.faulted = true;
            flags.aux_state = reason;
        }
        VdevState::Degraded => {
            (flags.offline, flags.faulted, flags.removed) = (false, false, false);
            flags.not_present = false;
            flags.degraded = true;
            flags.aux_state = reason.or(flags.aux_state);
        }
        VdevState::Healthy => {
            (flags.offline, flags.faulted, flags.removed) = (false, false, false);
            (flags.degraded, flags.not_present) = (false, false);
            flags.aux_state = None;
        }
        VdevState::CantOpen if health.aux == AuxReason::OpenFailed => flags.not_present = true,
        VdevState::CantOpen | VdevState::Unknown | VdevState::Closed => {}
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(events: &[LeafEvent], known: &PersistentFlags) -> PersistentFlags {
        let health = events.iter().fold(Health::UNKNOWN, |health, event| health.after(*event));
        remembered(health, known)
    }

    fn aux(flags: &PersistentFlags) -> Option<&[u8]> {
        flags.aux_state.as_ref().map(NvString::as_bytes)
    }

    #[test]
    fn decisions_and_faults_are_remembered_and_failures_to_open_are_not() {
        let none = PersistentFlags::default();
        let opened = LeafEvent::Opened { degraded: false };
        assert_eq!(flags(&[opened], &none), none);
        assert!(flags(&[opened, LeafEvent::TakenOffline], &none).offline);
        assert!(flags(&[opened, LeafEvent::Vanished], &none).removed);
        let faulted = flags(&[opened, LeafEvent::FaultedExternally], &none);
        assert!(faulted.faulted && aux(&faulted) == Some(b"external"));
        let exceeded = flags(&[opened, LeafEvent::ProbeFailed], &none);
        assert!(exceeded.faulted && aux(&exceeded) == Some(b"err_exceeded"));
        let degraded = flags(&[opened, LeafEvent::ErrorsTolerated], &none);
        assert!(degraded.degraded && aux(&degraded) == Some(b"err_exceeded"));
        assert_eq!(flags(&[LeafEvent::OpenFailed(AuxReason::CorruptData)], &none), none);
        let absent = flags(&[LeafEvent::OpenFailed(AuxReason::OpenFailed)], &none);
        assert_eq!(absent, PersistentFlags { not_present: true, ..none.clone() });
        assert_eq!(flags(&[opened], &absent), none);
        assert_eq!(flags(&[opened], &faulted), none);
        let kept = flags(&[LeafEvent::Opened { degraded: true }], &degraded);
        assert_eq!(kept, degraded);
    }
}
