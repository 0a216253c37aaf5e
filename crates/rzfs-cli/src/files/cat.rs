//! `rzfs cat`: writes files and volumes to standard output.

use super::arguments::TargetsArguments;
use super::complaints::Complaints;
use super::session::{Opened, Session};
use crate::console::{Failure, Outcome};
use bytes::Bytes;
use rzfs::{Extent, File};
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;

/// Bytes that are read and written at once.
pub(super) const CHUNK: u64 = 4 << 20;

/// Source of the zeros for holes.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];

pub(super) fn run(arguments: &TargetsArguments, complaints: &mut Complaints<'_, '_>) -> Outcome {
    let mut session = Session::begin(&arguments.pool, complaints)?;
    // Standard output without line buffering.
    let mut out = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    for target in &arguments.targets {
        let file = match session.open(target, complaints) {
            None => continue,
            Some(Opened::Volume(_, file)) => Ok(file),
            Some(Opened::Path(tree, path)) => tree.open(path),
        };
        match file.map(|file| copy(&file, &mut out, |_| {})) {
            Ok(Ok(())) => {}
            Ok(Err(CopyError::Write(error))) => return Err(Failure::Output(error)),
            Ok(Err(CopyError::Read(error))) | Err(error) => complaints.file(&error),
        }
    }
    Ok(())
}

/// Why a copy ended early.
pub(super) enum CopyError {
    /// The file cannot be read.
    Read(rzfs::FileError),
    /// The output cannot be written.
    Write(io::Error),
}

impl From<rzfs::FileError> for CopyError {
    fn from(error: rzfs::FileError) -> Self {
        Self::Read(error)
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Writes a whole file, with zeros for holes; calls `progress` with the number of bytes.
pub(super) fn copy(
    file: &File,
    out: &mut dyn Write,
    progress: impl Fn(u64),
) -> Result<(), CopyError> {
    for extent in file.extents() {
        match extent {
            Extent::Hole(range) => {
                let mut rest = range.end - range.start;
                while rest > 0 {
                    let len = rest.min(CHUNK);
                    write_zeros(out, len)?;
                    progress(len);
                    rest -= len;
                }
            }
            Extent::Data(range) => {
                let mut at = range.start;
                while at < range.end {
                    let segments = file.read_segments(at, CHUNK.min(range.end - at))?;
                    let len = write_segments(out, &segments)?;
                    if len == 0 {
                        // The file is shorter than it claims.
                        return Ok(());
                    }
                    progress(len);
                    at += len;
                }
            }
        }
    }
    Ok(())
}

/// Writes all bytes, and returns their number.
pub(super) fn write_segments(out: &mut dyn Write, segments: &[Bytes]) -> io::Result<u64> {
    let mut slices: Vec<_> = segments.iter().map(|segment| IoSlice::new(segment)).collect();
    write_slices(out, &mut slices)
}

fn write_zeros(out: &mut dyn Write, len: u64) -> io::Result<u64> {
    let mut slices = Vec::new();
    let mut rest = len as usize;
    while rest > 0 {
        let part = ZEROS.get(..rest).unwrap_or(&ZEROS);
        slices.push(IoSlice::new(part));
        rest -= part.len();
    }
    write_slices(out, &mut slices)
}

fn write_slices(out: &mut dyn Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<u64> {
    let mut total = 0;
    // An empty slice must not be mistaken for the end.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match out.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                total += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts few bytes at once.
    struct Narrow(Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(3);
            self.0.extend(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everything_is_written_however_little_fits() {
        let mut out = Narrow(Vec::new());
        let segments = [&b""[..], b"abcdefgh", b"", b"ij"].map(Bytes::from_static);
        assert_eq!(write_segments(&mut out, &segments).unwrap(), 10);
        assert_eq!(write_segments(&mut out, &[Bytes::new()]).unwrap(), 0);
        assert_eq!(write_zeros(&mut out, 5).unwrap(), 5);
        assert_eq!(out.0, b"abcdefghij\0\0\0\0\0");
        let mut all = Vec::new();
        assert_eq!(write_zeros(&mut all, (1 << 20) + 1).unwrap(), (1 << 20) + 1);
        assert_eq!(all.len(), (1 << 20) + 1);
    }
}
