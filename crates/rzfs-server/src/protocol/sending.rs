//! The request to send a snapshot.

use serde::{Deserialize, Serialize};

/// The steps from one snapshot to a later one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// At once.
    One,
    /// From each snapshot to the next one.
    Each,
}

/// The part of a snapshot that is sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portion {
    /// All of it, or the increment.
    Complete,
    /// The rest of an interrupted stream: the snapshot is the one in the token, whatever its
    /// current name, and so is the receiver's.
    Rest {
        /// The token.
        token: String,
    },
    /// The partial state of an interrupted receive: the snapshot is its target.
    Arrived,
}

/// The values of properties that are sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SentProperties {
    /// None, except for a tree.
    #[default]
    None,
    /// A dataset's own effective ones.
    InForce,
    /// The received ones, even if not effective.
    Received,
}

/// Treatment of datasets of a tree without the snapshot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingSnapshots {
    /// Sending is refused.
    #[default]
    Refused,
    /// They, and all below, are left out.
    Skipped,
}

/// The tree below the sent dataset.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SentTree {
    /// Datasets that are not sent, nor their descendants.
    pub excluded: Vec<String>,
    /// Treatment of datasets without the snapshot.
    pub missing: MissingSnapshots,
}

/// A send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SendRequest {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark that the receiver has.
    pub from: Option<String>,
    /// Whether intermediate snapshots are sent, too.
    pub steps: Steps,
    /// Do not split blocks over 128 KiB.
    pub large_blocks: bool,
    /// Send embedded blocks as such.
    pub embedded: bool,
    /// Send compressed blocks as stored.
    pub compressed: bool,
    /// Send encrypted blocks as stored, and others in all of these forms.
    pub raw: bool,
    /// The part of the snapshot.
    pub portion: Portion,
    /// The properties to send.
    pub properties: SentProperties,
    /// Whether to send holds.
    pub holds: bool,
    /// The tree below the dataset, with all snapshots, if it is sent, too.
    pub tree: Option<SentTree>,
}

/// The size of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamSize {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark that the receiver has.
    pub from: Option<String>,
    /// Bytes.
    pub bytes: u64,
}

/// The sizes of the streams of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamSizes {
    /// One for each, in order.
    pub sizes: Vec<StreamSize>,
    /// Omissions, a line for each.
    pub skipped: Vec<String>,
}
