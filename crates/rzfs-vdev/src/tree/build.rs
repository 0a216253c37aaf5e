//! From a configuration to a tree: all rules of spec 07, section 2.

use super::record::ConfigRecord;
use super::{DistributedSpare, Node, NodeId, Role, Space, TreeOptions, VdevTree};
use crate::config::{DraidRecord, VdevConfig, VdevKind};
use crate::draid::{self, DraidGeometry, DraidProblem, DraidShape};
use crate::dtl::DirtyTimeLog;
use crate::error::{ConfigError, ConfigProblem};
use crate::leaf::{Leaf, LeafDevices};
use crate::raidz::{RaidzGeometry, Reflow};
use crate::statistics::Counters;
use rzfs_format::Guid;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Maximum depth of a tree: root, top-level vdev, and nested `spare` and `replacing` vdevs below
/// it.
const MAX_DEPTH: usize = 16;

/// First pool version with several parity columns, hot spares and mandatory `nparity`.
const VERSION_RAIDZ2: u64 = 3;
/// First pool version with log devices.
const VERSION_LOG: u64 = 7;
/// First pool version with three parity columns.
const VERSION_RAIDZ3: u64 = 17;
/// First pool version with holes.
const VERSION_HOLE: u64 = 19;

type Nodes = (Vec<Arc<Node>>, HashMap<Guid, NodeId>);

impl VdevTree {
    /// Builds the tree of a configuration and opens its leaves.
    ///
    /// Leaves without a device are part of the tree; [`Self::health`] reports whether the pool can
    /// be read.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is not a vdev tree (spec 07, section 2).
    pub fn open(
        config: VdevConfig,
        devices: &dyn LeafDevices,
        options: TreeOptions,
    ) -> Result<Self, ConfigError> {
        let (nodes, by_guid) = build(config, devices, &options)?;
        Ok(Self { nodes, by_guid, options, labels: Arc::default(), giving_up: Arc::default() })
    }

    /// The tree with more top-level vdevs after the existing ones.
    ///
    /// # Errors
    /// [`ConfigError`] if a vdev is impossible, or not at the next position.
    pub fn grown(
        &self,
        tops: Vec<VdevConfig>,
        devices: &dyn LeafDevices,
    ) -> Result<Self, ConfigError> {
        let (nodes, by_guid) = extend(self, tops, devices)?;
        let (labels, giving_up) = (Arc::clone(&self.labels), Arc::clone(&self.giving_up));
        Ok(Self { nodes, by_guid, options: self.options, labels, giving_up })
    }
}

/// Builds the nodes, root first.
fn build(
    config: VdevConfig,
    devices: &dyn LeafDevices,
    options: &TreeOptions,
) -> Result<Nodes, ConfigError> {
    if config.kind != VdevKind::Root {
        return Err(fault(&config, ConfigProblem::NotRoot));
    }
    let mut builder =
        Builder { devices, options, first: 0, nodes: Vec::new(), by_guid: HashMap::new() };
    builder.add(config, Place { parent: None, position: 0, depth: 0, needs: Needs::default() })?;
    builder.connect_distributed_spares()?;
    Ok((builder.nodes.into_iter().map(Arc::new).collect(), builder.by_guid))
}

/// The nodes of a tree with more top-level vdevs: the same ones, except for the root, followed by
/// the new ones.
fn extend(
    tree: &VdevTree,
    tops: Vec<VdevConfig>,
    devices: &dyn LeafDevices,
) -> Result<Nodes, ConfigError> {
    let old = tree.node(NodeId::ROOT);
    let mut builder = Builder {
        devices,
        options: tree.options(),
        first: tree.nodes.len(),
        nodes: Vec::new(),
        by_guid: tree.by_guid.clone(),
    };
    let mut children = old.children.clone();
    for top in tops {
        let (parent, position) = (Some((NodeId::ROOT, old.kind)), children.len() as u64);
        let place = Place { parent, position, depth: 1, needs: Needs::default() };
        children.push(builder.add(top, place)?);
    }
    builder.connect_distributed_spares()?;
    let root = Node {
        kind: old.kind,
        guid: old.guid,
        id: old.id,
        is_log: old.is_log,
        config: old.config.clone(),
        name: Arc::clone(&old.name),
        parent: None,
        children,
        role: Role::Root,
        space: None,
        bias: OnceLock::new(),
        counters: Arc::clone(&old.counters),
    };
    let kept = tree.nodes.iter().skip(1).cloned();
    let nodes = std::iter::once(Arc::new(root)).chain(kept);
    Ok((nodes.chain(builder.nodes.into_iter().map(Arc::new)).collect(), builder.by_guid))
}

