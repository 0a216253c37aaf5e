//! The vdevs of a tree, one by one.

use super::{NodeId, Role, VdevTree};
use crate::config::{AllocationBias, VdevConfig, VdevKind};
use crate::dtl::TxgSet;
use crate::health::{Health, LeafEvent};
use crate::indirect::IndirectMapping;
use crate::statistics::{ErrorCounts, IoCounts};
use rzfs_blockdev::BlockDevice;
use rzfs_format::config::{PoolConfig, VdevZaps};
use rzfs_format::nvlist::NvList;
use rzfs_format::{FormatError, Guid, ObjectId, VdevId};
use std::fmt;
use std::sync::Arc;

impl VdevTree {
    /// The root.
    #[must_use]
    pub fn root(&self) -> Vdev<'_> {
        Vdev::new(self, NodeId::ROOT)
    }

    /// A top-level vdev.
    #[must_use]
    pub fn top_level(&self, vdev: VdevId) -> Option<Vdev<'_>> {
        self.top_node(vdev).map(|id| Vdev::new(self, id))
    }

    /// All top-level vdevs by id, holes and missing ones included.
    pub fn top_levels(&self) -> impl Iterator<Item = Vdev<'_>> {
        self.root().children()
    }

    /// The vdev with this guid.
    #[must_use]
    pub fn by_guid(&self, guid: Guid) -> Option<Vdev<'_>> {
        self.find(guid).map(|id| Vdev::new(self, id))
    }

    /// All vdevs, parents before their children.
    pub fn vdevs(&self) -> impl Iterator<Item = Vdev<'_>> {
        (0..).map(NodeId).take(self.nodes.len()).map(|id| Vdev::new(self, id))
    }

    /// All leaves that are devices.
    pub fn leaves(&self) -> impl Iterator<Item = Vdev<'_>> {
        self.vdevs().filter(|vdev| vdev.kind().is_device())
    }

    /// Gives up leaves that are [deleted files](BlockDevice::is_deleted), as their contents are
    /// lost with the process; returns the first one that is required.
    pub fn give_up_deleted(&self) -> Option<Vdev<'_>> {
        self.leaves().find(|vdev| {
            let Some(leaf) = self.leaf(vdev.node_id()).filter(|leaf| leaf.is_usable()) else {
                return false;
            };
            if !leaf.device().is_some_and(|device| device.is_deleted()) {
                return false;
            }
            if self.is_needed_for_good(vdev.node_id()) {
                return true;
            }
            tracing::warn!(vdev = vdev.name(), "an image was deleted, and others have what it has");
            leaf.close_device();
            self.transition(vdev.node_id(), LeafEvent::Vanished);
            false
        })
    }

    /// The configuration of the whole tree, with changes since it was opened.
    #[must_use]
    pub fn config(&self) -> VdevConfig {
        self.root().config()
    }

    /// The sum of all guids, modulo 2^64, as uberblocks have it (spec 01, section 3.6).
    #[must_use]
    pub fn guid_sum(&self) -> u64 {
        self.vdevs().fold(0, |sum, vdev| sum.wrapping_add(vdev.guid().get()))
    }

    /// The configuration for the MOS: `pool` with this tree, and flags in stored form.
    ///
    /// # Errors
    /// [`FormatError`] when a text is invalid in a list.
    pub fn mos_config(
        &self,
        pool: &PoolConfig,
        vdev_zaps: VdevZaps,
    ) -> Result<NvList, FormatError> {
        let pool = PoolConfig {
            vdev_tree: self.root().config_to_store().to_nvlist()?,
            vdev_children: Some(self.top_levels().count() as u64),
            holes: self.holes(),
            ..pool.clone()
        };
        pool.to_mos_config(vdev_zaps)
    }

    /// Ids of the slots of removed log devices.
    pub(crate) fn holes(&self) -> Vec<u64> {
        let holes = self.top_levels().filter(|top| top.kind() == VdevKind::Hole);
        holes.map(Vdev::id).collect()
    }
}

/// A vdev in its tree; cheap to copy.
#[derive(Clone, Copy)]
pub struct Vdev<'a> {
    tree: &'a VdevTree,
    pub(crate) id: NodeId,
}

impl<'a> Vdev<'a> {
    pub(crate) fn new(tree: &'a VdevTree, id: NodeId) -> Self {
        Self { tree, id }
    }

