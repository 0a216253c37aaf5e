//! Plans: all sources of the bytes of one block.
//!
//! A plan takes the stripe map of the block's vdev and resolves every column to the leaves that
//! hold it: one for a plain child, several for mirrors, `replacing` and `spare` vdevs, and the
//! children behind a distributed spare. A block on a removed vdev is planned on the vdevs that its
//! pieces were copied to.

use crate::error::{AddressProblem, VdevError};
use crate::stripe::{DeviceArea, Stripe, StripeColumn, StripeMap};
use crate::tree::{NodeId, Role, VdevTree};
use rzfs_format::units::MAX_BLOCK_SIZE;
use rzfs_format::{Dva, Txg, VdevId, label};
use std::ops::Range;

/// Maximum vdevs visited to find the leaves of one column; more means that the tree is circular.
pub(crate) const MAX_STEPS: usize = 1024;

/// A leaf that holds a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafCopy {
    pub(crate) leaf: NodeId,
    /// Byte position on the device.
    pub(crate) position: u64,
    /// Whether the leaf is known to lack the block.
    pub(crate) stale: bool,
}

/// A column and its sources.
#[derive(Clone, Debug)]
pub(crate) struct PlanColumn {
    /// The child of the top-level vdev.
    pub(crate) child: NodeId,
    /// Bytes with content.
    pub(crate) len: usize,
    /// Zero bytes that follow.
    pub(crate) filler: usize,
    /// Where the content belongs in the block.
    pub(crate) start: usize,
    /// Number of its first sector in the vdev.
    pub(crate) sector: u64,
    /// Its copies in [`Plan::copies`], best first.
    copies: Range<usize>,
}

/// All sources of one block.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) stripes: Vec<Stripe>,
    pub(crate) columns: Vec<PlanColumn>,
    copies: Vec<LeafCopy>,
    /// Bytes of the block as the vdev stores it: whole sectors.
    pub(crate) padded: usize,
    /// Former widths of a RAID-Z vdev.
    pub(crate) past_widths: Range<u64>,
}

impl Plan {
    fn empty(padded: usize) -> Self {
        Self {
            stripes: Vec::new(),
            columns: Vec::new(),
            copies: Vec::new(),
            padded,
            past_widths: 0..0,
        }
    }

    /// Number of columns that no leaf is known to have.
    fn missing_columns(&self) -> usize {
        let has = |column: &PlanColumn| {
            let copies = self.copies.get(column.copies.clone()).unwrap_or_default();
            column.len == 0 || copies.first().is_some_and(|copy| !copy.stale)
        };
        self.columns.iter().filter(|column| !has(column)).count()
    }

    /// The copies of a column, best first.
    pub(crate) fn copies(&self, column: usize) -> &[LeafCopy] {
        let range = self.columns.get(column).map_or(0..0, |column| column.copies.clone());
        self.copies.get(range).unwrap_or_default()
    }

    /// Whether the block lies in one piece, so that copies can be tried one by one.
    pub(crate) fn single_column(&self) -> bool {
        self.columns.len() == 1
    }

    /// Whether all of the block is one data column.
    pub(crate) fn is_one_column(&self) -> bool {
        matches!(self.stripes.as_slice(), [stripe] if stripe.data_columns().len() == 1)
    }

    /// The greatest number of columns that any stripe can lose.
    pub(crate) fn max_parity(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.parity).max().unwrap_or(0)
    }

    /// Sets of columns that fail together: those of one child each, then those that shared a child
    /// when a RAID-Z vdev was narrower (spec 07, section 10.7).
    pub(crate) fn suspects(&self) -> Vec<Vec<usize>> {
        let mut sets: Vec<(NodeId, Vec<usize>)> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            match sets.iter_mut().find(|(child, _)| *child == column.child) {
                Some((_, set)) => set.push(index),
                None => sets.push((column.child, vec![index])),
            }
        }
        sets.sort_by_key(|(child, _)| *child);
        let mut sets: Vec<Vec<usize>> = sets.into_iter().map(|(_, set)| set).collect();
        for width in self.past_widths.clone().rev() {
            for child in 0..width {
                let is_on = |column: &PlanColumn| column.sector.checked_rem(width) == Some(child);
                let set: Vec<usize> = (0..)
                    .zip(&self.columns)
                    .filter(|(_, column)| is_on(column))
                    .map(|(index, _)| index)
                    .collect();
                if !set.is_empty() {
                    sets.push(set);
                }
            }
        }
        sets
    }
}

/// A range of a vdev to plan.
#[derive(Clone, Copy)]
struct Target {
    offset: u64,
    /// Bytes; whole sectors.
    size: usize,
    /// Physical birth, if it is known.
    birth: Option<Txg>,
    /// Where the bytes belong in the block.
    start: usize,
}

