//! Pools that could be imported, as plain data.

use super::pool::feature;
use super::vdevs;
use crate::protocol::{LoadReport, PoolReport, PoolStatus, VdevReport, VdevRole};
use rzfs_dsl::import::{ImportError, ImportablePool};
use rzfs_dsl::pool::{AuxiliaryKind, AuxiliaryState, AuxiliaryVdev};

/// A pool that was found on devices and not imported.
#[must_use]
pub fn importable(pool: &ImportablePool) -> PoolReport {
    let mut root = pool.vdevs.as_ref().map(|tree| vdevs::tree(tree, &[])).unwrap_or_default();
    root.health = pool.health;
    let is_open = !matches!(pool.error, Some(ImportError::MissingDevices));
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

/// A vdev with all below it as a listing shows it: where devices are missing, their last paths
/// tell best which are meant. A pool that cannot be opened does not tell what its vdevs are for,
/// except that labels know log devices.
fn as_listed(vdev: &mut VdevReport, is_open: bool) {
    vdev.not_present = false;
    if !is_open && vdev.role != VdevRole::Log {
        vdev.role = VdevRole::Normal;
    }
    vdev.children.iter_mut().for_each(|child| as_listed(child, is_open));
}

/// The condition that a listing shows: cache devices are missed as others are, if there is nothing
/// worse to say.
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

/// What a label says, which nobody has checked: it writes no lines of its own into a listing.
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
