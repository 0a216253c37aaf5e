//! What is asked for when a snapshot is sent.

use serde::{Deserialize, Serialize};

/// What is to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SendRequest {
    /// The snapshot.
    pub snapshot: String,
    /// The snapshot or bookmark that the receiver has.
    pub from: Option<String>,
    /// Blocks beyond 128 KiB stay whole.
    pub large_blocks: bool,
    /// Blocks that lie in their pointers are sent as such.
    pub embedded: bool,
    /// Compressed blocks are sent as they are stored.
    pub compressed: bool,
}