impl VdevTree {
    /// Plans the read of `size` bytes at the address `dva`: one plan, or one for each side of a
    /// mirror whose sides are not single devices.
    pub(crate) fn plan(&self, dva: Dva, size: u64, birth: Txg) -> Result<Vec<Plan>, VdevError> {
        let vdev = dva.vdev();
        let fail = |problem| VdevError::Address { vdev, dva, size, problem };
        if !(1..=MAX_BLOCK_SIZE).contains(&size) {
            return Err(fail(AddressProblem::Size));
        }
        let (node, space) = self.holder(vdev).map_err(fail)?;
        let size = (size as usize).next_multiple_of(1 << space.ashift);
        let offset = dva.offset();
        let asize = self.allocated_size(vdev, size as u64, birth).unwrap_or(u64::MAX);
        self.check_range(vdev, offset, asize).map_err(fail)?;
        let target = Target { offset, size, birth: Some(birth), start: 0 };
        if let Role::Indirect(_) = &node.role {
            let mut plan = Plan::empty(size);
            let depth = self.root().children().len();
            self.add_pieces(&mut plan, vdev, target, depth).map_err(fail)?;
            return Ok(vec![plan]);
        }
        let top = self.top_node(vdev).ok_or_else(|| fail(AddressProblem::NoVdev))?;
        let (composite, simple): (Vec<NodeId>, Vec<NodeId>) = match &node.role {
            Role::Mirrored => node.children.iter().partition(|child| self.is_striped(**child)),
            _ => (Vec::new(), Vec::new()),
        };
        if composite.is_empty() {
            return Ok(vec![self.plan_node(top, &[top], target)]);
        }
        let mut plans: Vec<Plan> =
            composite.into_iter().map(|side| self.plan_node(side, &[side], target)).collect();
        if let Some(first) = simple.first() {
            plans.push(self.plan_node(*first, &simple, target));
        }
        // Sides that need no reconstruction first.
        plans.sort_by_key(Plan::missing_columns);
        Ok(plans)
    }

    fn is_striped(&self, id: NodeId) -> bool {
        matches!(self.node(id).role, Role::Raidz(_) | Role::Draid(_))
    }

    /// The plan of a range of one vdev, or of any of several that are copies of each other.
    fn plan_node(&self, id: NodeId, copies: &[NodeId], target: Target) -> Plan {
        let mut plan = Plan::empty(target.size);
        let Target { offset, size, birth, .. } = target;
        let node = self.node(id);
        match &node.role {
            Role::Raidz(geometry) => {
                let map = geometry.map(offset, size, birth.unwrap_or_default());
                plan.past_widths =
                    geometry.original_width() as u64..geometry.physical_width() as u64;
                self.add_map(&mut plan, map, target, Children::Columns(&node.children));
            }
            Role::Draid(geometry) => {
                let map = geometry.map(offset, size);
                self.add_map(&mut plan, map, target, Children::Columns(&node.children));
            }
            _ => {
                let map = StripeMap::single(0, offset, size);
                self.add_map(&mut plan, map, target, Children::Copies(copies));
            }
        }
        plan
    }

    /// Adds the pieces of a range of a removed vdev.
    fn add_pieces(
        &self,
        plan: &mut Plan,
        vdev: VdevId,
        target: Target,
        depth: usize,
    ) -> Result<(), AddressProblem> {
        let depth = depth.checked_sub(1).ok_or(AddressProblem::MappingLoop)?;
        let (node, _) = self.holder(vdev)?;
        let Role::Indirect(mapping) = &node.role else { return Err(AddressProblem::NotMapped) };
        let mapping = mapping.get().ok_or(AddressProblem::MappingNotLoaded)?;
        let pieces = mapping.pieces(target.offset, target.size as u64);
        for piece in pieces.ok_or(AddressProblem::NotMapped)? {
            self.check_range(piece.vdev, piece.offset, piece.len)?;
            let part = Target {
                offset: piece.offset,
                size: piece.len as usize,
                birth: piece.birth,
                start: target.start.saturating_add(piece.start as usize),
            };
            let id = self.top_node(piece.vdev).ok_or(AddressProblem::NoVdev)?;
            let node = self.node(id);
            match &node.role {
                Role::Indirect(_) => self.add_pieces(plan, piece.vdev, part, depth)?,
                Role::Device(_) | Role::Mirrored
                    if !node.children.iter().any(|child| self.is_striped(*child)) =>
                {
                    let map = StripeMap::single(0, part.offset, part.size);
                    self.add_map(plan, map, part, Children::Copies(&[id]));
                }
                // Data copied in pieces can only be where pieces are contiguous.
                _ => return Err(AddressProblem::NotMapped),
            }
        }
        Ok(())
    }

