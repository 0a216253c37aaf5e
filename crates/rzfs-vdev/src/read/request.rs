//! Read requests, and the results of a scrub.

use crate::error::VdevError;
use bytes::Bytes;
use rzfs_blockdev::DeviceError;
use rzfs_format::{Dva, Guid, Txg};
use std::fmt;

/// One block to read.
#[derive(Clone, Copy)]
pub struct BlockRead<'a> {
    /// Where it is: vdev and offset; the allocated size and the gang bit do not matter.
    pub dva: Dva,
    /// Bytes as stored: PSIZE, or the size of a gang header.
    pub size: u64,
    /// Physical birth: determines the width of RAID-Z and who lacks the block.
    pub birth: Txg,
    /// Recognises the block.
    pub verify: &'a dyn Verify,
}

/// Decides whether data is the block; a function of bytes does for a block that stays.
pub trait Verify: Sync {
    /// Whether these bytes, as many as were asked for, are the block.
    fn is_block(&self, data: &[u8]) -> bool;

    /// Whether the block must still be there. Asked only when something else was found, before it
    /// counts as an error: its space may have been reused since the request.
    fn is_expected(&self) -> bool {
        true
    }
}

impl<F: Fn(&[u8]) -> bool + Sync> Verify for F {
    fn is_block(&self, data: &[u8]) -> bool {
        self(data)
    }
}

impl fmt::Debug for BlockRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRead({}, {:#x} bytes, birth {})", self.dva, self.size, self.birth)
    }
}

/// What a scrub of a block found.
#[derive(Debug)]
pub struct Scrubbed {
    /// The block, if it could be read or reconstructed.
    pub data: Result<Bytes, VdevError>,
    /// Every leaf with a wrong or missing part.
    pub findings: Vec<Finding>,
}

/// A wrong part of a block on one leaf.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The leaf.
    pub leaf: Guid,
    /// Byte position of the part on its device.
    pub position: u64,
    /// Bytes of the part.
    pub len: usize,
    /// The problem.
    pub kind: FindingKind,
}

/// The problem with a part of a block.
#[derive(Clone, Debug)]
pub enum FindingKind {
    /// It is not what was written.
    Wrong,
    /// It cannot be read.
    Unreadable(DeviceError),
}
