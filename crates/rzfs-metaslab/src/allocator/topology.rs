//! The existing metaslabs: an immutable snapshot of a pool's vdevs, classes and groups, which is
//! replaced when a vdev is added, grows or is removed.

use super::group::{Group, SpaceTotals};
use super::metaslab::LiveMetaslab;
use super::request::ClassKind;
use crate::log::book::MetaslabId;
use crate::metaslab::VdevGeometry;
use crate::store::VdevObjects;
use parking_lot::Mutex;
use rzfs_format::VdevId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The metaslabs of a top-level vdev.
#[derive(Debug)]
pub(crate) struct LiveVdev {
    pub(crate) geometry: VdevGeometry,
    pub(crate) metaslabs: Vec<Arc<LiveMetaslab>>,
    pub(crate) groups: Vec<Arc<Group>>,
    /// The objects of its books.
    pub(crate) objects: Arc<Mutex<VdevObjects>>,
    pub(crate) allocating: Allocating,
}

/// Whether new blocks may be put on a vdev.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Allocating {
    /// They may.
    #[default]
    Yes,
    /// The vdev's property `allocating` is off, or it is being removed.
    No,
}

impl LiveVdev {
    /// The metaslab that has all of a range.
    pub(crate) fn metaslab_of(&self, range: &std::ops::Range<u64>) -> Option<&Arc<LiveMetaslab>> {
        let index = usize::try_from(range.start >> self.geometry.metaslab_shift.min(63)).ok()?;
        let metaslab = self.metaslabs.get(index)?;
        let area = &metaslab.range;
        (area.start <= range.start && range.end <= area.end && !range.is_empty())
            .then_some(metaslab)
    }
}

/// A group in its class.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) group: Arc<Group>,
    pub(crate) vdev: Arc<LiveVdev>,
}

/// The vdevs and classes of a pool.
#[derive(Clone, Default, Debug)]
pub(crate) struct Topology {
    pub(crate) vdevs: BTreeMap<VdevId, Arc<LiveVdev>>,
    /// The vdevs without metaslabs that log entries and pointers may refer to, with their obsolete
    /// space maps.
    pub(crate) removed: BTreeMap<VdevId, Arc<Mutex<VdevObjects>>>,
    rings: [Vec<Member>; 5],
}

impl Topology {
    /// Adds a vdev, or replaces it.
    pub(crate) fn insert(&mut self, vdev: Arc<LiveVdev>) {
        self.vdevs.insert(vdev.geometry.vdev, vdev);
        self.build_rings();
    }

    /// Removes the metaslabs of a vdev.
    pub(crate) fn remove(&mut self, vdev: VdevId) -> Option<Arc<LiveVdev>> {
        let gone = self.vdevs.remove(&vdev);
        self.build_rings();
        gone
    }

    fn build_rings(&mut self) {
        for class in ClassKind::ALL {
            let members = self.vdevs.values().flat_map(|vdev| {
                let of_class = vdev.groups.iter().filter(move |group| group.class == class);
                of_class.map(|group| Member { group: Arc::clone(group), vdev: Arc::clone(vdev) })
            });
            self.rings[class.index()] = members.collect();
        }
    }

    /// The groups of a class.
    pub(crate) fn ring(&self, class: ClassKind) -> &[Member] {
        &self.rings[class.index()]
    }

    pub(crate) fn metaslab(&self, id: MetaslabId) -> Option<&Arc<LiveMetaslab>> {
        self.vdevs.get(&id.vdev)?.metaslabs.get(usize::try_from(id.index).ok()?)
    }

    /// The space of a class.
    pub(crate) fn totals(&self, class: ClassKind) -> SpaceTotals {
        let mut sum = SpaceTotals::default();
        self.ring(class).iter().for_each(|member| sum.add(*member.group.totals.lock()));
        sum
    }
}
