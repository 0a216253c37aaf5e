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
    /// What of the snapshot.
    pub portion: Portion,
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