    fn node(self) -> &'a super::Node {
        self.tree.node(self.id)
    }

    /// What it is.
    #[must_use]
    pub fn kind(self) -> VdevKind {
        self.node().kind
    }

    /// Its position in the parent; for a top-level vdev the number in addresses.
    #[must_use]
    pub fn id(self) -> u64 {
        self.node().id
    }

    /// Its guid; 0 for holes and missing top-level vdevs.
    #[must_use]
    pub fn guid(self) -> Guid {
        // Only the root's can change.
        if self.id == NodeId::ROOT { self.own_config().guid } else { self.node().guid }
    }

    /// The name shown by tools: a path, or kind and position.
    #[must_use]
    pub fn name(self) -> &'a str {
        &self.node().name
    }

    /// Its configuration without the children.
    #[must_use]
    pub fn own_config(self) -> Arc<VdevConfig> {
        self.node().config.get()
    }

    /// Its configuration with all descendants.
    #[must_use]
    pub fn config(self) -> VdevConfig {
        let mut config = VdevConfig::clone(&self.own_config());
        config.children = self.children().map(Vdev::config).collect();
        config
    }

    /// Its configuration with all descendants, as stored: the flags of leaves contain their states
    /// (spec 07, section 4.3).
    #[must_use]
    pub fn config_to_store(self) -> VdevConfig {
        let mut config = VdevConfig::clone(&self.own_config());
        config.flags = self.tree.flags_to_store(self.id, &config.flags);
        config.children = self.children().map(Vdev::config_to_store).collect();
        config
    }

    /// Its parent.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        self.node().parent.map(|id| Self { id, ..self })
    }

    /// Its children, by position.
    pub fn children(self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + 'a {
        self.node().children.iter().map(move |id| Self { id: *id, ..self })
    }

    /// All leaves that are devices among it and its descendants.
    #[must_use]
    pub fn leaves_below(self) -> Vec<Self> {
        let mut leaves = Vec::new();
        let mut waiting = vec![self];
        while let Some(vdev) = waiting.pop() {
            if vdev.kind().is_device() {
                leaves.push(vdev);
            }
            waiting.extend(vdev.children().rev());
        }
        leaves
    }

    /// The top-level vdev that contains it; `None` for the root.
    #[must_use]
    pub fn top_level(self) -> Option<Self> {
        let parent = self.parent()?;
        if parent.kind() == VdevKind::Root { Some(self) } else { parent.top_level() }
    }

    /// Its state.
    #[must_use]
    pub fn health(self) -> Health {
        self.tree.node_health(self.id)
    }

    /// Its errors so far.
    #[must_use]
    pub fn errors(self) -> ErrorCounts {
        self.node().counters.errors()
    }

    /// Resets its errors.
    pub fn clear_errors(self) {
        self.node().counters.clear_errors();
    }

    /// Its reads and writes so far: a leaf's own, or the sum over its leaves.
    #[must_use]
    pub fn io(self) -> IoCounts {
        let own = self.node().counters.io();
        self.children().map(Vdev::io).fold(own, |sum, child| IoCounts {
            reads: sum.reads.saturating_add(child.reads),
            bytes_read: sum.bytes_read.saturating_add(child.bytes_read),
            writes: sum.writes.saturating_add(child.writes),
            bytes_written: sum.bytes_written.saturating_add(child.bytes_written),
        })
    }

    /// The tree it belongs to.
    pub(crate) fn tree(self) -> &'a VdevTree {
        self.tree
    }

    /// Its node.
    pub(crate) fn node_id(self) -> NodeId {
        self.id
    }

    /// Whether it is a top-level vdev for the intent log.
    #[must_use]
    pub fn is_log(self) -> bool {
        self.node().is_log()
    }

    /// Whether blocks can be allocated on it: a top-level vdev with a metaslab array.
    #[must_use]
    pub fn has_metaslabs(self) -> bool {
        self.own_config().top.metaslab_array.is_some_and(|array| array != ObjectId(0))
    }

    /// The device of a leaf, whatever its state.
    #[must_use]
    pub fn device(self) -> Option<Arc<dyn BlockDevice>> {
        self.tree.leaf(self.id)?.device()
    }

    /// Whether a leaf is writable and not known to lack discard.
    #[must_use]
    pub fn can_trim(self) -> bool {
        self.tree.leaf(self.id).is_some_and(super::super::leaf::Leaf::can_trim)
    }

    /// Whether a leaf is known to lack what was born in `txg`.
    #[must_use]
    pub fn lacks(self, txg: rzfs_format::Txg) -> bool {
        match &self.node().role {
            Role::Device(leaf) => leaf.lacks(txg),
            Role::DistributedSpare(spare) => spare.missing.lacks(txg),
            _ => false,
        }
    }

    /// Whether a usable leaf is known to lack something.
    #[must_use]
    pub fn lacks_data(self) -> bool {
        let lacks = |missing: TxgSet| !missing.is_empty();
        self.health().is_usable() && self.missing_txgs().is_some_and(lacks)
    }

    /// The txgs that a leaf lacks; `None` if unknown.
    #[must_use]
    pub fn missing_txgs(self) -> Option<TxgSet> {
        match &self.node().role {
            Role::Device(leaf) => leaf.missing().get(),
            Role::DistributedSpare(spare) => spare.missing.get(),
            _ => None,
        }
    }

    /// log2 of the smallest I/O of a top-level vdev.
    #[must_use]
    pub fn ashift(self) -> Option<u32> {
        self.node().space.map(|space| space.ashift)
    }

    /// Allocatable bytes of a top-level vdev, redundancy included.
    #[must_use]
    pub fn asize(self) -> Option<u64> {
        self.node().space.map(|space| space.asize)
    }

    /// The number of parity columns of a raidz or draid.
    #[must_use]
    pub fn parity(self) -> Option<usize> {
        match &self.node().role {
            Role::Raidz(geometry) => Some(geometry.parity()),
            Role::Draid(geometry) => Some(geometry.shape().parity),
            _ => None,
        }
    }

    /// The role of a top-level vdev; `None` for ordinary data. Only [`AllocationBias::Log`] is in
    /// the configuration of a pool on disk, the others are in the vdev's ZAP.
    #[must_use]
    pub fn allocation_bias(self) -> Option<AllocationBias> {
        if self.node().is_log() {
            return Some(AllocationBias::Log);
        }
        self.node().bias.get().copied().or_else(|| self.own_config().top.allocation_bias)
    }

    /// The mapping of a removed vdev, once it is loaded.
    #[must_use]
    pub fn mapping(self) -> Option<&'a IndirectMapping> {
        match &self.node().role {
            Role::Indirect(mapping) => mapping.get(),
            _ => None,
        }
    }

    /// The vdev id in addresses, if it is a top-level vdev.
    #[must_use]
    pub fn vdev_id(self) -> Option<VdevId> {
        let is_top = self.parent().is_some_and(|parent| parent.kind() == VdevKind::Root);
        if is_top { u32::try_from(self.id()).ok().map(VdevId) } else { None }
    }
}

impl fmt::Debug for Vdev<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vdev({} {} {})", self.kind().name(), self.name(), self.guid())
    }
}
