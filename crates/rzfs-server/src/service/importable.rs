//! Importable pools as plain data.

use super::pool::feature;
use super::vdevs;
use crate::protocol::{LoadReport, PoolReport, PoolStatus, VdevReport, VdevRole};
use rzfs_dsl::import::{ImportError, ImportablePool};
use rzfs_dsl::pool::{AuxiliaryKind, AuxiliaryState, AuxiliaryVdev};

/// The report of a pool found on devices but not imported.
#[must_use]
pub fn importable(pool: &ImportablePool) -> PoolReport {
    let mut root = pool.vdevs.as_ref().map(|tree| vdevs::tree(tree, &[])).unwrap_or_default();
    root.health = pool.health;
    let is_open = !matches!(pool.error, Some(ImportError::MissingDevices { .. }));
    as_listed(&mut root, is_open);
    let unsupported = match &pool.error {
        Some(ImportError::UnsupportedFeatures { features }) => features
            .iter()
            .map(|one| match one.description.as_str() {
                "" => one.guid.clone(),
                description => format!("{} ({description})", one.guid),
            })
            .collect(),
        _ => pool.unsupported_for_writing.iter().map(feature).collect(),
    };
    let auxiliary = |kind| match is_open {
        true => vdevs::auxiliary(&pool.auxiliary, kind, None),
        false => Vec::new(),
    };
    PoolReport {
        name: on_one_line(&pool.name),
        guid: pool.guid.get(),
        version: pool.version,
        label_state: pool.state.number(),
        status: listed(pool.status, &pool.auxiliary),
        comment: pool.comment.as_deref().map(on_one_line),
        root,
        spares: auxiliary(AuxiliaryKind::Spare),
        caches: auxiliary(AuxiliaryKind::Cache),
        load: LoadReport {
            unsupported_features: unsupported,
            refused: pool.error.is_some(),
            hostid: pool.host.id,
            hostname: on_one_line(pool.host.name.as_deref().unwrap_or_default()),
            pending_intent_logs: 0,
        },
        ..PoolReport::default()
    }
}

/// A vdev and its descendants as in a listing: the last paths of missing devices identify them
/// best. The roles of vdevs in a pool that cannot be opened are unknown, except for log devices,
/// which labels identify.
fn as_listed(vdev: &mut VdevReport, is_open: bool) {
    vdev.not_present = false;
    if !is_open && vdev.role != VdevRole::Log {
        vdev.role = VdevRole::Normal;
    }
    vdev.children.iter_mut().for_each(|child| as_listed(child, is_open));
}

/// The condition shown in a listing: missing cache devices count, unless there is something worse.
fn listed(status: PoolStatus, auxiliary: &[AuxiliaryVdev]) -> PoolStatus {
    let is_missing = |one: &AuxiliaryVdev| {
        one.kind == AuxiliaryKind::Cache && one.state == AuxiliaryState::Unavailable
    };
    match status {
        PoolStatus::Healthy
        | PoolStatus::CorruptLabel
        | PoolStatus::LacksData
        | PoolStatus::Failing
        | PoolStatus::Offline
        | PoolStatus::Removed
        | PoolStatus::NonNativeAshift
        | PoolStatus::Erratum(_)
        | PoolStatus::VersionOlder
        | PoolStatus::CompatibilityError
        | PoolStatus::IncompatibleFeatures
        | PoolStatus::FeaturesDisabled
            if auxiliary.iter().any(is_missing) =>
        {
            PoolStatus::Missing
        }
        status => status,
    }
}

/// Unchecked text of a label on one line: it must not start lines in a listing.
fn on_one_line(text: &str) -> String {
    text.replace('\n', "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_write_no_lines_of_their_own() {
        assert_eq!(on_one_line("g\nstate: ONLINE"), "g?state: ONLINE");
    }
}
