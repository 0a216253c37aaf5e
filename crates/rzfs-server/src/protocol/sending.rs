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
    /// The token of a stream that broke off, of which the rest is to be sent; the snapshot is the one that
    /// it names then, under whichever name it has by now, and so is what the receiver has.
    pub resume_token: Option<String>,
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
