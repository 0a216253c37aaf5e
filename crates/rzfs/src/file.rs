//! The contents of a regular file or a volume.

use crate::file_error::FileError;
use bytes::Bytes;
use rzfs_format::ObjectId;
use rzfs_zpl::{FileSystem, Volume, ZplError};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

/// A regular file or a volume, open for reading: at any offset, from any number of threads; or
/// sequentially, with [`Read`] and [`Seek`].
///
/// ```no_run
/// # use rzfs::OpenFiles;
/// # let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
/// let catalogue = pool.file_system("garden/seeds")?.open("/catalogue.bin")?;
/// let mut page = vec![0; 4096];
/// let read = catalogue.read_at(100_000, &mut page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct File {
    /// Dataset and path, for errors.
    dataset: String,
    path: Vec<u8>,
    contents: Contents,
    size: u64,
    position: u64,
}

#[derive(Clone, Debug)]
enum Contents {
    Regular(Arc<FileSystem>, ObjectId),
    Volume(Volume),
}

/// A range of a file that is stored, or a hole that reads as zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Stored.
    Data(Range<u64>),
    /// Not stored.
    Hole(Range<u64>),
}

impl File {
    /// A regular file; `place` identifies it in errors.
    pub(crate) fn of_file(
        place: FileError,
        file_system: Arc<FileSystem>,
        object: ObjectId,
        size: u64,
    ) -> Self {
        let contents = Contents::Regular(file_system, object);
        Self { dataset: place.dataset, path: place.path, contents, size, position: 0 }
    }

    /// The contents of a volume; `dataset` is its name in errors.
    #[must_use]
    pub fn of_volume(dataset: &str, volume: Volume) -> Self {
        let size = volume.size();
        let contents = Contents::Volume(volume);
        Self { dataset: dataset.to_owned(), path: Vec::new(), contents, size, position: 0 }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.size
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    fn error(&self, offset: u64, error: ZplError) -> FileError {
        FileError {
            dataset: self.dataset.clone(),
            path: self.path.clone(),
            offset: Some(offset),
            problem: error.into(),
        }
    }

    /// Fills `buffer` with the bytes from `offset` on, and returns their number: less than the
    /// buffer's length only at the end.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let read = match &self.contents {
            Contents::Regular(file_system, object) => file_system.read(*object, offset, buffer),
            Contents::Volume(volume) => volume.read_at(offset, buffer),
        };
        read.map_err(|error| self.error(offset, error))
    }

    fn segments(&self, offset: u64, len: u64) -> Result<Vec<Bytes>, FileError> {
        let segments = match &self.contents {
            Contents::Regular(file_system, object) => {
                file_system.read_segments(*object, offset, len)
            }
            Contents::Volume(volume) => volume.read_segments(offset, len),
        };
        segments.map_err(|error| self.error(offset, error))
    }

    /// The size of its blocks in bytes.
    fn block_size(&self) -> u64 {
        let size = match &self.contents {
            Contents::Regular(file_system, object) => {
                file_system.attributes(*object).map_or(1, |attributes| attributes.block_size)
            }
            Contents::Volume(volume) => volume.block_size(),
        };
        u64::from(size).max(1)
    }

    /// The bytes from `offset` on as parts of cached blocks, without a copy: at most `len`, and
    /// none at the end. Before an unreadable block there may be fewer.
    ///
    /// # Errors
    /// The block at `offset` cannot be read.
    pub fn read_segments(&self, offset: u64, len: u64) -> Result<Vec<Bytes>, FileError> {
        let error = match self.segments(offset, len) {
            Ok(segments) => return Ok(segments),
            Err(error) => error,
        };
        // Data before the damage are good: read them block by block.
        let block_size = self.block_size();
        let (mut good, mut at) = (Vec::new(), offset);
        let end = offset.saturating_add(len);
        while at < end {
            let next = (at / block_size).saturating_add(1).saturating_mul(block_size).min(end);
            match self.segments(at, next - at) {
                Ok(segments) => good.extend(segments),
                Err(error) if good.is_empty() => return Err(error),
                Err(_) => return Ok(good),
            }
            at = next;
        }
        // The damage is gone, or the request was empty.
        if good.is_empty() { Err(error) } else { Ok(good) }
    }

    /// The first byte at or after `offset` that is stored; `None` when only holes follow.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, FileError> {
        if offset >= self.size {
            return Ok(None);
        }
        let found = match &self.contents {
            Contents::Regular(file_system, object) => {
                match file_system.seek_data(*object, offset) {
                    Err(ZplError::BeyondEnd { .. }) => Ok(None),
                    found => found.map(Some),
                }
            }
            Contents::Volume(volume) => volume.next_data(offset),
        };
        found.map_err(|error| self.error(offset, error))
    }

    /// The first byte at or after `offset` that is not stored; the end counts as a hole.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn next_hole(&self, offset: u64) -> Result<u64, FileError> {
        if offset >= self.size {
            return Ok(self.size);
        }
        let found = match &self.contents {
            Contents::Regular(file_system, object) => file_system.seek_hole(*object, offset),
            Contents::Volume(volume) => volume.next_hole(offset),
        };
        found.map_err(|error| self.error(offset, error))
    }

    /// Its extents from the beginning to the end. Where damage hides the difference everything
    /// counts as data: reading it reports the damage.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= self.size {
                return None;
            }
            let data = match self.next_data(at) {
                Ok(found) => found.unwrap_or(self.size),
                Err(_) => at,
            };
            let start = at;
            if data > at {
                at = data;
                return Some(Extent::Hole(start..data));
            }
            at = self.next_hole(at).unwrap_or(self.size).max(at + 1);
            Some(Extent::Data(start..at))
        })
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(self.position, buffer)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
