//! A full leaf of a fat ZAP becomes two (spec 03, section 12.8).

use rzfs_format::BlockId;

use super::edit::{corrupt_leaf, edit_leaf};
use super::{Fat, LeafBlock};
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
        drop(leaf);
        if !self.all_point_to(blocks, self.pointers_of(prefix, len), lower)? {
            return Err(corrupt_leaf(lower, "not all pointers of its range refer to it"));
        }
        if len >= self.header.table_shift {
            self.double_table(blocks)?;
        }
        let upper = self.header.free_block;
        let next = upper.0.checked_add(1).map(BlockId);
        let next = next.ok_or_else(|| corrupt_leaf(upper, "it lies beyond all blocks"))?;
        let mut contents = vec![0; self.header.geometry.block_size()];
        let (keys, chains) = (self.key_kind(), self.chains());
        edit_leaf(blocks, lower, |leaf| Ok(leaf.split(keys, chains, &mut contents)?))?;
        self.header.free_block = next;
        blocks.write_block(upper, contents.into()).map_err(ZapError::Blocks)?;
        self.point(blocks, self.pointers_of(prefix << 1 | 1, len + 1), upper)?;
        self.header.leaves = self.header.leaves.saturating_add(1);
        self.write_header(blocks)
    }
}
