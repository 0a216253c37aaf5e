//! Adding, changing and removing vdevs.

use super::books::SyncBooks;
use super::group::{Group, OrderKey};
use super::metaslab::LiveMetaslab;
use super::request::ClassKind;
use super::topology::{Allocating, LiveVdev, Topology};
use super::{Allocator, AllocatorOptions};
use crate::MetaslabError;
use crate::log::book::{LogBook, MetaslabId};
use crate::log::{LoggedVdev, PoolMetaslabs};
use crate::metaslab::{Metaslab, VdevGeometry, VdevMetaslabs};
use crate::store::VdevObjects;
use parking_lot::Mutex;
use rzfs_format::{ObjectId, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The role of a vdev.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Bias {
    /// Everything.
    #[default]
    None,
    /// Intent logs.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

impl Bias {
    const fn class(self) -> ClassKind {
        match self {
            Self::None => ClassKind::Normal,
            Self::Log => ClassKind::Log,
            Self::Special => ClassKind::Special,
            Self::Dedup => ClassKind::Dedup,
        }
    }
}

/// The pool's record of a vdev besides its metaslabs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VdevRole {
    /// What it is for.
    pub bias: Bias,
    /// Whether new blocks may be put on it.
    pub allocating: Allocating,
    /// Its checkpoint space map (`com.delphix:pool_checkpoint_sm` of its ZAP).
    pub checkpoint_map: Option<ObjectId>,
    /// The obsolete space map of a removed vdev (`com.delphix:indirect_obsolete_sm`).
    pub obsolete_map: Option<ObjectId>,
}

/// When the space of a new vdev can be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Availability {
    /// At once: the pool is new.
    Now,
    /// When the txg that adds it is on disk.
    AfterCommit,
}

impl Allocator {
    /// The allocator of a pool whose metaslabs were read, with all logs replayed.
    ///
    /// # Errors
    /// A metaslab refers to a missing log, or the geometry of a vdev is impossible.
    pub fn open(
        options: AllocatorOptions,
        metaslabs: PoolMetaslabs,
        roles: &BTreeMap<VdevId, VdevRole>,
    ) -> Result<Self, MetaslabError> {
        let allocator = Self::new(options);
        let (vdevs, logs) = metaslabs.into_parts();
        let mut unflushed = Vec::new();
        let mut topology = Topology::default();
        for (id, vdev) in vdevs {
            let role = roles.get(&id).copied().unwrap_or_default();
            let objects = VdevObjects {
                checkpoint_map: role.checkpoint_map,
                obsolete_map: role.obsolete_map,
                ..VdevObjects::default()
            };
            match vdev {
                LoggedVdev::Gone => {
                    topology.removed.insert(id, Arc::new(Mutex::new(objects)));
                }
                LoggedVdev::Concrete(vdev) => {
                    let live = allocator.open_vdev(vdev, role, objects);
                    for metaslab in &live.metaslabs {
                        let state = metaslab.state.lock();
                        if state.unflushed_txg != Txg(0) {
                            unflushed.push((state.unflushed_txg, metaslab.id, state.freshness));
                        }
                    }
                    topology.insert(Arc::new(live));
                }
            }
        }
        let logs = logs.iter().map(|statistics| (statistics.log, statistics.blocks));
        let book = LogBook::import(allocator.context.tunables.logs, logs, unflushed)?;
        let mut books = SyncBooks::new(book);
        books.count_memory(&topology);
        allocator.publish(&books);
        *allocator.books.lock() = Some(Box::new(books));
        *allocator.topology.write() = Arc::new(topology);
        allocator.assess_groups();
        Ok(allocator)
    }

    fn open_vdev(&self, vdev: VdevMetaslabs, role: VdevRole, objects: VdevObjects) -> LiveVdev {
        let geometry = *vdev.geometry();
        let objects = VdevObjects {
            metaslab_array: vdev.metaslab_array(),
            unflushed_array: vdev.unflushed_array(),
            ..objects
        };
        let parts: Vec<_> = vdev
            .into_metaslabs()
            .into_iter()
            .map(|metaslab| (metaslab.own_allocated(), Some(metaslab)))
            .collect();
        self.live_vdev(geometry, role, objects, parts, Availability::Now)
    }

