//! Copying ranges of files: whole blocks are shared where possible, the rest is read and written
//! (spec 05, section 9.7).

use super::caller::Caller;
use super::contents::WriteAt;
use super::file_system::LiveFileSystem;
use super::sharing::{CopySource, FilePlace};
use crate::error::ZplError;
use rzfs_format::ObjectId;

/// Maximum bytes read and written within one request, so that it ends.
const MAX_COPY: u64 = 32 << 20;
/// Maximum bytes copied within one request, by sharing or writing.
const MAX_REQUEST: u64 = 1 << 30;
/// Bytes read and written at a time.
const COPY_PIECE: u64 = 1 << 20;
/// The number of bytes to copy before sharing is tried again: up to a block boundary, if the
/// boundaries of both files coincide.
fn piece(from: u64, to: u64, block_size: u64) -> u64 {
    let unit = COPY_PIECE.max(block_size);
    if block_size == 0 || from % block_size != to % block_size {
        return unit;
    }
    if from.is_multiple_of(block_size) { unit } else { block_size - from % block_size }
}

impl LiveFileSystem {
    /// Copies a range of a file into one of this file system, within the limits of one request;
    /// returns the number of bytes: less than `len` also at the end of the source. Blocks on disk
    /// are shared with the source if the pool, the properties of both file systems and the block
    /// sizes allow it; all else is read and written.
    ///
    /// # Errors
    /// Nothing was copied: the ranges overlap in one file, the target's flags forbid it, it would
    /// become too long, a quota or the space is exceeded, or a block cannot be read.
    pub fn copy_range<'a>(
        &self,
        to: FilePlace,
        (source, from): (impl Into<CopySource<'a>>, FilePlace),
        len: u64,
        caller: Caller,
    ) -> Result<u64, ZplError> {
        let source = source.into();
        let size = source.attributes(from.object)?.size;
        let len = len.min(size.saturating_sub(from.offset)).min(MAX_REQUEST);
        let is_same = self.is_same_file(to.object, (source, from.object));
        if is_same && len > 0 && to.offset.abs_diff(from.offset) < len {
            let place = self.place(to.object);
            return Err(ZplError::Invalid { place, problem: "the ranges overlap" });
        }
        let (mut done, mut copied) = (0, 0);
        while done < len && copied < MAX_COPY {
            let (from, to, rest) = (from.after(done), to.after(done), len - done);
            let result = match self.clone_range(to, (source, from), rest, caller) {
                Ok(0) => {
                    let result = self.copy_piece(to, (source, from), rest, caller);
                    copied += result.as_ref().map_or(0, |bytes| *bytes);
                    result
                }
                shared => shared,
            };
            match result {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if done > 0 {
            self.commit_always(to.object)?;
        }
        Ok(done)
    }

    fn is_same_file(&self, object: ObjectId, (source, other): (CopySource<'_>, ObjectId)) -> bool {
        match source {
            CopySource::Live(source) => {
                source.objset().id() == self.objset().id() && object == other
            }
            CopySource::Fixed(_) => false,
        }
    }

    /// Copies a part of a range by reading and writing.
    fn copy_piece(
        &self,
        to: FilePlace,
        (source, from): (CopySource<'_>, FilePlace),
        rest: u64,
        caller: Caller,
    ) -> Result<u64, ZplError> {
        let block_size = u64::from(source.attributes(from.object)?.block_size);
        let len = piece(from.offset, to.offset, block_size).min(rest);
        let mut done = 0;
        for segment in source.read(from, len)? {
            let at = WriteAt::Offset(to.offset.saturating_add(done));
            match self.write(to.object, at, &segment, caller) {
                Ok((_, written)) => {
                    done += written as u64;
                    if written < segment.len() {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    #[test]
    fn copying_goes_on_where_sharing_can_begin() {
        assert_eq!(piece(100, 100 + BLOCK, BLOCK), BLOCK - 100);
        assert_eq!(piece(100, 101, BLOCK), COPY_PIECE);
        assert_eq!(piece(BLOCK, 0, BLOCK), COPY_PIECE);
        assert_eq!(piece(0, 0, 16 << 20), 16 << 20);
        assert_eq!(piece(5, 6, 0), COPY_PIECE);
    }
}
