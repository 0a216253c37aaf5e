//! The request to receive a snapshot, and its answers.

use super::Pair;
use serde::{Deserialize, Serialize};

/// The destination of a stream, by the names in it: `pool/a/b@snapshot`, say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveTarget {
    /// This file system or volume, with the stream's snapshot name.
    Dataset(String),
    /// This snapshot.
    Snapshot(String),
    /// Below this file system, with all names but the pool's: `a/b`.
    Path(String),
    /// Below this file system, with the last name: `b`.
    LastName(String),
}

impl ReceiveTarget {
    /// The named dataset, without a snapshot.
    #[must_use]
    pub fn dataset(&self) -> &str {
        match self {
            Self::Dataset(name) | Self::Path(name) | Self::LastName(name) => name,
            Self::Snapshot(name) => name.split('@').next().unwrap_or_default(),
        }
    }
}

/// A receive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReceiveRequest {
    /// Its destination.
    pub target: ReceiveTarget,
    /// The snapshot from which a missing target is cloned.
    pub origin: Option<String>,
    /// Properties of the target, which datasets received below it inherit; even if the target
    /// itself is not received.
    pub properties: Vec<Pair>,
    /// Properties whose received values do not take effect.
    pub excluded: Vec<String>,
    /// Discard changes of the target, and snapshots younger than the stream's source.
    pub force: bool,
    /// Detach mounts in use for changes of a tree.
    pub force_unmount: bool,
    /// Ignore the holds that were sent.
    pub skip_holds: bool,
    /// Make no mounts, and leave existing ones in place.
    pub leave_unmounted: bool,
    /// Treatment of the partial state of an interrupted stream.
    pub remains: Remains,
    /// Receive nothing, only report. The stream is read nevertheless.
    pub dry_run: bool,
    /// The line for the pool's history.
    pub command: String,
}

/// Treatment of the partial state of an interrupted stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remains {
    /// It is destroyed.
    Destroyed,
    /// It is kept: the receive can be resumed.
    Kept,
}

/// The description of a receive, sent once the beginning of the stream is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// The snapshot's name in the stream.
    pub sent: String,
    /// Its local name.
    pub snapshot: String,
    /// The extent of the stream.
    pub extent: StreamExtent,
    /// The local snapshot from which a new dataset is cloned.
    pub origin: Option<String>,
}

/// The extent of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamExtent {
    /// The whole snapshot.
    Full,
    /// The changes.
    Incremental,
    /// The snapshot exists already: this stream of a package is skipped.
    Known,
}

/// A change that adjusts the local tree to a sent one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeChange {
    /// Destroy a dataset or snapshot that was not sent.
    Destroy {
        /// Its name.
        name: String,
    },
    /// Rename a dataset or snapshot to its name at the sender.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Promote a clone.
    Promote {
        /// The clone.
        name: String,
    },
    /// Leave a dataset that lacks the source snapshot of the increment.
    Leave {
        /// The dataset.
        name: String,
        /// The snapshot, without the dataset.
        from: String,
    },
}

/// A change of a tree, and its outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeReport {
    /// The change.
    pub change: TreeChange,
    /// The reason why it failed, if it did.
    pub failure: Option<String>,
}