fn fault(config: &VdevConfig, problem: ConfigProblem) -> ConfigError {
    ConfigError { kind: config.kind.name(), guid: config.guid, id: config.id, problem }
}

/// A parent's requirements on a child's device.
#[derive(Clone, Copy, Default)]
struct Needs {
    asize: u64,
    ashift: Option<u32>,
}

/// The place of a vdev in the tree.
#[derive(Clone, Copy)]
struct Place {
    parent: Option<(NodeId, VdevKind)>,
    position: u64,
    depth: usize,
    needs: Needs,
}

struct Builder<'a> {
    devices: &'a dyn LeafDevices,
    options: &'a TreeOptions,
    /// Index of the first of the nodes.
    first: usize,
    nodes: Vec<Node>,
    by_guid: HashMap<Guid, NodeId>,
}

impl Builder<'_> {
    fn add(&mut self, mut config: VdevConfig, place: Place) -> Result<NodeId, ConfigError> {
        self.check_place(&config, place)?;
        let space = match place.parent {
            Some((_, VdevKind::Root)) => top_level_space(&config)?,
            _ => None,
        };
        let needs = match space {
            Some(space) => Needs {
                asize: min_asize(space.asize, config.top.metaslab_shift),
                ashift: Some(space.ashift),
            },
            None => place.needs,
        };
        let role = self.role(&config, needs)?;
        let child_needs = Needs { asize: child_asize(&role, &config, needs.asize), ..needs };
        let children = std::mem::take(&mut config.children);
        let index = self.nodes.len();
        let id = NodeId(u32::try_from(self.first.saturating_add(index)).unwrap_or(u32::MAX));
        if config.guid != Guid(0) && self.by_guid.insert(config.guid, id).is_some() {
            return Err(fault(&config, ConfigProblem::DuplicateGuid));
        }
        let kind = config.kind;
        let name = display_name(&config, children.len());
        let parent = place.parent.map(|(id, _)| id);
        let counters = Arc::new(Counters::default());
        let is_top_level = parent == Some(NodeId::ROOT);
        self.nodes.push(Node {
            kind,
            guid: config.guid,
            id: config.id,
            is_log: is_top_level && config.top.is_log.is_some_and(|is_log| is_log != 0),
            config: ConfigRecord::new(config),
            name,
            parent,
            children: Vec::new(),
            role,
            space,
            bias: OnceLock::new(),
            counters,
        });
        let mut ids = Vec::with_capacity(children.len());
        for (position, child) in (0..).zip(children) {
            let depth = place.depth + 1;
            let parent = Some((id, kind));
            ids.push(self.add(child, Place { parent, position, depth, needs: child_needs })?);
        }
        if let Some(node) = self.nodes.get_mut(index) {
            node.children = ids;
        }
        Ok(id)
    }

    fn check_place(&self, config: &VdevConfig, place: Place) -> Result<(), ConfigError> {
        let refuse = |problem| Err(fault(config, problem));
        if place.depth > MAX_DEPTH {
            return refuse(ConfigProblem::TooDeep);
        }
        if config.id != place.position {
            return refuse(ConfigProblem::Position { position: place.position });
        }
        if let Some((_, parent)) = place.parent
            && !may_contain(parent, config.kind)
        {
            return refuse(ConfigProblem::Misplaced { parent: parent.name() });
        }
        if config.kind.is_leaf() && !config.children.is_empty() {
            return refuse(ConfigProblem::LeafWithChildren);
        }
        if !config.kind.is_leaf() && config.children.is_empty() {
            return refuse(ConfigProblem::NoChildren);
        }
        let is_log = config.top.is_log.is_some_and(|is_log| is_log != 0);
        let needed = match config.kind {
            VdevKind::Hole => VERSION_HOLE,
            VdevKind::Spare => VERSION_RAIDZ2,
            _ if is_log => VERSION_LOG,
            _ => 0,
        };
        if self.options.version < needed {
            return refuse(ConfigProblem::Version { version: self.options.version });
        }
        Ok(())
    }

    fn role(&self, config: &VdevConfig, needs: Needs) -> Result<Role, ConfigError> {
        Ok(match config.kind {
            VdevKind::Root => Role::Root,
            VdevKind::Disk | VdevKind::File => {
                let leaf = Leaf::open(config, self.devices, needs.asize, needs.ashift);
                Role::Device(Box::new(leaf))
            }
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => Role::Mirrored,
            VdevKind::Raidz => Role::Raidz(self.raidz(config, needs)?),
            VdevKind::Draid => Role::Draid(Box::new(self.draid(config, needs)?)),
            VdevKind::DistributedSpare => Role::DistributedSpare(DistributedSpare {
                draid: NodeId::ROOT,
                index: config
                    .leaf
                    .spare_id
                    .and_then(|index| usize::try_from(index).ok())
                    .ok_or_else(|| fault(config, ConfigProblem::Absent { key: "spareid" }))?,
                missing: DirtyTimeLog::unloaded(config.leaf.waits_for_resilver()),
            }),
            VdevKind::Indirect => Role::Indirect(OnceLock::new()),
            VdevKind::Hole | VdevKind::Missing => Role::Empty,
        })
    }

    fn parity(&self, config: &VdevConfig) -> Result<usize, ConfigError> {
        let version = self.options.version;
        let Some(parity) = config.nparity else {
            if version >= VERSION_RAIDZ2 {
                return Err(fault(config, ConfigProblem::Absent { key: "nparity" }));
            }
            return Ok(1);
        };
        match parity {
            2 if version < VERSION_RAIDZ2 => Err(fault(config, ConfigProblem::Version { version })),
            3 if version < VERSION_RAIDZ3 => Err(fault(config, ConfigProblem::Version { version })),
            1..=3 => Ok(parity as usize),
            value => Err(fault(config, ConfigProblem::Value { key: "nparity", value })),
        }
    }

    fn raidz(&self, config: &VdevConfig, needs: Needs) -> Result<RaidzGeometry, ConfigError> {
        let parity = self.parity(config)?;
        let ashift = needs.ashift.unwrap_or(0);
        let expansions = config.raidz_expand_txgs.clone();
        let word = self.options.reflow;
        let reflow = match Reflow::try_from(word) {
            _ if !config.raidz_expanding => None,
            Ok(reflow) => Some(reflow),
            Err(_) => {
                let (key, value) = ("ub_raidz_reflow_info", word.0);
                return Err(fault(config, ConfigProblem::Value { key, value }));
            }
        };
        let children = config.children.len();
        if children <= parity || children > RaidzGeometry::MAX_CHILDREN {
            let value = children as u64;
            return Err(fault(config, ConfigProblem::Value { key: "children", value }));
        }
        let value = expansions.len() as u64;
        RaidzGeometry::new(ashift, parity, children, expansions, reflow)
            .ok_or_else(|| fault(config, ConfigProblem::Value { key: "raidz_expand_txgs", value }))
    }

    fn draid(&self, config: &VdevConfig, needs: Needs) -> Result<DraidGeometry, ConfigError> {
        let children = config.children.len();
        let DraidRecord { data, spares, groups, failure_group_children } = config
            .draid
            .ok_or_else(|| fault(config, ConfigProblem::Absent { key: "draid_ndata" }))?;
        if let Some(value) = failure_group_children
            && value != children as u64
        {
            return Err(fault(config, ConfigProblem::Value { key: "draid_nchildren", value }));
        }
        let shape = DraidShape {
            ashift: needs.ashift.unwrap_or(0),
            parity: self.parity(config)?,
            data: usize::try_from(data).unwrap_or(usize::MAX),
            spares: usize::try_from(spares).unwrap_or(usize::MAX),
            groups,
            children,
        };
        DraidGeometry::new(shape).map_err(|problem| {
            let problem = match problem {
                DraidProblem::Value { key, value } => ConfigProblem::Value { key, value },
                DraidProblem::Map(_) => ConfigProblem::PermutationMap,
            };
            fault(config, problem)
        })
    }

    /// Finds the dRAID of every distributed spare.
    fn connect_distributed_spares(&mut self) -> Result<(), ConfigError> {
        for index in 0..self.nodes.len() {
            let Some(Node { config, role: Role::DistributedSpare(spare), .. }) =
                self.nodes.get(index)
            else {
                continue;
            };
            let absent = ConfigProblem::Absent { key: "top_guid" };
            let config = &config.get();
            let top = config.top_guid.ok_or_else(|| fault(config, absent))?;
            let draid = self.by_guid.get(&top).copied();
            let node = |id: NodeId| self.nodes.get((id.0 as usize).checked_sub(self.first)?);
            let spares = draid.and_then(|id| match &node(id)?.role {
                Role::Draid(geometry) => Some(geometry.shape().spares),
                _ => None,
            });
            let bad = |key, value| Err(fault(config, ConfigProblem::Value { key, value }));
            let (Some(found), Some(spares)) = (draid, spares) else {
                return bad("top_guid", top.get());
            };
            if spare.index >= spares {
                return bad("spareid", spare.index as u64);
            }
            if let Some(Node { role: Role::DistributedSpare(spare), .. }) =
                self.nodes.get_mut(index)
            {
                spare.draid = found;
            }
        }
        Ok(())
    }
}

