//! Streams of snapshots, as `zfs send` writes them.
//!
//! The answer to [`Request::Send`](super::Request::Send) is not one message. What is asked for is no text,
//! may be as long as the pool, and comes as parts:
//!
//! ```text
//! length, 4 bytes, little-endian | so many bytes of the stream     any number of times
//! 0 0 0 0                        | Answer: it was all, or why it was not
//! ```
//! Nothing follows on that connection. The bytes pass through the peer, who writes them where it likes:
//! a process that has a pool, which may be somebody else's, is given no descriptor of the one who asks.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};

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

/// Bytes before a part that say how long it is.
pub const PART_HEADER: usize = 4;

/// A writer of parts: each write is one.
#[derive(Debug)]
pub struct PartWriter<W> {
    to: W,
}

impl<W: Write> PartWriter<W> {
    /// A writer of parts to `to`.
    pub const fn new(to: W) -> Self {
        Self { to }
    }

    /// Says that this was all, and hands back where it went.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; PART_HEADER])?;
        Ok(self.to)
    }
}

impl<W: Write> Write for PartWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let part = bytes.get(..len as usize).unwrap_or_default();
        // An empty part would be the end.
        if !part.is_empty() {
            self.to.write_all(&len.to_le_bytes())?;
            self.to.write_all(part)?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
