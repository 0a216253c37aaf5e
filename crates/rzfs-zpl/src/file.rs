//! The contents of files: reading, and finding data and holes (spec 05, section 5).

use crate::contents::{fill, segments};
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::source::Source;
use bytes::Bytes;
use rzfs_dmu::SourceObject;
use rzfs_format::ObjectId;

impl<S: Source> FileSystem<S> {
    /// Accesses a readable regular file.
    fn with_readable<R>(
        &self,
        object: ObjectId,
        look: impl FnOnce(&S::File) -> Result<R, ZplError>,
    ) -> Result<R, ZplError> {
        self.source.with_file(object, |file| {
            file.require_readable()?;
            look(file)
        })
    }

    /// Checks that a file can be opened for reading.
    ///
    /// # Errors
    /// It is not a regular file, or is quarantined.
    pub fn open_for_reading(&self, object: ObjectId) -> Result<(), ZplError> {
        self.with_readable(object, |_| Ok(()))
    }

    /// Fills `buffer` with the contents from `offset` on, and returns the number of bytes: less
    /// than the buffer size only at the end of the file.
    ///
    /// # Errors
    /// It is not a regular file, or a block cannot be read.
    pub fn read(
        &self,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, ZplError> {
        self.with_readable(object, |file| {
            let rest = file.znode().size.saturating_sub(offset);
            let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
            let buffer = buffer.get_mut(..len).unwrap_or_default();
            fill(file.object(), &self.streams, offset, buffer)?;
            self.counters.count_read(len as u64);
            Ok(len)
        })
    }

    /// The contents from `offset` on as parts of blocks in memory, without a copy: `len` bytes,
    /// less at the end of the file and beyond 32 MiB.
    ///
    /// # Errors
    /// It is not a regular file, or a block cannot be read.
    pub fn read_segments(
        &self,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Bytes>, ZplError> {
        self.with_readable(object, |file| {
            let rest = file.znode().size.saturating_sub(offset);
            let read = segments(file.object(), &self.streams, offset, len.min(rest))?;
            self.counters.count_read(read.iter().map(|segment| segment.len() as u64).sum());
            Ok(read)
        })
    }

    /// The first byte at or after `offset` that is not in a hole. Data not on disk yet counts as
    /// data, even zeros.
    ///
    /// # Errors
    /// ENXIO when the file ends before, or has nothing but holes from there on.
    pub fn seek_data(&self, object: ObjectId, offset: u64) -> Result<u64, ZplError> {
        self.with_readable(object, |file| {
            let size = file.znode().size;
            let data = if offset < size { file.object().next_data(offset)? } else { None };
            let beyond = ZplError::BeyondEnd { place: file.place(), offset };
            data.filter(|data| *data < size).ok_or(beyond)
        })
    }

    /// The first byte at or after `offset` that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// ENXIO when the file ends before.
    pub fn seek_hole(&self, object: ObjectId, offset: u64) -> Result<u64, ZplError> {
        self.with_readable(object, |file| {
            let size = file.znode().size;
            if offset >= size {
                return Err(ZplError::BeyondEnd { place: file.place(), offset });
            }
            let hole = match file.object().next_hole(offset)? {
                Some(hole) => hole,
                None => file.object().extent()?,
            };
            Ok(hole.min(size).max(offset))
        })
    }
}
