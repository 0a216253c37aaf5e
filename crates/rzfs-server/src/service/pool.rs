//! A pool as plain data.

use super::{Opening, damage, properties, vdevs};
use crate::protocol::{
    CheckpointReport, DedupReport, ExpansionReport, LoadReport, MountReport, PoolReport,
    PropertyValue, RemovalReport, ScanReport, ScanState,
};
use rzfs_dsl::pool::{AuxiliaryKind, FailMode, PoolStatus, ScanStatus, UnknownFeature, VdevSpace};
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::ddt::DdtStats;
use rzfs_format::indirect::RemovalStatus;
use rzfs_format::property::PoolProperty;
use rzfs_vdev::VdevTree;

/// Bytes of an entry of a removed vdev's mapping in memory.
const MAPPING_ENTRY: u64 = 24;

/// Minimum memory of a dedup table entry in OpenZFS.
const DDT_CORE_UNIT: u64 = 64 << 10;

/// The data for `zpool` about a pool.
pub(super) fn report(
    pool: &Pool,
    opening: &Opening,
    mounts: &[MountReport],
) -> Result<PoolReport, PoolError> {
    let config = pool.pool_config();
    let space = pool.space()?;
    let mut root = vdevs::tree(pool.vdevs(), &space);
    vdevs::add_sweeps(&mut root, &pool.sweeps()?);
    let damage = damage::files(pool, mounts)?;
    let mut report = PoolReport {
        name: pool.name().to_owned(),
        guid: pool.guid().get(),
        txg: pool.txg().get(),
        version: pool.version(),
        label_state: config.state.number(),
        status: match opening.suspended {
            Some(fail_mode) => PoolStatus::suspended(fail_mode),
            None => pool.status(damage.len())?,
        },
        comment: config.comment.clone(),
        properties: Vec::new(),
        root,
        spares: vdevs::auxiliary(pool.auxiliary(), AuxiliaryKind::Spare, Some(pool.vdevs())),
        caches: vdevs::auxiliary(pool.auxiliary(), AuxiliaryKind::Cache, None),
        scan: scan(pool)?,
        removal: removal(pool),
        expansion: expansion(pool)?,
        checkpoint: checkpoint(pool, &space),
        dedup: dedup(pool)?,
        damage,
        leaked: pool.leaked()?,
        load: LoadReport {
            unsupported_features: pool.features().unknown().map(|one| feature(&one)).collect(),
            refused: false,
            hostid: config.host.id,
            hostname: config.host.name.clone().unwrap_or_default(),
            pending_intent_logs: pool.unreplayed_logs()?.len() as u64,
        },
    };
    report.properties = properties::of(pool, &report, opening)?;
    Ok(report)
}

/// The last report of a pool before its devices failed, updated without them.
pub(super) fn renewed(
    last: PoolReport,
    vdevs: &VdevTree,
    fail_mode: Option<FailMode>,
) -> PoolReport {
    let root = vdevs::renewed(vdevs, &last.root);
    let guid = vdevs.root().guid().get();
    let status = fail_mode.map_or(last.status, PoolStatus::suspended);
    let mut report = PoolReport { guid, status, root, ..last };
    let health = properties::health(&report);
    for property in &mut report.properties {
        match PoolProperty::from_name(&property.name) {
            Some(PoolProperty::Health) => property.value = health.clone(),
            Some(PoolProperty::Guid) => property.value = PropertyValue::Number(guid),
            _ => {}
        }
    }
    report
}

/// A feature as messages name it.
pub(super) fn feature(feature: &UnknownFeature) -> String {
    match feature.description.as_str() {
        "" => feature.guid.clone(),
        description => format!("{} ({description})", feature.guid),
    }
}

const fn state(status: ScanStatus) -> ScanState {
    match status {
        ScanStatus::Running => ScanState::Scanning,
        ScanStatus::Finished => ScanState::Finished,
        ScanStatus::Canceled => ScanState::Canceled,
    }
}

/// The `DSF_SCRUB_PAUSED` flag of a scan.
const SCRUB_PAUSED: u64 = 1 << 1;

fn scan(pool: &Pool) -> Result<Option<ScanReport>, PoolError> {
    let Some(scan) = pool.scan()? else { return Ok(None) };
    let is_paused = scan.flags & SCRUB_PAUSED != 0 && scan.status == ScanStatus::Running;
    Ok(Some(ScanReport {
        function: scan.function,
        state: if is_paused { ScanState::Paused } else { state(scan.status) },
        start_time: scan.start_time,
        end_time: scan.end_time,
        pause_time: 0,
        to_examine: scan.to_examine,
        examined: scan.examined,
        skipped: scan.skipped,
        processed: scan.processed,
        errors: scan.errors,
        issued: scan.examined.saturating_sub(scan.skipped),
    }))
}

fn removal(pool: &Pool) -> Option<RemovalReport> {
    let removal = pool.removal()?;
    let state = match removal.status {
        RemovalStatus::None => return None,
        RemovalStatus::Active => ScanState::Scanning,
        RemovalStatus::Finished => ScanState::Finished,
        RemovalStatus::Cancelled => ScanState::Canceled,
    };
    let mappings = pool.vdevs().top_levels().filter_map(|top| top.mapping());
    let entries: u64 = mappings.map(|mapping| mapping.entries().len() as u64).sum();
    Some(RemovalReport {
        state,
        vdev: removal.vdev.map_or(0, |vdev| u64::from(vdev.get())),
        start_time: removal.start_time,
        end_time: removal.end_time,
        to_copy: removal.to_copy,
        copied: removal.copied,
        mapping_memory: entries.saturating_mul(MAPPING_ENTRY),
    })
}

fn expansion(pool: &Pool) -> Result<Option<ExpansionReport>, PoolError> {
    let mut newest = None;
    for top in pool.vdevs().top_levels() {
        let Some(expansion) = pool.expansion(top)? else { continue };
        let is_newer = |known: &ExpansionReport| expansion.start_time > known.start_time;
        if newest.as_ref().is_none_or(is_newer) {
            newest = Some(ExpansionReport {
                state: state(expansion.status),
                vdev: top.id(),
                start_time: expansion.start_time,
                end_time: expansion.end_time,
                to_reflow: expansion.copied,
                reflowed: expansion.copied,
            });
        }
    }
    Ok(newest)
}

fn checkpoint(pool: &Pool, space: &[VdevSpace]) -> Option<CheckpointReport> {
    let checkpoint = pool.checkpoint()?;
    Some(CheckpointReport {
        start_time: checkpoint.timestamp,
        space: space.iter().map(|space| space.checkpoint).sum(),
        discarding: false,
    })
}

fn dedup(pool: &Pool) -> Result<Option<DedupReport>, PoolError> {
    let tables = pool.dedup_tables()?;
    let mut histogram = rzfs_format::ddt::DdtHistogram::default();
    tables.iter().for_each(|table| histogram.add(&table.histogram));
    let total = histogram.total();
    if total.blocks == 0 {
        return Ok(None);
    }
    let row = |row: &DdtStats| {
        [
            row.blocks,
            row.lsize,
            row.psize,
            row.dsize,
            row.ref_blocks,
            row.ref_lsize,
            row.ref_psize,
            row.ref_dsize,
        ]
    };
    Ok(Some(DedupReport {
        entries: total.blocks,
        disk_bytes: tables.iter().map(|table| table.size_on_disk).sum(),
        core_bytes: DDT_CORE_UNIT,
        histogram: histogram.buckets.iter().map(row).collect(),
    }))
}
