//! Classes: which one a block goes to (spec 06, section 9.2).

use super::request::{AllocationRequest, ClassKind, Content, Placement};
use super::topology::Topology;
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

/// Whether data may go to the special class: the rest is reserved for metadata.
fn has_room_for_data(topology: &Topology, tunables: &SpaceTunables) -> bool {
    let totals = topology.totals(ClassKind::Special);
    let percent = 100_u64.saturating_sub(tunables.special_class_metadata_reserve_pct);
    u128::from(totals.allocated) * 100 < u128::from(totals.space) * u128::from(percent)
}
