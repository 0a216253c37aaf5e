//! Refusals of changes to several datasets.

use crate::mount::refusal::refusal;
use crate::protocol::Refusal;
use rzfs_dsl::live::ChangeError;

/// The refusal of several datasets, one line for each, starting with `what`; then `end`.
pub(super) fn each(what: &str, error: ChangeError, end: Option<&str>) -> Refusal {
    each_named(what, |name| format!("'{name}'"), error, end)
}

/// The same, with a format for the names.
fn each_named(
    what: &str,
    name: impl Fn(String) -> String,
    error: ChangeError,
    end: Option<&str>,
) -> Refusal {
    let lines = match error {
        ChangeError::Each(errors) => errors,
        error => return refusal(what, error),
    };
    let lines = lines.into_iter().map(|(of, error)| format!("{what} {}: {error}", name(of)));
    Refusal::new(lines.chain(end.map(str::to_owned)).collect::<Vec<_>>().join("\n"))
}

/// Why snapshots are not destroyed.
pub(super) fn not_destroyed(error: ChangeError) -> Refusal {
    each_named("cannot destroy snapshot", |name| name, error, None)
}
