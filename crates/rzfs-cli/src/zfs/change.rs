//! Common parts of the commands that change datasets.

use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::source;
use rzfs::setting::SettingError;
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::{
    Change, DatasetKind, DatasetQuery, DatasetReport, Pair, Refusal, Selection,
};

/// The pool of a dataset, if it is imported.
pub(super) fn pool(dataset: &str) -> Result<Option<ControlClient>, Failure> {
    source::imported(pool_of(dataset))
}

/// The pool of a dataset that must exist.
pub(super) fn pool_with(dataset: &str) -> Result<ControlClient, Failure> {
    pool(dataset)?.ok_or_else(|| missing(dataset))
}

pub(super) fn missing(dataset: &str) -> Failure {
    Failure::Failed(format!("cannot open '{dataset}': dataset does not exist"))
}

/// Adds a property and its value from `PROPERTY=VALUE`, under its full name.
pub(super) fn pair(list: &mut Vec<Pair>, text: &str) -> Outcome {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::Usage("missing '=' for property=value argument".to_owned()));
    };
    let name = full_name(name);
    if list.iter().any(|(known, _)| *known == name) {
        return Err(Failure::Failed(SettingError::Repeated(name).to_string()));
    }
    list.push((name, value.to_owned()));
    Ok(())
}

/// The full name of a property given by an alias.
pub(super) fn full_name(name: &str) -> String {
    let known = DatasetProperty::from_name_or_header(name);
    known.map_or_else(|| name.to_owned(), |property| property.to_string())
}

/// Refuses invalid names of file systems, volumes or snapshots.
pub(super) fn check_dataset(verb: &str, dataset: &str) -> Outcome {
    match dataset.split_once('@') {
        Some((_, snapshot)) if !snapshot.is_empty() && !dataset.contains('#') => {
            name::check(dataset)
                .map_err(|error| Failure::Failed(format!("cannot {verb} '{dataset}': {error}")))
        }
        _ => check_head(verb, dataset),
    }
}

/// Refuses invalid names of file systems or volumes.
pub(super) fn check_head(verb: &str, dataset: &str) -> Outcome {
    let refused = |reason: &dyn std::fmt::Display| {
        Err(Failure::Failed(format!("cannot {verb} '{dataset}': {reason}")))
    };
    if let Some(delimiter) = dataset.chars().find(|c| "@#".contains(*c)) {
        let what = if delimiter == '@' { "snapshot" } else { "bookmark" };
        return refused(&format_args!("{what} delimiter '{delimiter}' is not expected here"));
    }
    match name::check(dataset) {
        Ok(()) => Ok(()),
        Err(error) => refused(&error),
    }
}

/// A dataset and its descendants of these kinds; parents come first.
pub(super) fn tree(
    client: &mut ControlClient,
    dataset: &str,
    kinds: &[DatasetKind],
) -> Result<Vec<DatasetReport>, Failure> {
    query(client, dataset, (None, kinds), &[])
}

/// The same down to a depth, with properties.
pub(super) fn query(
    client: &mut ControlClient,
    dataset: &str,
    (depth, kinds): (Option<u32>, &[DatasetKind]),
    properties: &[DatasetProperty],
) -> Result<Vec<DatasetReport>, Failure> {
    let names = properties.iter().map(|property| property.name().to_owned());
    let query = DatasetQuery {
        names: vec![dataset.to_owned()],
        depth,
        kinds: kinds.to_vec(),
        properties: Selection::Named(names.collect()),
    };
    let listing = source::datasets(client, query)?;
    if listing.datasets.is_empty() {
        return Err(missing(dataset));
    }
    Ok(listing.datasets)
}

/// Refuses a missing dataset.
pub(super) fn require(client: &mut ControlClient, dataset: &str) -> Outcome {
    query(client, dataset, (Some(0), &DatasetKind::ALL), &[]).map(drop)
}

/// The snapshots with a given name of a dataset and all below it.
pub(super) fn snapshots_of_tree(
    client: &mut ControlClient,
    head: &str,
    snapshot: &str,
) -> Result<Vec<String>, Failure> {
    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let all = tree(client, head, &kinds)?;
    let is_named =
        |full: &&DatasetReport| full.name.split_once('@').is_some_and(|(_, name)| name == snapshot);
    let found: Vec<_> = all.iter().filter(is_named).map(|full| full.name.clone()).collect();
    if found.is_empty() { Err(missing(&format!("{head}@{snapshot}"))) } else { Ok(found) }
}

/// Changes a pool; secondary failures are reported and make the command fail.
pub(super) fn carry_out(
    client: &mut ControlClient,
    change: Change,
    line: Option<&str>,
    console: &mut Console<'_>,
) -> Outcome {
    match changed(client, change, line, console)? {
        0 => Ok(()),
        _ => Err(Failure::Told),
    }
}

/// Changes a pool; what the change has found out about the pool is reported, and is no failure of it.
pub(crate) fn carry_out_telling(
    client: &mut ControlClient,
    change: Change,
    line: Option<&str>,
    console: &mut Console<'_>,
) -> Outcome {
    changed(client, change, line, console).map(drop)
}

/// Changes a pool and reports what the change has to say; returns the number of lines.
fn changed(
    client: &mut ControlClient,
    change: Change,
    line: Option<&str>,
    console: &mut Console<'_>,
) -> Result<usize, Failure> {
    let told = source::change(client, change, line)?;
    told.iter().for_each(|line| console.complain(line));
    Ok(told.len())
}

/// Performs an action on several datasets. A refused one does not block the others; the worst
/// status counts.
pub(super) fn for_each(
    datasets: &[String],
    console: &mut Console<'_>,
    mut act: impl FnMut(&str, &mut Console<'_>) -> Outcome,
) -> Outcome {
    let mut outcome = Ok(());
    for name in datasets {
        match act(name, console) {
            Err(Failure::Failed(message) | Failure::Refused(Refusal { message, .. })) => {
                console.complain(message);
                outcome = outcome.and(Err(Failure::Told));
            }
            Err(Failure::Status(message, status)) => {
                console.complain(message);
                outcome = Err(Failure::Status(String::new(), status));
            }
            Err(Failure::Told) => outcome = outcome.and(Err(Failure::Told)),
            Err(failure) => return Err(failure),
            Ok(()) => {}
        }
    }
    outcome
}
