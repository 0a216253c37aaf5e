//! Plans: all places from which the bytes of one block can come.
//!
//! A plan takes the stripe map of the block's vdev and resolves every column to the leaves that
//! have it: one for a plain child, several for mirrors, `replacing` and `spare` vdevs, and
//! whatever child stands in for a distributed spare. A block on a removed vdev is planned on the
//! vdevs that its pieces were copied to.

use crate::error::{AddressProblem, VdevError};
use crate::stripe::{DeviceArea, Stripe, StripeColumn, StripeMap};
use crate::tree::{NodeId, Role, VdevTree};
use rzfs_format::units::MAX_BLOCK_SIZE;
use rzfs_format::{Dva, Txg, VdevId, label};
use std::ops::Range;

/// Vdevs looked at to find the leaves of one column; more is a tree that leads in circles.
const MAX_STEPS: usize = 1024;

/// A leaf that has a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafCopy {
    pub(crate) leaf: NodeId,
    /// Byte position on the device.
    pub(crate) position: u64,
    /// Whether the leaf is known to lack the block.
    pub(crate) stale: bool,
}

/// A column and where it can be read.
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
    /// Its copies in [`Plan::copies`], the best first.
    copies: Range<usize>,
}

/// All places from which one block can come.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) stripes: Vec<Stripe>,
    pub(crate) columns: Vec<PlanColumn>,
    copies: Vec<LeafCopy>,
    /// Bytes of the block as the vdev stores it: whole sectors.
    pub(crate) padded: usize,
    /// Widths that a RAID-Z vdev has had before the present one.
    pub(crate) past_widths: Range<u64>,
}

impl Plan {
    /// The copies of a column, the best first.
    pub(crate) fn copies(&self, column: usize) -> &[LeafCopy] {
        let range = self.columns.get(column).map_or(0..0, |column| column.copies.clone());
        self.copies.get(range).unwrap_or_default()
    }

    /// Whether the block lies in one piece, so that copies can be tried one by one.
    pub(crate) fn single_column(&self) -> bool {
        self.columns.len() == 1
    }

    /// The greatest number of columns that any stripe can lose.
    pub(crate) fn max_parity(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.parity).max().unwrap_or(0)
    }

    /// Sets of columns that fail together: those of one child each, then those that were together
    /// on one child when a RAID-Z vdev was narrower (spec 07, section 10.7).
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

/// What is to be planned.
#[derive(Clone, Copy)]
struct Target {
    vdev: VdevId,
    offset: u64,
    /// Bytes; whole sectors except on RAID-Z and dRAID, which round up themselves.
    size: usize,
    /// Physical birth, if it says anything about what the leaves lack.
    birth: Option<Txg>,
    /// The birth that decides about the width of RAID-Z.
    width_birth: Txg,
    /// Where the bytes belong in the block.
    start: usize,
}

impl VdevTree {
    /// Plans the read of `size` bytes at the place of `dva`.
    pub(crate) fn plan(&self, dva: Dva, size: u64, birth: Txg) -> Result<Plan, VdevError> {
        let vdev = dva.vdev();
        let fail = |problem| VdevError::Address { vdev, dva, size, problem };
        if !(1..=MAX_BLOCK_SIZE).contains(&size) {
            return Err(fail(AddressProblem::Size));
        }
        let (_, space) = self.holder(vdev).map_err(fail)?;
        let padded = (size as usize).next_multiple_of(1 << space.ashift);
        let mut plan = Plan {
            stripes: Vec::new(),
            columns: Vec::new(),
            copies: Vec::new(),
            padded,
            past_widths: 0..0,
        };
        let target = Target {
            vdev,
            offset: dva.offset(),
            size: padded,
            birth: Some(birth),
            width_birth: birth,
            start: 0,
        };
        self.extend_plan(&mut plan, target, self.root().children().len()).map_err(fail)?;
        Ok(plan)
    }

