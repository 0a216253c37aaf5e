//! Amounts of space that are added and subtracted (spec 04, sections 4.1 and 8).

use rzfs_format::BlockPointer;
use rzfs_format::bpobj::accounted_logical_size;
use rzfs_vdev::VdevTree;
use std::ops::{AddAssign, Neg};

/// A change in space, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SpaceDelta {
    /// Allocated bytes, deflated.
    pub(crate) used: i64,
    /// Physical bytes.
    pub(crate) compressed: i64,
    /// Logical bytes for data, physical bytes for metadata.
    pub(crate) uncompressed: i64,
}

impl SpaceDelta {
    /// The difference of two sets of sums.
    pub(crate) const fn is_zero(self) -> bool {
        self.used == 0 && self.compressed == 0 && self.uncompressed == 0
    }
}

impl AddAssign for SpaceDelta {
    fn add_assign(&mut self, more: Self) {
        self.used = self.used.wrapping_add(more.used);
        self.compressed = self.compressed.wrapping_add(more.compressed);
        self.uncompressed = self.uncompressed.wrapping_add(more.uncompressed);
    }
}

impl Neg for SpaceDelta {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            used: self.used.wrapping_neg(),
            compressed: self.compressed.wrapping_neg(),
            uncompressed: self.uncompressed.wrapping_neg(),
        }
    }
}

/// Adds a difference to a sum on disk, which cannot become negative.
pub(crate) fn apply(sum: &mut u64, delta: i64) {
    *sum = sum.saturating_add_signed(delta);
}

/// How a pool's vdevs scale sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deflation<'a> {
    vdevs: &'a VdevTree,
    is_deflated: bool,
}

impl<'a> Deflation<'a> {
    /// `is_deflated`: whether the pool counts RAID-Z space without parity.
    pub(crate) const fn new(vdevs: &'a VdevTree, is_deflated: bool) -> Self {
        Self { vdevs, is_deflated }
    }

    /// The vdevs.
    pub(crate) const fn vdevs(&self) -> &'a VdevTree {
        self.vdevs
    }

    /// The space of a block.
    pub(crate) fn of(&self, pointer: &BlockPointer) -> SpaceDelta {
        let mut used = 0_u64;
        if !pointer.is_embedded() {
            for dva in pointer.dvas().filter(|dva| dva.is_valid()) {
                let asize = dva.asize();
                let deflated = self.is_deflated.then(|| self.vdevs.deflated(dva.vdev(), asize));
                used = used.saturating_add(deflated.flatten().unwrap_or(asize));
            }
        }
        SpaceDelta {
            used: used.cast_signed(),
            compressed: pointer.physical_size().cast_signed(),
            uncompressed: accounted_logical_size(pointer).cast_signed(),
        }
    }
}