/// Which kinds may be children of which (spec 07, section 2).
fn may_contain(parent: VdevKind, child: VdevKind) -> bool {
    use VdevKind as K;
    match parent {
        // Replacing a single disk leaves a `replacing` or `spare` vdev at the top.
        K::Root => !matches!(child, K::Root | K::DistributedSpare),
        // Tools only create mirrors of devices, but OpenZFS itself accepts mirrors of raidz.
        K::Mirror => matches!(
            child,
            K::Disk | K::File | K::Missing | K::Replacing | K::Spare | K::Raidz | K::Draid
        ),
        K::Raidz | K::Draid => {
            matches!(child, K::Disk | K::File | K::Missing | K::Replacing | K::Spare)
        }
        K::Replacing | K::Spare => matches!(
            child,
            K::Disk | K::File | K::Missing | K::Replacing | K::Spare | K::DistributedSpare
        ),
        _ => false,
    }
}

/// Sector size and size of a top-level vdev; none for an empty one.
fn top_level_space(config: &VdevConfig) -> Result<Option<Space>, ConfigError> {
    if matches!(config.kind, VdevKind::Hole | VdevKind::Missing) {
        return Ok(None);
    }
    let required =
        |key, value: Option<u64>| value.ok_or_else(|| fault(config, ConfigProblem::Absent { key }));
    let refuse = |key, value| Err(fault(config, ConfigProblem::Value { key, value }));
    let shift = required("ashift", config.top.ashift)?;
    let asize = required("asize", config.top.asize)?;
    let ashift = match u32::try_from(shift) {
        Ok(ashift @ 9..=16) => ashift,
        _ => return refuse("ashift", shift),
    };
    if asize % (1 << ashift) != 0 || asize > i64::MAX as u64 {
        return refuse("asize", asize);
    }
    match config.top.metaslab_shift {
        Some(metaslab) if metaslab != 0 && !(shift..64).contains(&metaslab) => {
            refuse("metaslab_shift", metaslab)
        }
        _ => Ok(Some(Space { ashift, asize })),
    }
}

