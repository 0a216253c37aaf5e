//! What tells a block device or regular file from all others.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// What tells a block device or regular file from all others: paths that lead to the same one have
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileIdentity {
    /// A block device, whatever node stands for it.
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
    /// The identity of the file that the system says this of; none if it is of another type.
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
