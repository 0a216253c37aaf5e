//! Initialization and TRIM of the free space of leaves.

use super::{SweepKind, SweepOrder, SweepState};
use serde::{Deserialize, Serialize};

/// A sweep of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepReport {
    /// Its state.
    pub state: SweepState,
    /// The time of the last change of state, in seconds since the epoch.
    pub action_time: u64,
    /// Bytes done.
    pub done: u64,
    /// Bytes to do.
    pub total: u64,
}

impl SweepReport {
    /// The progress in percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = u128::from(self.done) * 100 / u128::from(self.total.max(1));
        match self.state {
            SweepState::Complete => 100,
            _ => u64::try_from(percent).unwrap_or(100).min(100),
        }
    }
}

/// Sweeps to be started or stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepRequest {
    /// The operation.
    pub kind: SweepKind,
    /// The order.
    pub order: SweepOrder,
    /// Whether devices must erase discarded data.
    pub erasure: Erasure,
    /// Names, paths or guids of leaves; none for all of the pool's.
    pub devices: Vec<String>,
}

/// What may remain of discarded data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Erasure {
    /// Anything.
    Plain,
    /// Nothing.
    Secure,
}
