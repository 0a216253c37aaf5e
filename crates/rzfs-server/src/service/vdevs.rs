//! Vdevs as plain data.

use crate::protocol::{SweepReport, VdevReport, VdevRole, VdevStatistics};
use rzfs_dsl::pool::{
    AuxiliaryKind, AuxiliaryState, AuxiliaryVdev, LeafSweep, SweepKind, SweepRecord, VdevSpace,
};
use rzfs_format::label::{END_SIZE, LABEL_SIZE, START_SIZE};
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::draid;
use rzfs_vdev::{AuxReason, Health, Vdev, VdevConfig, VdevKind, VdevState, VdevTree};

/// Bytes of a cache device's own header.
const CACHE_HEADER: u64 = 4 << 10;

/// Bytes of labels and boot area on a device.
const LABELS: u64 = START_SIZE + END_SIZE;

/// A tree of vdevs with the space of its top-level vdevs.
pub(super) fn tree(tree: &VdevTree, space: &[VdevSpace]) -> VdevReport {
    let mut root = vdev(tree, tree.root(), space);
    let mut sum = VdevStatistics { slow_ios: None, ..root.statistics };
    // Log devices are not part of the pool's space.
    for top in root.children.iter().filter(|top| top.role != VdevRole::Log) {
        let more = &top.statistics;
        sum.allocated = sum.allocated.saturating_add(more.allocated);
        sum.space = sum.space.saturating_add(more.space);
        sum.deflated_space = sum.deflated_space.saturating_add(more.deflated_space);
        sum.checkpoint_space = sum.checkpoint_space.saturating_add(more.checkpoint_space);
    }
    sum.fragmentation = fragmentation(&root);
    root.statistics = sum;
    root
}

/// The fragmentation of ordinary vdevs, weighted by size; `None` if it is unknown for one of them.
fn fragmentation(root: &VdevReport) -> Option<u64> {
    let (mut weighted, mut space) = (0u128, 0u128);
    for top in root.children.iter().filter(|top| top.role == VdevRole::Normal) {
        let counts = &top.statistics;
        if counts.space > 0 {
            weighted += u128::from(counts.fragmentation?) * u128::from(counts.space);
            space += u128::from(counts.space);
        }
    }
    weighted.checked_div(space).and_then(|percent| u64::try_from(percent).ok())
}

fn vdev(tree: &VdevTree, one: Vdev<'_>, space: &[VdevSpace]) -> VdevReport {
    let role = one.top_level().map_or(VdevRole::Normal, role);
    let mut report = of_config(&one.own_config(), role, one.health());
    set_state(&mut report, one);
    report.draid_children = one.children().len() as u64;
    report.ashift = match (one.ashift(), one.device()) {
        (Some(ashift), _) => u64::from(ashift),
        (None, Some(device)) => u64::from(device.geometry().logical_sector.ilog2()),
        (None, None) => 0,
    };
    let size = one.device().map_or(0, |device| device.geometry().size);
    report.asize = one.asize().unwrap_or((size & !(LABEL_SIZE - 1)).saturating_sub(LABELS));
    report.keeps_everything = one.device().is_some() && !one.can_trim();
    report.children = one.children().map(|child| vdev(tree, child, space)).collect();
    let own = one.vdev_id().and_then(|id| space.iter().find(|space| space.vdev == id));
    let size = own.map_or(0, |own| own.size);
    report.statistics = VdevStatistics {
        allocated: own.map_or(0, |own| own.allocated),
        space: size,
        deflated_space: one.vdev_id().and_then(|id| tree.deflated(id, size)).unwrap_or(0),
        replaceable_size: replaceable_size(one, space),
        expandable_size: 0,
        physical_size: one.device().map_or(0, |device| device.geometry().size),
        checkpoint_space: own.map_or(0, |own| own.checkpoint),
        fragmentation: own.map_or(Some(0), |own| own.fragmentation),
        slow_ios: one.kind().is_device().then_some(0),
        ..report.statistics
    };
    report
}

