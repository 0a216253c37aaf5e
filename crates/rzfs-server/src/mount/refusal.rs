//! Messages of refusals.

use crate::protocol::{Refusal, RefusalKind};
use std::fmt::Display;

/// The reason for a pool that waits for its devices.
pub(super) const SUSPENDED: &str = "pool I/O is currently suspended";

/// `WHAT: REASON`.
pub(super) fn refusal(what: impl Display, reason: impl Display) -> Refusal {
    Refusal::new(format!("{what}: {reason}"))
}

/// The same for a dataset that cannot be opened.
pub(super) fn unopened(name: &str, reason: impl Display) -> Refusal {
    Refusal::of_kind(RefusalKind::Unopened, format!("cannot open '{name}': {reason}"))
}
