//! Initialization and TRIM of the free space of leaves.

use super::{SweepKind, SweepOrder, SweepState};
use serde::{Deserialize, Serialize};

/// A sweep of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepReport {
    /// How it stands.
    pub state: SweepState,
    /// When the state changed last, in seconds since the epoch.
    pub action_time: u64,
    /// Bytes that are done.
    pub done: u64,
    /// Bytes that there are to do.
    pub total: u64,
}

impl SweepReport {
    /// How much is done, in percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = u128::from(self.done) * 100 / u128::from(self.total.max(1));
        match self.state {
            SweepState::Complete => 100,
            _ => u64::try_from(percent).unwrap_or(100).min(100),
        }
    }
}

/// Sweeps that are to begin or to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SweepRequest {
    /// What is done.
    pub kind: SweepKind,
    /// What is wanted.
    pub order: SweepOrder,
    /// Whether devices have to erase what they discard.
    pub erasure: Erasure,
    /// Names, paths or guids of leaves; all of the pool's if there are none.
    pub devices: Vec<String>,
}

/// What may be left of what a device discards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Erasure {
    /// Anything.
    Plain,
    /// Nothing.
    Secure,
}