/// The current tree of vdevs, with space and sweeps from an older report, which only their devices
/// could provide.
pub(super) fn renewed(vdevs: &VdevTree, older: &VdevReport) -> VdevReport {
    let mut root = tree(vdevs, &[]);
    take_over(&mut root, older);
    root.children.iter_mut().for_each(|child| take_over_below(child, older));
    root
}

fn take_over_below(report: &mut VdevReport, older: &VdevReport) {
    if let Some(known) = find(older, report.guid) {
        take_over(report, known);
    }
    report.children.iter_mut().for_each(|child| take_over_below(child, older));
}

fn take_over(report: &mut VdevReport, known: &VdevReport) {
    let VdevStatistics { reads, bytes_read, .. } = report.statistics;
    let VdevStatistics { read_errors, write_errors, checksum_errors, .. } = report.statistics;
    report.statistics = VdevStatistics {
        reads,
        bytes_read,
        read_errors,
        write_errors,
        checksum_errors,
        ..known.statistics
    };
    (report.initialize, report.trim) = (known.initialize, known.trim);
}

fn find(report: &VdevReport, guid: u64) -> Option<&VdevReport> {
    let below = || report.children.iter().find_map(|child| find(child, guid));
    (report.guid == guid).then_some(report).or_else(below)
}

/// Sets the health and the counters of a vdev.
fn set_state(report: &mut VdevReport, one: Vdev<'_>) {
    let (health, errors, io) = (one.health(), one.errors(), one.io());
    report.health = health;
    report.not_present = one.kind().is_device() && health.state == VdevState::CantOpen;
    report.lacks = lacking(one);
    let statistics = &mut report.statistics;
    (statistics.reads, statistics.bytes_read) = (io.reads, io.bytes_read);
    statistics.read_errors = errors.read;
    statistics.write_errors = errors.write;
    statistics.checksum_errors = errors.checksum;
}

/// The first and the last txg of which a leaf in use lacks data.
fn lacking(leaf: Vdev<'_>) -> Option<(u64, u64)> {
    let missing = leaf.missing_txgs().filter(|_| leaf.health().is_usable())?;
    Some((missing.first()?.get(), missing.last()?.get()))
}

fn role(top: Vdev<'_>) -> VdevRole {
    match top.allocation_bias() {
        None => VdevRole::Normal,
        Some(AllocationBias::Log) => VdevRole::Log,
        Some(AllocationBias::Special) => VdevRole::Special,
        Some(AllocationBias::Dedup) => VdevRole::Dedup,
    }
}

/// A vdev's report from its configuration, without its children.
fn of_config(config: &VdevConfig, role: VdevRole, health: Health) -> VdevReport {
    let draid = config.draid.unwrap_or_default();
    let is_missing = health.state == VdevState::CantOpen;
    VdevReport {
        kind: config.kind.name().to_owned(),
        id: config.id,
        guid: config.guid.get(),
        path: config
            .hints
            .path
            .as_ref()
            .map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned()),
        whole_disk: config.hints.whole_disk.is_some_and(|whole| whole != 0),
        not_present: config.kind.is_device() && is_missing,
        // Very old RAID-Z vdevs do not record their single parity column.
        parity: config.nparity.unwrap_or(u64::from(config.kind == VdevKind::Raidz)),
        draid_data: draid.data,
        draid_spares: draid.spares,
        role,
        health,
        ..VdevReport::default()
    }
}

/// A log vdev that is missing, with its devices.
pub(super) fn missing_log(config: &VdevConfig) -> VdevReport {
    let health = Health { state: VdevState::CantOpen, aux: AuxReason::OpenFailed };
    let children = config.children.iter().map(missing_log).collect();
    // Paths identify devices best.
    let not_present = false;
    VdevReport { not_present, children, ..of_config(config, VdevRole::Log, health) }
}

