//! What depends on snapshots: clones, and what depends on these.

use super::change::query;
use super::name::pool_of;
use crate::console::Failure;
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::{DatasetKind, DatasetReport, PropertyValue};
use std::collections::BTreeSet;

/// What has to be known of datasets to find out what depends on them.
pub(super) const NEEDED: [DatasetProperty; 1] = [DatasetProperty::Clones];

/// What depends on these datasets and is not among them: the clones of their snapshots, everything
/// below these, and so on. What is below others, or was made of them, comes later. Other datasets
/// of the pool are asked for only where there are clones.
pub(super) fn dependents<'r>(
    client: &mut ControlClient,
    of: impl IntoIterator<Item = &'r DatasetReport>,
) -> Result<Vec<String>, Failure> {
    let of: Vec<&DatasetReport> = of.into_iter().collect();
    let has_clones = |one: &&DatasetReport| {
        let clones = one.property(DatasetProperty::Clones.name()).map(|clones| &clones.value);
        matches!(clones, Some(PropertyValue::Text(names)) if !names.is_empty())
    };
    let Some(one) = of.iter().find(|one| has_clones(one)) else { return Ok(Vec::new()) };
    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let origin = [DatasetProperty::Origin];
    let all = query(client, pool_of(&one.name), (None, &kinds), &origin)?;
    let mut found = Vec::new();
    let mut seen: BTreeSet<&str> = of.iter().map(|one| one.name.as_str()).collect();
    let mut waiting: Vec<&str> = seen.iter().rev().copied().collect();
    while let Some(name) = waiting.pop() {
        let depends = |one: &&DatasetReport| is_clone_of(one, name) || is_below(&one.name, name);
        let more = all.iter().filter(depends).map(|one| one.name.as_str());
        let more: Vec<&str> = more.filter(|one| seen.insert(one)).collect();
        found.extend(more.iter().map(|one| (*one).to_owned()));
        waiting.extend(more.into_iter().rev());
    }
    Ok(found)
}

fn is_clone_of(dataset: &DatasetReport, snapshot: &str) -> bool {
    let origin = dataset.property(DatasetProperty::Origin.name()).map(|origin| &origin.value);
    matches!(origin, Some(PropertyValue::Text(origin)) if origin == snapshot)
}

/// Whether one dataset is a snapshot of a file system or below it.
fn is_below(dataset: &str, above: &str) -> bool {
    let rest = dataset.strip_prefix(above);
    !above.contains('@') && rest.is_some_and(|rest| rest.starts_with(['/', '@']))
}
