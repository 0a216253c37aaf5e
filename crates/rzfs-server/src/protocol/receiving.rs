//! What is asked for when a snapshot is received, and what is said of it.

use super::Pair;
use serde::{Deserialize, Serialize};

/// Where a stream goes to, by names that it has itself: `pool/a/b@snapshot`, say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveTarget {
    /// To this file system or volume, under the name of the snapshot that the stream says.
    Dataset(String),
    /// To this snapshot.
    Snapshot(String),
    /// Below this file system, with all names but that of the pool: `a/b`.
    Path(String),
    /// Below this file system, with the last name: `b`.
    LastName(String),
}

impl ReceiveTarget {
    /// The dataset that was named, without a snapshot.
    #[must_use]
    pub fn dataset(&self) -> &str {
        match self {
            Self::Dataset(name) | Self::Path(name) | Self::LastName(name) => name,
            Self::Snapshot(name) => name.split('@').next().unwrap_or_default(),
        }
    }
}

/// What is to be received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReceiveRequest {
    /// Where it goes to.
    pub target: ReceiveTarget,
    /// The snapshot of which a target that is not there becomes a clone.
    pub origin: Option<String>,
    /// Properties that the target gets, and that what comes below it inherits; also if nothing comes of
    /// the target itself.
    pub properties: Vec<Pair>,
    /// Properties whose received values are not in force.
    pub excluded: Vec<String>,
    /// Changes of the target are given up, and snapshots that are younger than the stream's source.
    pub force: bool,
    /// Mounts that are in use make way for changes of a tree.
    pub force_unmount: bool,
    /// Who kept the snapshots where they were sent is not taken over.
    pub skip_holds: bool,
    /// Nothing gets mounted that is not, and what is mounted stays where it is.
    pub leave_unmounted: bool,
    /// What becomes of what has arrived when the stream breaks off.
    pub remains: Remains,
    /// Nothing is received: it is only said what would be. The stream is read all the same.
    pub dry_run: bool,
    /// The line that the pool's history gets.
    pub command: String,
}

/// What becomes of what has arrived when a stream breaks off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remains {
    /// It is destroyed.
    Destroyed,
    /// It is kept: another stream can go on with it.
    Kept,
}

/// What is received, said when the beginning of the stream has been read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// The snapshot as the stream names it.
    pub sent: String,
    /// The snapshot that it becomes here.
    pub snapshot: String,
    /// What the stream has of it.
    pub extent: StreamExtent,
    /// The snapshot that was found here of which a new dataset becomes a clone.
    pub origin: Option<String>,
}

/// What a stream has of its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamExtent {
    /// All.
    Full,
    /// What has changed.
    Incremental,
    /// The snapshot is there already: the stream, one of a package, is passed over.
    Known,
}

/// A change that brings what is here into line with a tree that was sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeChange {
    /// A dataset or snapshot that was not sent is destroyed.
    Destroy {
        /// Its name.
        name: String,
    },
    /// A dataset or snapshot that has another name where it was sent is renamed.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// A clone changes places with what it is a clone of.
    Promote {
        /// The clone.
        name: String,
    },
    /// A dataset does not have the snapshot that the news are to: nothing is done.
    Leave {
        /// The dataset.
        name: String,
        /// The snapshot, without the name of the dataset.
        from: String,
    },
}

/// A change of a tree, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeReport {
    /// The change.
    pub change: TreeChange,
    /// Why it was not made, if it was not.
    pub failure: Option<String>,
}