/// The smallest device that could replace a vdev.
fn replaceable_size(one: Vdev<'_>, space: &[VdevSpace]) -> u64 {
    let Some(top) = one.top_level() else { return 0 };
    let own = top.vdev_id().and_then(|id| space.iter().find(|space| space.vdev == id));
    let shift = top.own_config().top.metaslab_shift.and_then(|shift| u32::try_from(shift).ok());
    let metaslab = shift.and_then(|shift| 1u64.checked_shl(shift));
    let (Some(_), Some(asize), Some(metaslab)) = (own, top.asize(), metaslab) else { return 0 };
    let size = asize & !metaslab.wrapping_sub(1);
    if !one.kind().is_device() {
        return if one.vdev_id().is_some() { size } else { 0 };
    }
    let children = top.children().len() as u64;
    let (columns, reserve) = match top.kind() {
        VdevKind::Raidz => (children, 0),
        VdevKind::Draid => {
            let spares = top.own_config().draid.map_or(0, |draid| draid.spares);
            (children.saturating_sub(spares), draid::RESERVE)
        }
        _ => (1, 0),
    };
    size.div_ceil(columns.max(1)).saturating_add(reserve + LABELS)
}

/// Adds initializations and TRIMs to a tree.
pub(super) fn add_sweeps(report: &mut VdevReport, sweeps: &[LeafSweep]) {
    for sweep in sweeps.iter().filter(|sweep| sweep.leaf.get() == report.guid) {
        let LeafSweep { done, total, record, .. } = *sweep;
        let SweepRecord { state, action_time, .. } = record;
        let one = Some(SweepReport { state, action_time, done, total });
        match sweep.kind {
            SweepKind::Initialize => report.initialize = one,
            SweepKind::Trim => report.trim = one,
        }
    }
    report.children.iter_mut().for_each(|child| add_sweeps(child, sweeps));
}

/// The hot spares or the cache devices.
pub(super) fn auxiliary(
    vdevs: &[AuxiliaryVdev],
    kind: AuxiliaryKind,
    tree: Option<&VdevTree>,
) -> Vec<VdevReport> {
    vdevs.iter().filter(|vdev| vdev.kind == kind).map(|one| auxiliary_vdev(one, tree)).collect()
}

/// Size of a distributed spare: that of any device of its dRAID.
fn distributed_size(vdev: &AuxiliaryVdev, tree: &VdevTree) -> u64 {
    let draid = vdev.config.top_guid.and_then(|guid| tree.by_guid(guid));
    let mut devices = draid.into_iter().flat_map(Vdev::children).filter_map(Vdev::device);
    devices.next().map_or(0, |device| device.geometry().size)
}

fn auxiliary_vdev(vdev: &AuxiliaryVdev, tree: Option<&VdevTree>) -> VdevReport {
    let (state, aux) = match vdev.state {
        AuxiliaryState::Available => (VdevState::Healthy, AuxReason::None),
        AuxiliaryState::InUse => (VdevState::Healthy, AuxReason::Spared),
        AuxiliaryState::Unavailable => (VdevState::CantOpen, AuxReason::OpenFailed),
    };
    let role = match vdev.kind {
        AuxiliaryKind::Spare => VdevRole::Spare,
        AuxiliaryKind::Cache => VdevRole::Cache,
    };
    let mut report = of_config(&vdev.config, role, Health { state, aux });
    // They keep their paths: nothing else identifies the device.
    report.not_present = false;
    let size = match (&vdev.device, tree) {
        (Some(device), _) => device.geometry().size,
        (None, Some(tree)) => distributed_size(vdev, tree),
        (None, None) => 0,
    };
    report.statistics.physical_size = size;
    report.statistics.slow_ios = Some(0);
    if role == VdevRole::Cache {
        report.statistics.space = size.saturating_sub(LABELS + CACHE_HEADER);
        report.statistics.replaceable_size = size;
        report.statistics.fragmentation = Some(0);
    }
    report
}
