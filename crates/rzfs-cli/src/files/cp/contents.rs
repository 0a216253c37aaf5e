//! Copies the contents of a file.

use super::progress::Progress;
use crate::files::cat::{self, CHUNK, CopyError};
use rzfs::{Extent, File};
use std::fs;
use std::io::{Seek, SeekFrom};

/// The attributes that are kept besides the contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fidelity {
    /// Permissions, subject to the umask.
    Contents,
    /// Everything that the host can store.
    Archive,
}

/// Writes a file, skipping holes if the output can have holes.
pub(super) fn contents(
    file: &File,
    out: &mut fs::File,
    progress: &Progress,
) -> Result<(), CopyError> {
    if !out.metadata()?.is_file() {
        return cat::copy(file, out, |bytes| progress.bytes(bytes));
    }
    for extent in file.extents() {
        let range = match extent {
            Extent::Data(range) => range,
            Extent::Hole(range) => {
                progress.bytes(range.end - range.start);
                continue;
            }
        };
        let mut at = range.start;
        out.seek(SeekFrom::Start(at))?;
        while at < range.end {
            let segments = file.read_segments(at, CHUNK.min(range.end - at))?;
            let written = cat::write_segments(out, &segments)?;
            if written == 0 {
                break;
            }
            progress.bytes(written);
            at += written;
        }
    }
    Ok(out.set_len(file.len())?)
}
