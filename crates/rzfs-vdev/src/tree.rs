//! The vdev tree of a pool.

mod build;
mod changes;
mod clear;
mod current;
mod record;
mod space;
mod vdev;

pub use changes::Persistence;
pub use current::CurrentTree;
pub use vdev::Vdev;

use crate::config::{AllocationBias, VdevKind};
use crate::draid::DraidGeometry;
use crate::dtl::{DirtyTimeLog, TxgSet};
use crate::health::{AuxReason, Health, Redundancy, VdevState, aggregate};
use crate::indirect::{IndirectMapping, MappingError};
use crate::leaf::Leaf;
use crate::raidz::RaidzGeometry;
use crate::statistics::Counters;
use parking_lot::Mutex;
use record::ConfigRecord;
use rzfs_format::uberblock::RaidzReflow;
use rzfs_format::{Guid, VdevId};
use rzfs_tunables::Tunables;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// The parameters of a tree besides its configuration.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// The pool's version; 5000 for one with feature flags.
    pub version: u64,
    /// The progress of a RAID-Z expansion, from the uberblock.
    pub reflow: RaidzReflow,
    /// Top-level vdevs that may be missing (`zfs_max_missing_tvds`).
    pub max_missing_tvds: usize,
    /// Limits of reading and writing.
    pub tunables: IoTunables,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            version: 5000,
            reflow: RaidzReflow::default(),
            max_missing_tvds: 0,
            tunables: IoTunables::default(),
        }
    }
}

/// Limits of reading and writing.
#[derive(Clone, Copy, Debug)]
pub struct IoTunables {
    /// Maximum size of joined reads or writes of a rotating disk (`zfs_vdev_aggregation_limit`).
    pub aggregation_limit: usize,
    /// The same for other devices (`zfs_vdev_aggregation_limit_non_rotating`).
    pub aggregation_limit_non_rotating: usize,
    /// Maximum gap read to join two reads (`zfs_vdev_read_gap_limit`).
    pub read_gap_limit: usize,
    /// Maximum concurrent intent log writes of a leaf (`zfs_vdev_sync_write_max_active`).
    pub sync_write_max_active: usize,
    /// Maximum concurrent txg writes of a leaf (`zfs_vdev_async_write_max_active`).
    pub async_write_max_active: usize,
    /// Bytes of writes kept until a flush confirms them, over all leaves. Writes in progress are
    /// not included, nor what a txg writes while a required device fails.
    pub unconfirmed_max: usize,
    /// Maximum concurrent discards of a leaf (`zfs_vdev_trim_max_active`).
    pub trim_max_active: usize,
    /// Maximum combinations of differing copies tried for a block
    /// (`zfs_reconstruct_indirect_combinations_max`).
    pub reconstruct_indirect_combinations_max: u64,
    /// Maximum reconstructions from parity tried for a block with a wrong checksum: all of them
    /// with two parity columns, and with three up to 58 children.
    pub reconstruct_parity_combinations_max: u64,
}

impl From<&Tunables> for IoTunables {
    fn from(tunables: &Tunables) -> Self {
        Self {
            aggregation_limit: tunables.zfs_vdev_aggregation_limit,
            aggregation_limit_non_rotating: tunables.zfs_vdev_aggregation_limit_non_rotating,
            read_gap_limit: tunables.zfs_vdev_read_gap_limit,
            sync_write_max_active: tunables.zfs_vdev_sync_write_max_active,
            async_write_max_active: tunables.zfs_vdev_async_write_max_active,
            unconfirmed_max: tunables.rzfs_vdev_unconfirmed_max,
            trim_max_active: tunables.zfs_vdev_trim_max_active,
            reconstruct_indirect_combinations_max: tunables
                .zfs_reconstruct_indirect_combinations_max,
            reconstruct_parity_combinations_max: tunables.rzfs_reconstruct_parity_combinations_max,
        }
    }
}

impl Default for IoTunables {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

/// Index of a vdev in its tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// The root's.
    pub(crate) const ROOT: Self = Self(0);

    /// The node at this index.
    #[cfg(test)]
    pub(crate) const fn of_index(index: u32) -> Self {
        Self(index)
    }
}

/// What a vdev does.
#[derive(Debug)]
pub(crate) enum Role {
    Root,
    Device(Box<Leaf>),
    Mirrored,
    Raidz(RaidzGeometry),
    Draid(Box<DraidGeometry>),
    DistributedSpare(DistributedSpare),
    Indirect(OnceLock<IndirectMapping>),
    /// A hole or a missing vdev.
    Empty,
}

/// A spare whose sectors are free columns of a dRAID.
#[derive(Debug)]
pub(crate) struct DistributedSpare {
    pub(crate) draid: NodeId,
    pub(crate) index: usize,
    pub(crate) missing: DirtyTimeLog,
}

/// The space of a top-level vdev.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) ashift: u32,
    pub(crate) asize: u64,
}

/// A vdev. Its children are in `children`; those of its configuration are empty.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: VdevKind,
    pub(crate) guid: Guid,
    /// Position in the parent.
    pub(crate) id: u64,
    /// Whether it is a top-level vdev for the intent log.
    is_log: bool,
    pub(crate) config: ConfigRecord,
    pub(crate) name: Arc<str>,
    pub(crate) parent: Option<NodeId>,
    pub(crate) children: Vec<NodeId>,
    pub(crate) role: Role,
    pub(crate) space: Option<Space>,
    /// The role of a top-level vdev, where only its ZAP has it.
    pub(crate) bias: OnceLock<AllocationBias>,
    pub(crate) counters: Arc<Counters>,
}

impl Node {
    /// Whether it is a top-level log vdev, without which a pool can be read.
    pub(crate) fn is_log(&self) -> bool {
        self.is_log
    }

