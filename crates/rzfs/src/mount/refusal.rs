//! What is said when something is not done.

use crate::console::Failure;
use rzfs::protocol::Refusal;
use std::fmt::Display;

/// What is said of a pool that waits for its devices.
pub(super) const SUSPENDED: &str = "pool I/O is currently suspended";

/// `WHAT: REASON`.
pub(super) fn refusal(what: impl Display, reason: impl Display) -> Refusal {
    Refusal { message: format!("{what}: {reason}") }
}

/// A command that has failed with an error.
pub(super) fn failed(error: impl Display) -> Failure {
    Failure::Failed(error.to_string())
}
