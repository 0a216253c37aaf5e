//! Messages as lines of JSON.

use super::{Envelope, VERSION};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Read as _, Write};

/// The longest request that a pool reads, in bytes.
pub const MAX_REQUEST: u64 = 1 << 20;

/// The longest answer that a command reads, in bytes.
pub const MAX_ANSWER: u64 = 1 << 30;

/// Why a message was not understood or did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed.
    #[error("control socket: {0}")]
    Io(#[from] std::io::Error),
    /// The peer closed the connection instead of answering.
    #[error("control socket: the peer closed the connection")]
    Closed,
    /// The message is longer than is ever needed.
    #[error("control socket: a message of more than {0} bytes")]
    TooLong(u64),
    /// The message is not a message.
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
pub fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, WireError> {
    let mut line = serde_json::to_vec(&Envelope::new(body))?;
    line.push(b'\n');
    Ok(line)
}

/// The message in a line. The version is checked before anything else of it.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, WireError> {
    let envelope: Envelope<serde_json::Value> = serde_json::from_slice(line)?;
    if envelope.version != VERSION {
        return Err(WireError::Version(envelope.version));
    }
    Ok(serde_json::from_value(envelope.body)?)
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
    use crate::protocol::{Answer, DatasetKind, DatasetQuery, Identity, Request, Selection};

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
    fn other_versions_and_long_messages_are_refused() {
        let foreign = br#"{"version":99,"body":{"something":"new"}}"#;
        assert!(matches!(decode::<Request>(foreign), Err(WireError::Version(99))));
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let refusal = receive::<Request>(&mut endless, 1000);
        assert!(matches!(refusal, Err(WireError::TooLong(1000))));
        assert!(matches!(decode::<Request>(b"{}"), Err(WireError::Malformed(_))));
    }
}
