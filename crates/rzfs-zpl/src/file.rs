//! The contents of files: reading, and finding data and holes (spec 05, section 5).

use crate::contents::{fill, segments};
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::node::Node;
use crate::sync::Arc;
use bytes::Bytes;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::FileFlags;

impl FileSystem {
    /// The regular file with this number, if it may be read.
    pub(crate) fn regular(&self, object: ObjectId) -> Result<Arc<Node>, ZplError> {
        let node = self.node(object)?;
        let place = node.place();
        match node.znode().kind {
            FileKind::Directory => Err(ZplError::IsDirectory { place }),
            FileKind::Regular if node.znode().flags.contains(FileFlags::AV_QUARANTINED) => {
                Err(ZplError::Quarantined { place })
            }
            FileKind::Regular => Ok(node),
            _ => Err(ZplError::WrongFileKind { place }),
        }
    }

    /// Checks that a file can be opened for reading.
    ///
    /// # Errors
    /// It is no regular file, or is quarantined.
    pub fn open_for_reading(&self, object: ObjectId) -> Result<(), ZplError> {
        self.regular(object).map(|_| ())
    }

    /// Fills `buffer` with the contents from `offset` on, and says how many bytes there are: less
    /// than the buffer has only at the end of the file.
    ///
    /// # Errors
    /// It is no regular file, or a block cannot be read.
    pub fn read(
        &self,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, ZplError> {
        let node = self.regular(object)?;
        let rest = node.znode().size.saturating_sub(offset);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        fill(node.object(), &self.streams, offset, buffer.get_mut(..len).unwrap_or_default())?;
        Ok(len)
    }

    /// The contents from `offset` on as parts of the cached blocks, without a copy: `len` bytes,
    /// less at the end of the file and beyond 32 MiB.
    ///
    /// # Errors
    /// It is no regular file, or a block cannot be read.
    pub fn read_segments(
        &self,
        object: ObjectId,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Bytes>, ZplError> {
        let node = self.regular(object)?;
        let rest = node.znode().size.saturating_sub(offset);
        segments(node.object(), &self.streams, offset, len.min(rest))
    }

    /// The first byte at or after `offset` that is not in a hole.
    ///
    /// # Errors
    /// ENXIO when the file ends before, or has nothing but holes from there on.
    pub fn seek_data(&self, object: ObjectId, offset: u64) -> Result<u64, ZplError> {
        let node = self.regular(object)?;
        let beyond = || ZplError::BeyondEnd { place: node.place(), offset };
        let size = node.znode().size;
        if offset >= size {
            return Err(beyond());
        }
        let found = node.object().next_data(offset)?;
        found.filter(|data| *data < size).ok_or_else(beyond)
    }

    /// The first byte at or after `offset` that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// ENXIO when the file ends before.
    pub fn seek_hole(&self, object: ObjectId, offset: u64) -> Result<u64, ZplError> {
        let node = self.regular(object)?;
        let size = node.znode().size;
        if offset >= size {
            return Err(ZplError::BeyondEnd { place: node.place(), offset });
        }
        let hole = node.object().next_hole(offset)?;
        let hole = hole.unwrap_or_else(|| node.object().dnode().extent());
        Ok(hole.min(size).max(offset))
    }
}