    /// Adds a map of the range.
    fn add_map(&self, plan: &mut Plan, map: StripeMap, target: Target, children: Children<'_>) {
        let first = plan.columns.len();
        for column in map.columns {
            let nodes = match children {
                Children::Columns(nodes) => nodes.get(column.child).map(std::slice::from_ref),
                Children::Copies(nodes) => Some(nodes),
            };
            let nodes = nodes.unwrap_or_default();
            let child = nodes.first().copied().unwrap_or(NodeId::ROOT);
            let copies = if column.len == 0 && column.filler == 0 {
                plan.copies.len()..plan.copies.len()
            } else {
                self.add_copies(plan, nodes, &column, target.birth)
            };
            plan.columns.push(PlanColumn {
                child,
                len: column.len,
                filler: column.filler,
                start: target.start.saturating_add(column.start),
                sector: column.sector,
                copies,
            });
        }
        plan.stripes.extend(map.stripes.into_iter().map(|stripe| Stripe {
            columns: stripe.columns.start + first..stripe.columns.end + first,
            parity: stripe.parity,
        }));
    }

    /// Adds the leaves of a column in read order: first those not known to lack the block,
    /// preferring distributed spares and the least busy ones.
    fn add_copies(
        &self,
        plan: &mut Plan,
        nodes: &[NodeId],
        column: &StripeColumn,
        birth: Option<Txg>,
    ) -> Range<usize> {
        let area = match column.area {
            DeviceArea::Data => label::START_SIZE,
            DeviceArea::Scratch => label::BOOT_AREA.start,
        };
        let start = plan.copies.len();
        let position = area.saturating_add(column.offset);
        if let [child] = nodes
            && let Some(copy) = self.only_copy(*child, position, birth)
        {
            plan.copies.push(copy);
            return start..plan.copies.len();
        }
        let mut search =
            Search { tree: self, position, birth, steps: MAX_STEPS, found: Vec::new() };
        for node in nodes {
            search.visit(*node, Route { stale: false, spare: false });
        }
        let mut found = search.found;
        found.sort_by_key(Candidate::rank);
        let equals =
            found.iter().take_while(|c| Some(c.rank()) == found.first().map(Candidate::rank));
        // Ties are broken by position, so that neighbours stay together in stripes of 2 MiB.
        let equals = equals.count().max(1);
        let preferred = (column.offset >> 21) as usize % equals;
        if let Some(ties) = found.get_mut(..equals) {
            ties.rotate_left(preferred);
        }
        plan.copies.extend(found.into_iter().map(|candidate| candidate.copy));
        start..plan.copies.len()
    }

    /// The copy on a child that is a device, the only candidate.
    fn only_copy(&self, child: NodeId, position: u64, birth: Option<Txg>) -> Option<LeafCopy> {
        let leaf = self.leaf(child).filter(|leaf| leaf.is_usable())?;
        let stale = birth.is_some_and(|birth| leaf.lacks(birth));
        Some(LeafCopy { leaf: child, position, stale })
    }
}

/// The meaning of child indices in a map.
#[derive(Clone, Copy)]
enum Children<'a> {
    /// Each index refers to one vdev.
    Columns(&'a [NodeId]),
    /// Any index refers to any of these vdevs, which are copies of each other.
    Copies(&'a [NodeId]),
}

/// A leaf that was found, with its ranking criteria.
#[derive(Clone, Copy)]
struct Candidate {
    copy: LeafCopy,
    spare: bool,
    load: u32,
}

impl Candidate {
    fn rank(&self) -> (bool, bool, u32) {
        (self.copy.stale, !self.spare, self.load)
    }
}

/// How a leaf was reached.
#[derive(Clone, Copy)]
struct Route {
    /// Through a distributed spare that lacks the block.
    stale: bool,
    /// Through a distributed spare.
    spare: bool,
}

/// The search for the leaves that have a range of a child.
struct Search<'a> {
    tree: &'a VdevTree,
    position: u64,
    birth: Option<Txg>,
    steps: usize,
    found: Vec<Candidate>,
}

impl Search<'_> {
    fn visit(&mut self, id: NodeId, via: Route) {
        let Some(steps) = self.steps.checked_sub(1) else { return };
        self.steps = steps;
        let tree = self.tree;
        match &tree.node(id).role {
            Role::Device(leaf) => {
                let known = self.found.iter().any(|candidate| candidate.copy.leaf == id);
                if !leaf.is_usable() || known {
                    return;
                }
                let lacks = self.birth.is_some_and(|birth| leaf.lacks(birth));
                let stale = via.stale || lacks;
                self.found.push(Candidate {
                    copy: LeafCopy { leaf: id, position: self.position, stale },
                    spare: via.spare,
                    load: leaf.load(self.position),
                });
            }
            Role::Mirrored => {
                for child in &tree.node(id).children {
                    self.visit(*child, via);
                }
            }
            Role::DistributedSpare(spare) => {
                let Role::Draid(geometry) = &tree.node(spare.draid).role else { return };
                let offset = self.position.saturating_sub(label::START_SIZE);
                let device = geometry.spare_device(spare.index, offset);
                let child =
                    device.and_then(|device| tree.node(spare.draid).children.get(device).copied());
                if let Some(child) = child {
                    let lacks = self.birth.is_some_and(|birth| spare.missing.lacks(birth));
                    self.visit(child, Route { stale: via.stale || lacks, spare: true });
                }
            }
            _ => {}
        }
    }
}
