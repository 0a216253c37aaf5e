//! A full leaf of a fat ZAP becomes two (spec 03, section 12.8).

use rzfs_format::zap::leaf::LeafMut;
use rzfs_format::{BlockId, ByteOrder};

use super::edit::corrupt_leaf;
use super::{Fat, LeafBlock};
use crate::blocks::in_native_order;
use crate::{ZapBlocksMut, ZapError};

impl Fat {
    /// Splits a leaf, all of which was checked, by the next bit of its entries' hashes, after
    /// doubling the pointer table if it cannot tell the halves apart.
    pub(super) fn split<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        leaf: LeafBlock,
    ) -> Result<(), ZapError<B::Error>> {
        let lower = leaf.id;
        let view = leaf.view().map_err(ZapError::corrupt(lower))?;
        let (prefix, len) = (view.prefix(), view.prefix_len());
        if !self.all_point_to(blocks, self.pointers_of(prefix, len), lower)? {
            return Err(corrupt_leaf(lower, "not all pointers of its range refer to it"));
        }
        if len >= self.header.table_shift {
            self.double_table(blocks)?;
        }
        let upper = self.header.free_block;
        let next = upper.0.checked_add(1).map(BlockId);
        let next = next.ok_or_else(|| corrupt_leaf(upper, "it lies beyond all blocks"))?;
        let (mut kept, order) = leaf.into_parts();
        let mut moved = vec![0; self.header.geometry.block_size()];
        let halves = in_native_order(&mut kept, order).and_then(|()| {
            let mut leaf = LeafMut::open(&mut kept, ByteOrder::NATIVE)?;
            leaf.split(self.key_kind(), self.chains(), &mut moved)
        });
        halves.map_err(ZapError::corrupt(lower))?;
        // Before anything refers to the new leaf it is there, and counts; and the old one loses
        // last what it had: wherever damage ends this, every entry is found.
        blocks.write_block(upper, moved.into()).map_err(ZapError::Blocks)?;
        self.header.free_block = next;
        self.header.leaves = self.header.leaves.saturating_add(1);
        self.write_header(blocks)?;
        self.point(blocks, self.pointers_of(prefix << 1 | 1, len + 1), upper)?;
        blocks.write_block(lower, kept.into()).map_err(ZapError::Blocks)
    }
}
