//! What the commands that change datasets have in common.

use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::property::{DATASET_PROPERTIES, Property};
use crate::source;
use rzfs::control::ControlClient;
use rzfs::protocol::{Change, DatasetKind, DatasetQuery, DatasetReport, Pair, Selection};
use rzfs::setting::SettingError;

/// The pool of a dataset, if it is imported.
pub(super) fn pool(dataset: &str) -> Result<Option<ControlClient>, Failure> {
    source::imported(pool_of(dataset))
}

/// The pool of a dataset that is to exist.
pub(super) fn pool_with(dataset: &str) -> Result<ControlClient, Failure> {
    pool(dataset)?.ok_or_else(|| missing(dataset))
}

pub(super) fn missing(dataset: &str) -> Failure {
    Failure::Failed(format!("cannot open '{dataset}': dataset does not exist"))
}

/// A property and its value from `PROPERTY=VALUE`, with the full name.
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

/// The full name of a property that is given by an alias.
pub(super) fn full_name(name: &str) -> String {
    let known = Property::find(DATASET_PROPERTIES, name);
    known.map_or_else(|| name.to_owned(), |property| property.name.to_owned())
}

/// Refuses what is no name of a file system or volume.
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

/// A dataset and what is below it, of these kinds; parents come first.
pub(super) fn tree(
    client: &mut ControlClient,
    dataset: &str,
    kinds: &[DatasetKind],
) -> Result<Vec<DatasetReport>, Failure> {
    let query = DatasetQuery {
        names: vec![dataset.to_owned()],
        depth: None,
        kinds: kinds.to_vec(),
        properties: Selection::Named(Vec::new()),
    };
    let listing = source::datasets(client, query)?;
    if listing.datasets.is_empty() {
        return Err(missing(dataset));
    }
    Ok(listing.datasets)
}

/// Has a pool changed; what could not be done besides is complained about and makes the command
/// fail.
pub(super) fn carry_out(
    client: &mut ControlClient,
    change: Change,
    line: Option<&str>,
    console: &mut Console<'_>,
) -> Outcome {
    let complaints = source::change(client, change, line)?;
    complaints.iter().for_each(|complaint| console.complain(complaint));
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Told) }
}
