//! The identity of a block device or regular file.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The identity of a block device or regular file: equal for all paths that refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileIdentity {
    /// A block device, whatever its device node.
    BlockDevice {
        /// Its device number.
        number: u64,
    },
    /// A regular file.
    RegularFile {
        /// The device number of the file system that it is in.
        device: u64,
        /// Its inode there.
        inode: u64,
    },
}

impl FileIdentity {
    /// The identity of a file with this metadata; `None` if it is of another type.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<Self> {
        if metadata.file_type().is_block_device() {
            Some(Self::BlockDevice { number: metadata.rdev() })
        } else if metadata.is_file() {
            Some(Self::RegularFile { device: metadata.dev(), inode: metadata.ino() })
        } else {
            None
        }
    }
}
