//! Streams of snapshots, as `zfs send` writes them and `zfs receive` reads them.
//!
//! A stream is binary and may be as long as a pool. It comes as parts:
//!
//! ```text
//! length, 4 bytes, little-endian | that many bytes of the stream   any number of times
//! 0 0 0 0
//! ```
//! A [sent](super::Request::Send) stream is followed by the answer, and nothing else on that
//! connection. One to be [received](super::Request::Receive) follows the request, and the answer
//! may come before its end. Either way the bytes pass through the peer: the process of a pool,
//! which may be another user's, gets no descriptor of the client.

use std::io::{self, Read, Write};

/// Bytes of the length before a part.
const PART_HEADER: usize = 4;

/// The longest part that is written, in bytes.
pub const PART: usize = 256 << 10;

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

    /// Marks the end, and returns the underlying writer.
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

/// A reader of parts. The end mark is the end; a missing one is an error.
#[derive(Debug)]
pub struct PartReader<R> {
    from: R,
    /// Unread bytes of this part.
    left: u32,
    is_over: bool,
}

impl<R: Read> PartReader<R> {
    /// A reader of parts from `from`.
    pub const fn new(from: R) -> Self {
        Self { from, left: 0, is_over: false }
    }
}

impl<R: Read> Read for PartReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_over || bytes.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let mut header = [0; PART_HEADER];
            self.from.read_exact(&mut header)?;
            self.left = u32::from_le_bytes(header);
            if self.left == 0 {
                self.is_over = true;
                return Ok(0);
            }
        }
        let room = bytes.len().min(self.left as usize);
        let count = self.from.read(bytes.get_mut(..room).unwrap_or_default())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]]) -> Vec<u8> {
        let mut writer = PartWriter::new(Vec::new());
        for part in parts {
            writer.write_all(part).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn parts_are_read_as_one_stream_and_what_follows_is_left() {
        let mut bytes = written(&[b"one", b"", b"two and three"]);
        bytes.extend_from_slice(b"the answer");
        let mut from = bytes.as_slice();
        let mut stream = String::new();
        PartReader::new(&mut from).read_to_string(&mut stream).unwrap();
        assert_eq!(stream, "onetwo and three");
        assert_eq!(from, b"the answer");
    }

    #[test]
    fn a_stream_without_an_end_is_an_error() {
        let whole = written(&[b"one", b"two"]);
        for len in 0..whole.len() {
            let mut read = Vec::new();
            let error = PartReader::new(&whole[..len]).read_to_end(&mut read).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }
}