    fn extend_plan(
        &self,
        plan: &mut Plan,
        target: Target,
        depth: usize,
    ) -> Result<(), AddressProblem> {
        let Target { vdev, offset, size, .. } = target;
        let top = self.top_node(vdev).ok_or(AddressProblem::NoVdev)?;
        let node = self.node(top);
        let asize = self
            .allocated_size(vdev, size as u64, target.width_birth)
            .ok_or(AddressProblem::NoData)?;
        self.check_range(vdev, offset, asize)?;
        match &node.role {
            Role::Device(_) | Role::Mirrored => {
                self.add_map(plan, StripeMap::single(0, offset, size), target, &[top]);
            }
            Role::Raidz(geometry) => {
                let map = geometry.map(offset, size, target.width_birth);
                self.add_map(plan, map, target, &node.children);
                plan.past_widths =
                    geometry.original_width() as u64..geometry.physical_width() as u64;
            }
            Role::Draid(geometry) => {
                self.add_map(plan, geometry.map(offset, size), target, &node.children);
            }
            Role::Indirect(mapping) => {
                let depth = depth.checked_sub(1).ok_or(AddressProblem::MappingLoop)?;
                let mapping = mapping.get().ok_or(AddressProblem::MappingNotLoaded)?;
                let pieces =
                    mapping.pieces(offset, size as u64).ok_or(AddressProblem::NotMapped)?;
                for piece in pieces {
                    let piece = Target {
                        vdev: piece.vdev,
                        offset: piece.offset,
                        size: piece.len as usize,
                        birth: piece.birth,
                        width_birth: target.width_birth,
                        start: target.start.saturating_add(piece.start as usize),
                    };
                    self.extend_plan(plan, piece, depth)?;
                }
            }
            Role::Root | Role::DistributedSpare(_) | Role::Empty => {
                return Err(AddressProblem::NoData);
            }
        }
        Ok(())
    }

    /// Adds a map whose child indices refer to `children`.
    fn add_map(&self, plan: &mut Plan, map: StripeMap, target: Target, children: &[NodeId]) {
        let first = plan.columns.len();
        for column in map.columns {
            let Some(&child) = children.get(column.child) else { continue };
            let copies = if column.len == 0 && column.filler == 0 {
                plan.copies.len()..plan.copies.len()
            } else {
                self.add_copies(plan, child, &column, target.birth)
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

    /// Adds the leaves of a column, those that are to be read first in front: first those that
    /// are not known to lack the block, among them distributed spares and the least busy ones.
    fn add_copies(
        &self,
        plan: &mut Plan,
        child: NodeId,
        column: &StripeColumn,
        birth: Option<Txg>,
    ) -> Range<usize> {
        let area = match column.area {
            DeviceArea::Data => label::START_SIZE,
            DeviceArea::Scratch => label::BOOT_AREA.start,
        };
        let start = plan.copies.len();
        let position = area.saturating_add(column.offset);
        if let Some(copy) = self.only_copy(child, position, birth) {
            plan.copies.push(copy);
            return start..plan.copies.len();
        }
        let mut search =
            Search { tree: self, position, birth, steps: MAX_STEPS, found: Vec::new() };
        search.visit(child, Via { stale: false, spare: false });
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

    /// The copy on a child that is a device: no choice, nothing to collect.
    fn only_copy(&self, child: NodeId, position: u64, birth: Option<Txg>) -> Option<LeafCopy> {
        let leaf = self.leaf(child)?;
        leaf.usable_device()?;
        let stale = birth.is_some_and(|birth| leaf.missing().lacks(birth));
        Some(LeafCopy { leaf: child, position, stale })
    }
}

/// A leaf that was found, and what speaks for and against it.
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
struct Via {
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
    fn visit(&mut self, id: NodeId, via: Via) {
        let Some(steps) = self.steps.checked_sub(1) else { return };
        self.steps = steps;
        let tree = self.tree;
        match &tree.node(id).role {
            Role::Device(leaf) => {
                let known = self.found.iter().any(|candidate| candidate.copy.leaf == id);
                if leaf.usable_device().is_none() || known {
                    return;
                }
                let lacks = self.birth.is_some_and(|birth| leaf.missing().lacks(birth));
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
                    self.visit(child, Via { stale: via.stale || lacks, spare: true });
                }
            }
            _ => {}
        }
    }
}
