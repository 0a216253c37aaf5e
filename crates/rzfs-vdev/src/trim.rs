//! Free space on devices: locating it, and discarding it (spec 07, sections 7.5, 11.7 and 17).
//!
//! ```text
//! free range of a top-level vdev      raidz, 3 wide, sectors 4 to 10
//!                                     child 0   child 1   child 2
//!                                       0         1         2
//!                                       3        [4        [5
//!                                      [6         7         8
//!                                       9]       10]       11
//! ```
//! A range of whole sectors is a range of every child. Free space holds no block, so it does not
//! matter which of its columns were parity.

use crate::draid::DraidGeometry;
use crate::error::{AddressProblem, LeafFailure};
use crate::plan::MAX_STEPS;
use crate::stripe::StripeColumn;
use crate::tree::{NodeId, Role, VdevTree};
use rzfs_blockdev::{CompletionQueue, DeviceError, IoOperation, IoRequest};
use rzfs_format::{Guid, VdevId, label};
use rzfs_tunables::Tunables;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;

/// A free range of a top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRange {
    /// The vdev.
    pub vdev: VdevId,
    /// Where it begins, in bytes of allocatable space.
    pub offset: u64,
    /// Its bytes; of a dRAID, whole stripes.
    pub size: u64,
}

/// A range of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeafRange {
    /// The leaf.
    pub leaf: Guid,
    /// Byte position on its device.
    pub position: u64,
    /// Bytes.
    pub len: u64,
}

/// Which ranges of devices to discard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimLimits {
    /// Shorter ranges are skipped (`zfs_trim_extent_bytes_min`).
    pub extent_bytes_min: u64,
    /// Longer ones are split (`zfs_trim_extent_bytes_max`).
    pub extent_bytes_max: u64,
}

impl From<&Tunables> for TrimLimits {
    fn from(tunables: &Tunables) -> Self {
        Self {
            extent_bytes_min: tunables.zfs_trim_extent_bytes_min,
            extent_bytes_max: tunables.zfs_trim_extent_bytes_max,
        }
    }
}

impl Default for TrimLimits {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

/// The result of trimming free ranges.
#[derive(Clone, Default, Debug)]
pub struct TrimReport {
    /// Discarded bytes of devices.
    pub trimmed: u64,
    /// Bytes of devices in ranges that were too short.
    pub skipped: u64,
    /// Leaves that do not support discard, and will not be asked again.
    pub unsupported: Vec<Guid>,
    /// Failed leaves.
    pub failures: Vec<LeafFailure>,
}

/// Ranges of nodes: node, position on the device, bytes.
type NodeRanges = Vec<(NodeId, u64, u64)>;

impl VdevTree {
    /// The location of a free range, leaf by leaf; neighbours are joined, leaves without a part
    /// omitted. While a RAID-Z vdev is being expanded its free space has no location.
    ///
    /// # Errors
    /// The problem with the range.
    pub fn leaf_ranges(&self, range: &FreeRange) -> Result<Vec<LeafRange>, AddressProblem> {
        let ranges = self.node_ranges(range)?.into_iter();
        let named =
            ranges.map(|(id, position, len)| LeafRange { leaf: self.node(id).guid, position, len });
        Ok(named.collect())
    }

    fn node_ranges(&self, range: &FreeRange) -> Result<NodeRanges, AddressProblem> {
        let FreeRange { vdev, offset, size } = *range;
        self.check_range(vdev, offset, size)?;
        let (node, space) = self.holder(vdev)?;
        let top = self.top_node(vdev).ok_or(AddressProblem::NoVdev)?;
        let end = offset.saturating_add(size);
        let mut found = Vec::new();
        match &node.role {
            Role::Indirect(_) | Role::Empty | Role::Root => return Err(AddressProblem::NoData),
            Role::Raidz(_) if node.config.get().raidz_expanding => {}
            Role::Raidz(_) => {
                if !end.is_multiple_of(1 << space.ashift) {
                    return Err(AddressProblem::Unaligned);
                }
                let sectors = offset >> space.ashift..end >> space.ashift;
                let width = (node.children.len() as u64).max(1);
                for (column, child) in (0..).zip(&node.children) {
                    let row = |sector: u64| sector.saturating_sub(column).div_ceil(width);
                    let (first, last) = (row(sectors.start), row(sectors.end));
                    let len = last.saturating_sub(first) << space.ashift;
                    self.add_leaves(*child, first << space.ashift, len, &mut found);
                }
            }
            Role::Draid(geometry) => {
                if !size.is_multiple_of(geometry.stripe_size()) {
                    return Err(AddressProblem::Unaligned);
                }
                for StripeColumn { child, offset, len, filler, .. } in
                    columns(geometry, offset, end)
                {
                    if let Some(child) = node.children.get(child) {
                        self.add_leaves(*child, offset, (len + filler) as u64, &mut found);
                    }
                }
            }
            Role::Mirrored | Role::Device(_) | Role::DistributedSpare(_) => {
                self.add_leaves(top, offset, size, &mut found);
            }
        }
        Ok(join(found))
    }

    /// Adds the leaves of a child for its part of a range.
    fn add_leaves(&self, child: NodeId, offset: u64, len: u64, found: &mut NodeRanges) {
        if len == 0 {
            return;
        }
        let position = label::START_SIZE.saturating_add(offset);
        let mut leaves = Vec::new();
        let mut steps = MAX_STEPS;
        self.leaves_of(child, position, &mut steps, &mut leaves);
        found.extend(leaves.into_iter().map(|leaf| (leaf, position, len)));
    }

