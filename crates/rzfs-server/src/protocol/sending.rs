//! What is asked for when a snapshot is sent.

use serde::{Deserialize, Serialize};

/// How one gets from one snapshot to a later one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// At once.
    One,
    /// From each snapshot to the next one.
    Each,
}

/// What of a snapshot is sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portion {
    /// All, or what is new.
    Complete,
    /// What is missing of a stream that broke off: the snapshot is the one that the token names then, under
    /// whichever name it has by now, and so is what the receiver has.
    Rest {
        /// The token.
        token: String,
    },
    /// What has arrived of it where a stream broke off: the snapshot is the file system or volume there.
    Arrived,
}

/// Which values of properties are sent along.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SentProperties {
    /// None, but those of a tree.
    #[default]
    None,
    /// Those in force that are a dataset's own.
    InForce,
    /// Those that were received, whatever is in force.
    Received,
}

/// What becomes of a tree in which a snapshot is missing somewhere.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingSnapshots {
    /// Nothing is sent.
    #[default]
    Refused,
    /// What does not have it, and all below that, is left out.
    Skipped,
}

/// Everything below what is sent.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SentTree {
    /// Datasets that are not sent, nor what is below them.
    pub excluded: Vec<String>,
    /// What becomes of those that do not have the snapshot.
    pub missing: MissingSnapshots,
}

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SendRequest {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark that the receiver has.
    pub from: Option<String>,
    /// Whether snapshots between them are sent, too.
    pub steps: Steps,
    /// Blocks beyond 128 KiB stay whole.
    pub large_blocks: bool,
    /// Blocks that lie in their pointers are sent as such.
    pub embedded: bool,
    /// Compressed blocks are sent as they are stored.
    pub compressed: bool,
    /// Encrypted blocks are sent as they are stored, and what is not encrypted in all of these forms.
    pub raw: bool,
    /// What of the snapshot.
    pub portion: Portion,
    /// Which properties are told.
    pub properties: SentProperties,
    /// Whether it is told who keeps the snapshots.
    pub holds: bool,
    /// What is below the dataset, with all snapshots, if that is sent, too.
    pub tree: Option<SentTree>,
}

/// How long a stream is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamSize {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark that the receiver has.
    pub from: Option<String>,
    /// Bytes.
    pub bytes: u64,
}

/// How long the streams of a request are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamSizes {
    /// Of each, in their order.
    pub sizes: Vec<StreamSize>,
    /// What is left out, a line for each.
    pub skipped: Vec<String>,
}
