//! Amounts of space that are added and taken away (spec 04, sections 4.1 and 8).

pub(crate) mod accounts;
pub(crate) mod allocation;
pub(crate) mod bptree;
pub(crate) mod clone_table;
pub(crate) mod dedup;
pub(crate) mod frees;
pub(crate) mod ledger;
pub(crate) mod sharing;
pub(crate) mod store;

use rzfs_format::BlockPointer;
use rzfs_format::bpobj::accounted_logical_size;
use rzfs_vdev::VdevTree;
use std::ops::{AddAssign, Neg};

/// Bytes that somebody has more, or less.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SpaceDelta {
    /// Allocated bytes, deflated.
    pub(crate) used: i64,
    /// Physical bytes.
    pub(crate) compressed: i64,
    /// Logical bytes of data, physical ones of metadata.
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

/// How far a change may go into the space that is held back (spec 04, section 12.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceTier {
    /// Writing files, making datasets: not at all.
    Normal,
    /// Changes of administrators: half of it.
    Reserved,
    /// What sets more free than it takes: three quarters.
    Frees,
}

impl SpaceTier {
    /// All of them, from the strictest on.
    pub(crate) const ALL: [Self; 3] = [Self::Normal, Self::Reserved, Self::Frees];

    /// The place in [`SpaceTier::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// What has to stay of the space that is held back.
    pub(crate) const fn kept_back(self, slop: u64) -> u64 {
        match self {
            Self::Normal => slop,
            Self::Reserved => slop / 2,
            Self::Frees => slop / 4,
        }
    }
}

/// How a pool's vdevs make sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deflation<'a> {
    vdevs: &'a VdevTree,
    is_deflated: bool,
}

impl<'a> Deflation<'a> {
    /// `is_deflated`: whether the pool counts RAID-Z as what data takes on it without parity.
    pub(crate) const fn new(vdevs: &'a VdevTree, is_deflated: bool) -> Self {
        Self { vdevs, is_deflated }
    }

    /// The vdevs.
    pub(crate) const fn vdevs(&self) -> &'a VdevTree {
        self.vdevs
    }

    /// What a block counts.
    pub(crate) fn of(&self, pointer: &BlockPointer) -> SpaceDelta {
        let mut used = 0_u64;
        if !pointer.is_embedded() {
            for dva in pointer.dvas().filter(|dva| dva.is_valid()) {
                let ratio = self.vdevs.deflate_ratio(dva.vdev()).filter(|_| self.is_deflated);
                used = used.saturating_add(match ratio {
                    Some(ratio) => (dva.asize() >> 9).saturating_mul(ratio),
                    None => dva.asize(),
                });
            }
        }
        SpaceDelta {
            used: used.cast_signed(),
            compressed: pointer.physical_size().cast_signed(),
            uncompressed: accounted_logical_size(pointer).cast_signed(),
        }
    }
}