    /// Whether it is the slot of a removed vdev.
    fn is_gone(&self) -> bool {
        matches!(self.role, Role::Indirect(_)) || self.kind == VdevKind::Hole
    }
}

/// All vdevs of a pool, and reading their blocks.
///
/// Always a root with the top-level vdevs at the positions used in block addresses; every geometry
/// in it is checked. The shape of a tree never changes: a pool that gets more vdevs gets another
/// tree ([`VdevTree::grown`]), which shares the vdevs of this one, including states and counters.
#[derive(Debug)]
pub struct VdevTree {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) by_guid: HashMap<Guid, NodeId>,
    options: TreeOptions,
    pub(crate) labels: Arc<LabelState>,
    /// Held while checking that unconfirmed writes of a leaf are dispensable, and dropping them.
    pub(crate) giving_up: Arc<Mutex<()>>,
}

/// Label state, shared by all trees of the pool.
#[derive(Debug, Default)]
pub(crate) struct LabelState {
    /// Top-level vdevs whose labels are to be rewritten.
    pub(crate) dirty: Mutex<BTreeSet<VdevId>>,
    /// Held while labels are written.
    pub(crate) turn: Mutex<()>,
}

impl VdevTree {
    /// The parameters of the tree besides its configuration.
    pub(crate) const fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// The limits of reading.
    pub(crate) fn tunables(&self) -> &IoTunables {
        &self.options.tunables
    }

    /// The node of an id. All ids come from building the tree; others map to the root.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or_else(|| &self.nodes[0])
    }

    /// The node of a top-level vdev.
    pub(crate) fn top_node(&self, vdev: VdevId) -> Option<NodeId> {
        self.node(NodeId::ROOT).children.get(vdev.get() as usize).copied()
    }

    /// The leaf behind a node, if it is a device.
    pub(crate) fn leaf(&self, id: NodeId) -> Option<&Leaf> {
        match &self.node(id).role {
            Role::Device(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The state of the pool's vdevs as a whole.
    #[must_use]
    pub fn health(&self) -> Health {
        self.node_health(NodeId::ROOT)
    }

    /// A leaf's own state, or what follows from the children's.
    pub(crate) fn node_health(&self, id: NodeId) -> Health {
        self.health_assuming(id, &[])
    }

    /// The state of a vdev assuming other states of leaves.
    pub(crate) fn health_assuming(&self, id: NodeId, assumptions: &[(NodeId, Health)]) -> Health {
        let node = self.node(id);
        if let Some((_, health)) = assumptions.iter().find(|(leaf, _)| *leaf == id) {
            return *health;
        }
        let children = |redundancy| {
            let concrete = |child: &&NodeId| !self.node(**child).is_gone();
            let states: Vec<Health> = node
                .children
                .iter()
                .filter(concrete)
                .map(|child| {
                    let health = self.health_assuming(*child, assumptions);
                    if self.node(*child).is_log() { health.at_most_degraded() } else { health }
                })
                .collect();
            aggregate(redundancy, &states)
        };
        match &node.role {
            Role::Device(leaf) => leaf.health(),
            Role::Root => children(Redundancy::Root { tolerated: self.options.max_missing_tvds }),
            Role::Mirrored => children(Redundancy::Copies),
            Role::Raidz(geometry) => children(Redundancy::Parity(geometry.parity())),
            Role::Draid(geometry) => children(Redundancy::Parity(geometry.shape().parity)),
            Role::DistributedSpare(spare) => self.spare_health(spare),
            Role::Indirect(_) => Health::HEALTHY,
            Role::Empty if node.is_gone() => Health::HEALTHY,
            Role::Empty => Health { state: VdevState::CantOpen, aux: AuxReason::OpenFailed },
        }
    }

    /// A distributed spare works while devices of its dRAID do. The children are examined as
    /// devices only: one of them can be the vdev that contains this spare.
    fn spare_health(&self, spare: &DistributedSpare) -> Health {
        let works = self.node(spare.draid).children.iter().any(|child| {
            let node = self.node(*child);
            let mut leaves = node.children.iter().chain(std::iter::once(child));
            leaves.any(|id| self.leaf(*id).is_some_and(|leaf| leaf.health().is_usable()))
        });
        if works {
            Health::HEALTHY
        } else {
            Health { state: VdevState::CantOpen, aux: AuxReason::NoReplicas }
        }
    }

    /// Sets the txgs that a leaf lacks. Returns whether the leaf exists.
    pub fn set_missing_txgs(&self, leaf: Guid, missing: TxgSet) -> bool {
        match self.by_guid.get(&leaf).map(|id| &self.node(*id).role) {
            Some(Role::Device(leaf)) => leaf.missing().load(missing),
            Some(Role::DistributedSpare(spare)) => spare.missing.load(missing),
            _ => return false,
        }
        true
    }

    /// Sets the role of a top-level vdev from its ZAP. Returns whether the vdev exists and had none
    /// before.
    pub fn set_allocation_bias(&self, vdev: VdevId, bias: AllocationBias) -> bool {
        self.top_node(vdev).is_some_and(|id| self.node(id).bias.set(bias).is_ok())
    }

    /// Sets the mapping of a removed vdev, which is required to read through it.
    ///
    /// # Errors
    /// [`MappingError::NotIndirect`] if it is not a removed vdev or already has a mapping.
    pub fn set_mapping(&self, vdev: VdevId, mapping: IndirectMapping) -> Result<(), MappingError> {
        let refused = MappingError::NotIndirect(vdev);
        let id = self.top_node(vdev).ok_or(refused)?;
        match &self.node(id).role {
            Role::Indirect(slot) => slot.set(mapping).map_err(|_| refused),
            _ => Err(refused),
        }
    }
}
