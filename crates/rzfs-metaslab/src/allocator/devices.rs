//! What allocation needs from the vdevs.

use crate::StoreError;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{Txg, VdevId};
use std::ops::Range;

/// Whether blocks may be put on a vdev.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writability {
    /// Yes.
    Ready,
    /// A vdev without redundancy that is not healthy: only if there is no other.
    Doubtful,
    /// It cannot be written: missing or offline.
    None,
}

/// Bytes on a top-level vdev.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpacePiece {
    /// The vdev.
    pub vdev: VdevId,
    /// The bytes.
    pub range: Range<u64>,
}

/// The top-level vdevs of a pool, as space accounting sees them. All methods work in memory.
pub trait Devices: Send + Sync {
    /// Allocated size of `size` stored bytes on a vdev if written in `txg`, with parity and
    /// padding; `None` if there is no such vdev.
    fn allocated_size(&self, vdev: VdevId, size: u64, txg: Txg) -> Option<u64>;

    /// Allocated size of a gang header.
    fn gang_header_size(&self, vdev: VdevId, txg: Txg) -> Option<u64> {
        self.allocated_size(vdev, SECTOR_SIZE, txg)
    }

    /// The vdev's deflate ratio (spec 06, section 21.1): what 512 allocated bytes count as;
    /// 512 in pools whose object directory has no `deflate`.
    fn deflate_ratio(&self, vdev: VdevId) -> u64;

    /// Disks without parity: the number of aliquots the vdev takes at once.
    fn data_disks(&self, vdev: VdevId) -> u64 {
        let _ = vdev;
        1
    }

    /// Whether blocks may be put on the vdev.
    fn writability(&self, vdev: VdevId) -> Writability;

    /// Further locations of freed bytes of a vdev: for a removed vdev the pieces they were copied
    /// to, in order and complete; for one being removed the copies made so far; for others none.
    /// Pieces may be on removed vdevs themselves.
    fn copies(&self, vdev: VdevId, range: Range<u64>) -> Result<Vec<SpacePiece>, StoreError> {
        let _ = (vdev, range);
        Ok(Vec::new())
    }
}