/// The minimum size of a top-level vdev: its whole metaslabs (spec 07, section 3.1).
fn min_asize(asize: u64, metaslab_shift: Option<u64>) -> u64 {
    match metaslab_shift.and_then(|shift| u32::try_from(shift).ok()) {
        Some(shift @ 1..64) => (asize >> shift) << shift,
        _ => asize,
    }
}

/// The minimum size of a child for its parent to have `asize`.
fn child_asize(role: &Role, config: &VdevConfig, asize: u64) -> u64 {
    match role {
        Role::Raidz(geometry) => asize.div_ceil(geometry.physical_width().max(1) as u64),
        Role::Draid(geometry) => {
            let shape = geometry.shape();
            let working = shape.children.saturating_sub(shape.spares).max(1) as u64;
            let used = asize.div_ceil(working).checked_next_multiple_of(draid::ROW_HEIGHT);
            used.unwrap_or(u64::MAX).saturating_add(draid::RESERVE)
        }
        _ if config.kind == VdevKind::Root => 0,
        _ => asize,
    }
}

/// The name shown by tools.
fn display_name(config: &VdevConfig, children: usize) -> Arc<str> {
    let id = config.id;
    let parity = config.nparity.unwrap_or(1);
    match (config.kind, config.draid) {
        (VdevKind::Root, _) => "root".into(),
        (VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare, _) => {
            match &config.hints.path {
                Some(path) => path.to_text().into(),
                None => config.guid.to_string().into(),
            }
        }
        (VdevKind::Raidz, _) => format!("raidz{parity}-{id}").into(),
        (VdevKind::Draid, Some(draid)) => {
            let DraidRecord { data, spares, .. } = draid;
            format!("draid{parity}:{data}d:{children}c:{spares}s-{id}").into()
        }
        (kind, _) => format!("{}-{id}", kind.name()).into(),
    }
}
