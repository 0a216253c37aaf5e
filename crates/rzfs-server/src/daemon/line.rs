//! Connections that carry streams of snapshots.

use crate::protocol::{Answer, Refusal, encode};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A connection that carries a stream, shared with any thread that ends the pool.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<UnixStream>);

impl Line {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.0
    }

    /// Sends an answer to the peer, which need not read it.
    pub(crate) fn say(&self, answer: &Answer) -> io::Result<()> {
        let refused = |error| encode(&Answer::Failed(Refusal::new(format!("{error}"))));
        let line = encode(answer).or_else(refused);
        self.stream().write_all(&line.map_err(io::Error::other)?)
    }

    /// Ends the stream and all waits for the peer.
    pub(crate) fn break_off(&self) {
        // The peer may be gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Whether both are the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
