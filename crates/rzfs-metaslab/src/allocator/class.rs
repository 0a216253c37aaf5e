//! Classes: which one a block goes to, and whose turn it is in one (spec 06, sections 9.2 and
//! 9.4).

use super::group::Turn;
use super::request::{AllocationRequest, ClassKind, Content, Placement};
use super::topology::{Member, Topology};
use super::tunables::SpaceTunables;
use rzfs_format::Dva;

/// The classes that a block may go to, in order.
pub(crate) fn candidates(
    topology: &Topology,
    tunables: &SpaceTunables,
    request: &AllocationRequest,
) -> Vec<ClassKind> {
    let there = |class: &ClassKind| !topology.ring(*class).is_empty();
    if let Placement::GangMember(header) = request.placement {
        let class = class_of(topology, header).unwrap_or(ClassKind::Normal);
        let fallback = (class != ClassKind::Normal).then_some(ClassKind::Normal);
        return [class].into_iter().chain(fallback).filter(there).collect();
    }
    let classes: &[ClassKind] = match request.content {
        Content::IntentLog => &[ClassKind::Log, ClassKind::EmbeddedLog, ClassKind::Normal],
        Content::DedupTable if tunables.ddt_data_is_special => {
            &[ClassKind::Dedup, ClassKind::Special, ClassKind::Normal]
        }
        Content::DedupTable => &[ClassKind::Dedup, ClassKind::Normal],
        Content::Metadata => &[ClassKind::Special, ClassKind::Normal],
        Content::UserIndirect if tunables.user_indirect_is_special => {
            &[ClassKind::Special, ClassKind::Normal]
        }
        Content::Data { special_up_to } if request.size <= special_up_to => {
            if has_room_for_data(topology, tunables) {
                &[ClassKind::Special, ClassKind::Normal]
            } else {
                &[ClassKind::Normal]
            }
        }
        Content::UserIndirect | Content::Data { .. } => &[ClassKind::Normal],
    };
    classes.iter().copied().filter(there).collect()
}

fn class_of(topology: &Topology, dva: Dva) -> Option<ClassKind> {
    let range = dva.offset()..dva.offset().checked_add(1)?;
    let metaslab = topology.vdevs.get(&dva.vdev())?.metaslab_of(&range)?;
    Some(metaslab.group.class)
}

/// Whether data may go to the special class: the rest of it is kept for metadata.
fn has_room_for_data(topology: &Topology, tunables: &SpaceTunables) -> bool {
    let totals = topology.totals(ClassKind::Special);
    let percent = 100_u64.saturating_sub(tunables.special_class_metadata_reserve_pct);
    u128::from(totals.allocated) * 100 < u128::from(totals.space) * u128::from(percent)
}

/// Whose turn it is in a class, for one allocator.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rotor {
    pub(crate) position: usize,
    used: u64,
}

impl Rotor {
    /// The group at `position` got `size` bytes, or had no room for them.
    pub(crate) fn turn(
        &mut self,
        ring: &[Member],
        position: usize,
        size: u64,
        success: bool,
        tunables: &SpaceTunables,
    ) {
        if ring.len() < 2 || position != self.position % ring.len() {
            return;
        }
        let Some(member) = ring.get(position) else { return };
        self.used = self.used.saturating_add(size);
        let next = self.used.saturating_add(size / 2);
        let Turn { aliquot, target } = *member.group.turn.lock();
        let queued = member.group.queued.load(std::sync::atomic::Ordering::Relaxed);
        let stay = success
            && member.group.class != ClassKind::Log
            && (next < aliquot
                || (next < target
                    && queued.saturating_add(size).saturating_add(size / 2) < target
                    && tunables.perf_bias >= 2));
        if !stay {
            self.position = (position + 1) % ring.len();
            self.used = 0;
        }
    }
}

/// Shares a class's turns out anew: by disks, by size, and more for emptier groups.
pub(crate) fn balance(ring: &[Member], tunables: &SpaceTunables, disks: impl Fn(&Member) -> u64) {
    /// Largest factor by which an emptier group's target exceeds its aliquot, times 65536.
    const MOST: u64 = 163_840;
    let groups = ring.len() as u64;
    if groups == 0 {
        return;
    }
    let children: u64 = ring.iter().map(&disks).sum();
    let share = tunables.aliquot.saturating_mul(children) / groups;
    let class = ring.iter().fold(super::group::SpaceTotals::default(), |mut sum, member| {
        sum.add(*member.group.totals.lock());
        sum
    });
    for member in ring {
        let own = *member.group.totals.lock();
        let by_size = own.space / (class.space / groups.saturating_mul(256).max(1) + 1);
        let quota = share.saturating_mul(by_size) / 256;
        let turn = if tunables.bias_enabled {
            let free = own.free() / (own.space / 65_536 + 1);
            let class_free = class.free() / (class.space / 256 + 1);
            let aliquot = quota.saturating_mul(free / (class_free + 1)) / 256;
            let factor = MOST.min(3 * free + 16_384);
            Turn { aliquot, target: aliquot.max(aliquot.saturating_mul(factor) / 65_536) }
        } else {
            Turn { aliquot: quota, target: quota.saturating_mul(2) }
        };
        *member.group.turn.lock() = turn;
    }
}
