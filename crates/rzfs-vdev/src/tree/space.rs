//! Sizes and bounds of allocations on top-level vdevs (spec 07, sections 3.1, 7 and 11.2).

use super::{Node, Role, Space, VdevTree};
use crate::error::AddressProblem;
use rzfs_format::gang;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{Dva, Txg, VdevId};

/// The block size that space accounting takes as typical.
const DEFLATE_BLOCK: u64 = 128 << 10;

impl VdevTree {
    /// A top-level vdev that holds or held blocks.
    pub(crate) fn holder(&self, vdev: VdevId) -> Result<(&Node, Space), AddressProblem> {
        let node = self.node(self.top_node(vdev).ok_or(AddressProblem::NoVdev)?);
        Ok((node, node.space.ok_or(AddressProblem::NoData)?))
    }

    /// Allocated size of a block of `psize` bytes, physically born in `birth`, on a vdev; `None` if
    /// the vdev holds no blocks.
    #[must_use]
    pub fn allocated_size(&self, vdev: VdevId, psize: u64, birth: Txg) -> Option<u64> {
        let (node, space) = self.holder(vdev).ok()?;
        Some(self.node_allocated_size(node, space, psize, birth))
    }

    fn node_allocated_size(&self, node: &Node, space: Space, psize: u64, birth: Txg) -> u64 {
        let plain = psize.checked_next_multiple_of(1 << space.ashift).unwrap_or(u64::MAX);
        match &node.role {
            Role::Raidz(geometry) => geometry.allocated_size(psize, birth),
            Role::Draid(geometry) => geometry.allocated_size(psize),
            Role::Mirrored => node
                .children
                .iter()
                .map(|child| self.node_allocated_size(self.node(*child), space, psize, birth))
                .fold(plain, u64::max),
            _ => plain,
        }
    }

    /// The largest block that fits into an allocation of `asize` bytes.
    #[must_use]
    pub fn block_size(&self, vdev: VdevId, asize: u64, birth: Txg) -> Option<u64> {
        let (node, space) = self.holder(vdev).ok()?;
        Some(match &node.role {
            Role::Raidz(geometry) => geometry.block_size(asize, birth),
            Role::Draid(geometry) => geometry.block_size(asize),
            _ => (asize >> space.ashift) << space.ashift,
        })
    }

    /// Data bytes of the smallest allocation; a dynamic gang header is as large.
    #[must_use]
    pub fn min_allocation(&self, vdev: VdevId) -> Option<u64> {
        let (node, space) = self.holder(vdev).ok()?;
        Some(match &node.role {
            Role::Draid(geometry) => geometry.min_allocation(),
            _ => 1 << space.ashift,
        })
    }

    /// Allocated size of a copy of a gang header.
    #[must_use]
    pub fn gang_header_asize(&self, vdev: VdevId) -> Option<u64> {
        self.allocated_size(vdev, gang::CLASSIC_SIZE as u64, Txg(0))
    }

    /// The ratio that deflates allocated space to data only, in 512ths (spec 07, section 7.4).
    #[must_use]
    pub fn deflate_ratio(&self, vdev: VdevId) -> Option<u64> {
        let sectors = self.allocated_size(vdev, DEFLATE_BLOCK, Txg(0))? / SECTOR_SIZE;
        DEFLATE_BLOCK.checked_div(sectors)
    }

    /// Allocated bytes without parity; `None` if the vdev does not report it.
    #[must_use]
    pub fn deflated(&self, vdev: VdevId, allocated: u64) -> Option<u64> {
        Some((allocated / SECTOR_SIZE).saturating_mul(self.deflate_ratio(vdev)?))
    }

    /// Whether an address lies on one of the pool's vdevs, aligned and within its size.
    #[must_use]
    pub fn contains(&self, dva: Dva) -> bool {
        self.check_address(dva).is_ok()
    }

    /// Checks an address against its vdev (spec 07, section 24). For a gang block only the header
    /// is at the address.
    ///
    /// # Errors
    /// The problem.
    pub fn check_address(&self, dva: Dva) -> Result<(), AddressProblem> {
        let (node, _) = self.holder(dva.vdev())?;
        let asize = if dva.is_gang() {
            self.gang_header_asize(dva.vdev()).unwrap_or(u64::MAX)
        } else {
            dva.asize()
        };
        let unit = match &node.role {
            Role::Raidz(geometry) => geometry.allocated_size(1, Txg(0)),
            Role::Draid(geometry) => geometry.stripe_size(),
            _ => 1,
        };
        if !asize.is_multiple_of(unit) {
            return Err(AddressProblem::Unaligned);
        }
        self.check_range(dva.vdev(), dva.offset(), asize)
    }

    /// Checks that `asize` bytes at `offset` lie on a vdev.
    pub(crate) fn check_range(
        &self,
        vdev: VdevId,
        offset: u64,
        asize: u64,
    ) -> Result<(), AddressProblem> {
        let (node, space) = self.holder(vdev)?;
        let unit = match &node.role {
            Role::Draid(geometry) => geometry.stripe_size(),
            _ => 1 << space.ashift,
        };
        if !offset.is_multiple_of(unit) {
            return Err(AddressProblem::Unaligned);
        }
        match offset.checked_add(asize) {
            Some(end) if end <= space.asize => Ok(()),
            _ => Err(AddressProblem::BeyondEnd),
        }
    }
}