    /// Discards ranges on devices, and waits for it. Invalid ranges and missing leaves are skipped.
    ///
    /// The ranges must stay unallocated meanwhile.
    #[must_use]
    pub fn trim(&self, ranges: &[FreeRange], limits: &TrimLimits) -> TrimReport {
        let all = ranges.iter().filter_map(|range| self.node_ranges(range).ok()).flatten();
        self.trim_nodes(join(all.collect()), limits)
    }

    /// As [`VdevTree::trim`], with ranges of leaves.
    #[must_use]
    pub fn trim_leaves(&self, ranges: &[LeafRange], limits: &TrimLimits) -> TrimReport {
        let of_node = |range: &LeafRange| Some((self.find(range.leaf)?, range.position, range.len));
        self.trim_nodes(join(ranges.iter().filter_map(of_node).collect()), limits)
    }

    fn trim_nodes(&self, ranges: NodeRanges, limits: &TrimLimits) -> TrimReport {
        let mut report = TrimReport::default();
        let mut waiting: BTreeMap<NodeId, VecDeque<(u64, u64)>> = BTreeMap::new();
        for (leaf, position, len) in ranges {
            let can_trim = self.leaf(leaf).is_some_and(|state| state.can_trim());
            if !can_trim {
                continue;
            }
            if len < limits.extent_bytes_min {
                report.skipped = report.skipped.saturating_add(len);
                continue;
            }
            let queue = waiting.entry(leaf).or_default();
            let step = limits.extent_bytes_max.max(1 << 16);
            let starts = (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX));
            queue.extend(starts.map(|start| (position + start, step.min(len - start))));
        }
        self.run_trims(waiting, &mut report);
        report
    }

    /// Performs the discards, a few at a time on each leaf.
    fn run_trims(
        &self,
        mut waiting: BTreeMap<NodeId, VecDeque<(u64, u64)>>,
        report: &mut TrimReport,
    ) {
        let completions = CompletionQueue::new();
        let mut under_way: BTreeMap<u64, (NodeId, u64)> = BTreeMap::new();
        let mut next_token = 0;
        let mut leaves: Vec<NodeId> = waiting.keys().copied().collect();
        leaves = leaves.repeat(self.tunables().trim_max_active);
        loop {
            // Each entry is a leaf that may have another discard in progress.
            for id in leaves.drain(..) {
                let next = waiting.get_mut(&id).and_then(VecDeque::pop_front);
                let (Some((offset, len)), Some(leaf)) = (next, self.leaf(id)) else { continue };
                let Some(device) = leaf.usable_device() else { continue };
                leaf.unconfirmed().discards(&(offset..offset.saturating_add(len)));
                let operation = IoOperation::Discard { len };
                under_way.insert(next_token, (id, len));
                let request = IoRequest { token: next_token, offset, operation };
                device.submit(vec![request], &completions);
                next_token += 1;
            }
            if under_way.is_empty() {
                return;
            }
            for completion in completions.wait_many() {
                let Some((id, len)) = under_way.remove(&completion.token) else { continue };
                match completion.result {
                    Ok(_) => report.trimmed = report.trimmed.saturating_add(len),
                    Err(error) => {
                        waiting.remove(&id);
                        self.fail_trim(id, &error, report);
                    }
                }
                leaves.push(id);
            }
        }
    }

    /// Records that a leaf cannot discard, or failed to. This does not affect its health.
    fn fail_trim(&self, id: NodeId, error: &DeviceError, report: &mut TrimReport) {
        let guid = self.node(id).guid;
        if error.source.kind() == ErrorKind::Unsupported {
            if let Some(state) = self.leaf(id) {
                state.forbid_trim();
            }
            if !report.unsupported.contains(&guid) {
                report.unsupported.push(guid);
            }
            return;
        }
        report.failures.push(LeafFailure { leaf: guid, error: error.clone() });
    }
}

/// The columns of all stripes of a dRAID between two offsets, group by group.
fn columns(geometry: &DraidGeometry, start: u64, end: u64) -> Vec<StripeColumn> {
    let mut columns = Vec::new();
    let mut offset = start;
    while offset < end {
        let group_end = geometry.group_end(offset).min(end);
        let data = geometry.block_size(group_end.saturating_sub(offset));
        let size = usize::try_from(data).unwrap_or(usize::MAX);
        columns.extend(geometry.map(offset, size).columns);
        offset = group_end;
    }
    columns
}

/// Sorts ranges by leaf and position, and joins adjacent ones.
fn join(mut ranges: NodeRanges) -> NodeRanges {
    ranges.sort_unstable();
    let mut joined: NodeRanges = Vec::with_capacity(ranges.len());
    for (leaf, position, len) in ranges {
        match joined.last_mut() {
            Some((last, start, size))
                if *last == leaf && start.saturating_add(*size) >= position =>
            {
                let end = start.saturating_add(*size).max(position.saturating_add(len));
                *size = end.saturating_sub(*start);
            }
            _ => joined.push((leaf, position, len)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_joined() {
        let node = NodeId::of_index;
        let ranges = vec![
            (node(2), 10, 5),
            (node(1), 30, 10),
            (node(1), 0, 10),
            (node(1), 10, 10),
            (node(1), 12, 3),
            (node(2), 16, 4),
        ];
        let expected =
            vec![(node(1), 0, 20), (node(1), 30, 10), (node(2), 10, 5), (node(2), 16, 4)];
        assert_eq!(join(ranges), expected);
    }
}
