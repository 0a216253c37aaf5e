//! Messages as lines of JSON. Requests may contain keys, so every buffer of a line is wiped when it
//! moves and on drop.

use super::{Envelope, VERSION};
use rzfs_blockdev::without_number;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read as _, Write};
use zeroize::{Zeroize, Zeroizing};

/// The longest request that a pool reads, in bytes.
pub const MAX_REQUEST: u64 = 1 << 20;

/// The longest answer that a command reads, in bytes.
pub const MAX_ANSWER: u64 = 1 << 30;

/// Why a message was not understood or did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed.
    #[error("control socket: {}", without_number(.0))]
    Io(#[from] std::io::Error),
    /// The peer closed the connection instead of answering.
    #[error("control socket: the peer closed the connection")]
    Closed,
    /// The message exceeds the limit.
    #[error("control socket: a message of more than {0} bytes")]
    TooLong(u64),
    /// The message cannot be parsed.
    #[error("control socket: malformed message: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The peer is another release of rzfs.
    #[error("control socket: the peer speaks version {0}, this rzfs version {VERSION}")]
    Version(u32),
}

impl WireError {
    /// Whether the peer is gone.
    #[must_use]
    pub fn is_hang_up(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        match self {
            Self::Closed => true,
            Self::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
            _ => false,
        }
    }
}

/// The line that carries `body`, with its newline.
pub fn encode<T: Serialize>(body: &T) -> Result<Zeroizing<Vec<u8>>, WireError> {
    let mut line = WipedBytes::default();
    serde_json::to_writer(&mut line, &Envelope::new(body))?;
    line.write_all(b"\n")?;
    Ok(line.0)
}

/// Decodes the message in a line. The version is checked first.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, WireError> {
    /// The fields common to all versions; the rest is skipped, not kept.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_slice(line)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let envelope: Envelope<T> = serde_json::from_slice(line)?;
    Ok(envelope.body)
}

/// Bytes that leave no copy behind when they grow.
#[derive(Default)]
struct WipedBytes(Zeroizing<Vec<u8>>);

impl Write for WipedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger =
                Zeroizing::new(Vec::with_capacity(needed.next_power_of_two().max(256)));
            larger.extend_from_slice(&self.0);
            // The old one is wiped.
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A receive buffer for requests, with room to read into and any complete ones.
#[derive(Debug)]
pub struct Incoming {
    /// Fully initialized; the unfilled part is zero.
    bytes: Zeroizing<Vec<u8>>,
    filled: usize,
}

/// Initial size of the buffer.
const ROOM: usize = 4096;

impl Default for Incoming {
    fn default() -> Self {
        Self { bytes: Zeroizing::new(vec![0; ROOM]), filled: 0 }
    }
}

impl Incoming {
    /// Room for more of a request; `None` if it exceeds [`MAX_REQUEST`].
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.filled == self.bytes.len() {
            let limit = usize::try_from(MAX_REQUEST).unwrap_or(usize::MAX);
            let larger = self.bytes.len().saturating_mul(2).min(limit);
            if larger <= self.filled {
                return None;
            }
            let mut bytes = Zeroizing::new(vec![0; larger]);
            bytes[..self.filled].copy_from_slice(&self.bytes);
            self.bytes = bytes;
        }
        Some(&mut self.bytes[self.filled..])
    }

    /// Marks `count` bytes as read into the room.
    pub fn fill(&mut self, count: usize) {
        self.filled = self.filled.saturating_add(count).min(self.bytes.len());
    }

    /// The next request, if it is complete; its line is wiped.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Option<Result<T, WireError>> {
        let end = self.bytes[..self.filled].iter().position(|byte| *byte == b'\n')? + 1;
        let request = decode(&self.bytes[..end]);
        self.bytes.copy_within(end..self.filled, 0);
        self.bytes[self.filled - end..self.filled].zeroize();
        self.filled -= end;
        Some(request)
    }

    /// The data after the last request.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

/// Writes a message and flushes it.
pub fn send<T: Serialize>(to: &mut impl Write, body: &T) -> Result<(), WireError> {
    to.write_all(&encode(body)?)?;
    Ok(to.flush()?)
}

/// Reads a message of at most `limit` bytes.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead, limit: u64) -> Result<T, WireError> {
    let mut line = Vec::new();
    from.take(limit).read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => decode(&line),
        Some(_) if line.len() as u64 >= limit => Err(WireError::TooLong(limit)),
        _ => Err(WireError::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        Answer, Change, DatasetKind, DatasetQuery, Identity, Purpose, Request, Selection,
    };
    use rzfs::Secret;

    #[test]
    fn messages_survive_the_wire() {
        let request = Request::Datasets(DatasetQuery {
            names: vec!["tank/a".into()],
            depth: Some(1),
            kinds: vec![DatasetKind::Snapshot],
            properties: Selection::Named(vec!["used".into()]),
        });
        let answer = Answer::Identity(Identity {
            pool: "tank".into(),
            guid: u64::MAX,
            process: 7,
            is_writable: true,
        });
        let mut line = Vec::new();
        send(&mut line, &request).unwrap();
        send(&mut line, &answer).unwrap();
        let mut reader = line.as_slice();
        assert_eq!(receive::<Request>(&mut reader, MAX_REQUEST).unwrap(), request);
        assert_eq!(receive::<Answer>(&mut reader, MAX_ANSWER).unwrap(), answer);
        assert!(matches!(receive::<Answer>(&mut reader, MAX_ANSWER), Err(WireError::Closed)));
    }

    #[test]
    fn requests_leave_nothing_where_they_were_read() {
        let key = Secret::new((1..=200).cycle().take(3000).collect());
        let request = Request::Change {
            change: Change::LoadKey { name: "tank/a".into(), key, purpose: Purpose::Change },
            command: None,
        };
        let mut lines = encode(&request).unwrap();
        assert!(lines.len() > ROOM, "it needs more room on its way");
        lines.extend_from_slice(&encode(&Request::Identify).unwrap());
        let mut incoming = Incoming::default();
        let mut received = Vec::new();
        for part in lines.chunks(1000) {
            let mut part = part;
            while !part.is_empty() {
                let room = incoming.room().unwrap();
                let len = part.len().min(room.len());
                room[..len].copy_from_slice(&part[..len]);
                incoming.fill(len);
                part = &part[len..];
                received.extend(std::iter::from_fn(|| incoming.next_message::<Request>()));
            }
        }
        let received: Vec<_> = received.into_iter().map(Result::unwrap).collect();
        assert_eq!(received, [request, Request::Identify]);
        assert!(incoming.bytes.iter().all(|byte| *byte == 0), "{incoming:?}");
        assert_eq!(incoming.filled, 0);
    }

    #[test]
    fn a_request_without_an_end_is_not_kept() {
        let mut incoming = Incoming::default();
        let mut all = 0;
        while let Some(room) = incoming.room() {
            room.fill(b'x');
            let len = room.len();
            incoming.fill(len);
            all += len as u64;
            assert!(incoming.next_message::<Request>().is_none());
        }
        assert_eq!(all, MAX_REQUEST);
    }

    #[test]
    fn other_versions_and_long_messages_are_refused() {
        let foreign = br#"{"version":99,"body":{"something":"new"}}"#;
        assert!(matches!(decode::<Request>(foreign), Err(WireError::Version(99))));
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let refusal = receive::<Request>(&mut endless, 1000);
        assert!(matches!(refusal, Err(WireError::TooLong(1000))));
        assert!(matches!(decode::<Request>(b"{}"), Err(WireError::Malformed(_))));
    }
}
