//! The history of a pool, as `zpool history` shows it.

use serde::{Deserialize, Serialize};

/// A record of a pool's history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryReport {
    /// When it was written, in seconds since 1970.
    pub time: Option<u64>,
    /// What it records.
    pub kind: HistoryKind,
    /// Its text. Requests to the kernel module take several lines.
    pub text: String,
    /// Number of the user who gave the command.
    pub user: Option<u64>,
    /// The host that wrote it.
    pub host: Option<String>,
    /// The zone on that host.
    pub zone: Option<String>,
}

/// The kind of a history record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryKind {
    /// A command of a user.
    Command,
    /// An internal change.
    Internal,
}