    /// Puts the metaslabs of a vdev into groups: one of them may be for the intent log.
    fn live_vdev(
        &self,
        geometry: VdevGeometry,
        role: VdevRole,
        objects: VdevObjects,
        parts: Vec<(i64, Option<Metaslab>)>,
        availability: Availability,
    ) -> LiveVdev {
        let group = |class| {
            let tunables = &self.context.tunables;
            Arc::new(Group::new(geometry.vdev, class, tunables.num_allocators, tunables.aliquot))
        };
        let own = group(role.bias.class());
        let is_large = parts.len() as u64 > self.context.tunables.embedded_slog_min_ms;
        let emptiest = (0_u64..).zip(&parts).min_by_key(|(_, (allocated, _))| *allocated);
        let embedded = emptiest
            .filter(|_| is_large && role.bias == Bias::None)
            .map(|(index, _)| (index, group(ClassKind::EmbeddedLog)));
        let mut metaslabs = Vec::with_capacity(parts.len());
        for (index, (_, part)) in (0_u64..).zip(parts) {
            let of_log = embedded.as_ref().filter(|(log, _)| *log == index);
            let group = Arc::clone(of_log.map_or(&own, |(_, group)| group));
            metaslabs.push(self.live_metaslab(geometry, index, group, part, availability));
        }
        let groups = std::iter::once(own).chain(embedded.map(|(_, group)| group)).collect();
        LiveVdev {
            geometry,
            metaslabs,
            groups,
            objects: Arc::new(Mutex::new(objects)),
            allocating: role.allocating,
        }
    }

    fn live_metaslab(
        &self,
        geometry: VdevGeometry,
        index: u64,
        group: Arc<Group>,
        part: Option<Metaslab>,
        availability: Availability,
    ) -> Arc<LiveMetaslab> {
        let id = MetaslabId { vdev: geometry.vdev, index };
        let range = geometry.metaslab_range(index);
        let available = availability == Availability::Now;
        let parts = part.map(Metaslab::into_parts);
        let metaslab =
            LiveMetaslab::new(id, range, geometry.ashift, Arc::clone(&group), parts, available);
        let mut state = metaslab.state.lock();
        group.insert(OrderKey::new(None, state.weight, index));
        metaslab.reweigh(&mut state, &self.context.features());
        if available {
            let mut totals = group.totals.lock();
            totals.space = totals.space.saturating_add(metaslab.size());
            let allocated = state.allocated.max(0).cast_unsigned();
            totals.allocated = totals.allocated.saturating_add(allocated);
        } else {
            self.arrivals.lock().insert(id);
        }
        drop(state);
        Arc::new(metaslab)
    }

    /// Adds a vdev without metaslabs in use. Its array of space maps is created in the next pass.
    ///
    /// # Errors
    /// Its geometry is impossible, or there is a vdev with this number.
    pub fn add_vdev(
        &self,
        geometry: VdevGeometry,
        role: VdevRole,
        availability: Availability,
    ) -> Result<(), MetaslabError> {
        let count = geometry.metaslab_count()?;
        let vdev = geometry.vdev;
        let mut topology = self.topology.write();
        if topology.vdevs.contains_key(&vdev) || topology.removed.contains_key(&vdev) {
            return Err(MetaslabError::Vdev { vdev });
        }
        let parts = (0..count).map(|_| (0, None)).collect();
        let live = self.live_vdev(geometry, role, VdevObjects::default(), parts, availability);
        Arc::make_mut(&mut topology).insert(Arc::new(live));
        drop(topology);
        self.assess_groups();
        Ok(())
    }

    /// Grows a vdev to `asize` allocatable bytes: it gets more metaslabs, whose space is usable
    /// when the syncing txg is on disk.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn grow_vdev(&self, vdev: VdevId, asize: u64) -> Result<(), MetaslabError> {
        let mut topology = self.topology.write();
        let old = topology.vdevs.get(&vdev).ok_or(MetaslabError::Vdev { vdev })?;
        let geometry = VdevGeometry { asize: asize.max(old.geometry.asize), ..old.geometry };
        let count = geometry.metaslab_count()?;
        let mut metaslabs = old.metaslabs.clone();
        let group = old.groups.first().ok_or(MetaslabError::Vdev { vdev })?;
        for index in metaslabs.len() as u64..count {
            let group = Arc::clone(group);
            let new = self.live_metaslab(geometry, index, group, None, Availability::AfterCommit);
            metaslabs.push(new);
        }
        let live = LiveVdev {
            geometry,
            metaslabs,
            groups: old.groups.clone(),
            objects: Arc::clone(&old.objects),
            allocating: old.allocating,
        };
        Arc::make_mut(&mut topology).insert(Arc::new(live));
        Ok(())
    }

    /// Sets whether new blocks may be put on a vdev.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn set_allocating(
        &self,
        vdev: VdevId,
        allocating: Allocating,
    ) -> Result<(), MetaslabError> {
        let mut topology = self.topology.write();
        let old = topology.vdevs.get(&vdev).ok_or(MetaslabError::Vdev { vdev })?;
        let live = LiveVdev {
            geometry: old.geometry,
            metaslabs: old.metaslabs.clone(),
            groups: old.groups.clone(),
            objects: Arc::clone(&old.objects),
            allocating,
        };
        Arc::make_mut(&mut topology).insert(Arc::new(live));
        Ok(())
    }
}
