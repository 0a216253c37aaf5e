//! Empty leaves of a fat ZAP collapse (spec 03, section 12.8).

use rzfs_format::BlockId;
use rzfs_format::zap::ZapHash;
use rzfs_format::zap::fat::PointerTable;

use super::edit::edit_leaf;
use super::{Fat, LeafBlock};
use crate::{ZapBlocks, ZapBlocksMut, ZapError};

/// Two empty leaves that differ in the last bit of their prefixes.
struct Pair {
    lower: BlockId,
    upper: BlockId,
    /// Prefix of the lower one, and the length of both.
    prefix: u64,
    prefix_len: u32,
}

impl Fat {
    /// Makes one leaf of an empty one, where this hash belongs, and its sibling if that is empty
    /// too, and so on upwards. The header is left to be written.
    ///
    /// A ZAP need not shrink: what cannot be read, or is not as it should be, stays as it is.
    pub(super) fn shrink<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        hash: ZapHash,
    ) -> Result<(), ZapError<B::Error>> {
        // Each round makes the prefix one bit shorter.
        while let Ok(Some(pair)) = self.empty_pair(blocks, hash) {
            let upper = self.pointers_of(pair.prefix | 1, pair.prefix_len);
            self.point(blocks, upper, pair.lower)?;
            edit_leaf(blocks, pair.lower, |leaf| {
                leaf.set_prefix(pair.prefix >> 1, pair.prefix_len - 1);
                Ok(())
            })?;
            let end = pair.upper.0.saturating_add(1);
            blocks.free_blocks(pair.upper.0..end).map_err(ZapError::Blocks)?;
            self.header.leaves = self.header.leaves.saturating_sub(1);
            if end == self.header.free_block.0 {
                self.lower_free_block(blocks)?;
            }
        }
        Ok(())
    }

    /// The leaf of a hash and its sibling, if both are empty and can become one.
    fn empty_pair<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: ZapHash,
    ) -> Result<Option<Pair>, ZapError<B::Error>> {
        let leaf = self.leaf(blocks, hash)?;
        let view = leaf.view().map_err(ZapError::corrupt(leaf.id))?;
        let (prefix, prefix_len) = (view.prefix(), view.prefix_len());
        if view.entry_count() != 0 || prefix_len == 0 {
            return Ok(None);
        }
        let sibling = ZapHash((prefix ^ 1) << (64 - prefix_len));
        let other = self.leaf(blocks, sibling)?;
        let same = other.view().map_err(ZapError::corrupt(other.id))?;
        if same.entry_count() != 0 || same.prefix_len() != prefix_len || other.id == leaf.id {
            return Ok(None);
        }
        for (leaf, prefix) in [(&leaf, prefix), (&other, prefix ^ 1)] {
            let pointers = self.pointers_of(prefix, prefix_len);
            if !self.is_empty(leaf)? || !self.all_point_to(blocks, pointers, leaf.id)? {
                return Ok(None);
            }
        }
        let (lower, upper) =
            if prefix & 1 == 0 { (leaf.id, other.id) } else { (other.id, leaf.id) };
        Ok(Some(Pair { lower, upper, prefix: prefix & !1, prefix_len }))
    }

    /// Whether a leaf that says that it is empty is.
    fn is_empty<E>(&self, leaf: &LeafBlock) -> Result<bool, ZapError<E>> {
        let view = leaf.view().map_err(ZapError::corrupt(leaf.id))?;
        Ok(view.entry_count() == 0 && view.check(self.key_kind()).is_ok())
    }

    /// Frees unused blocks at the end, after the last block was freed.
    fn lower_free_block<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
    ) -> Result<(), ZapError<B::Error>> {
        let Ok(mut last) = self.largest_pointer(blocks) else { return Ok(()) };
        if let PointerTable::External { first, blocks: count } = self.header.table {
            last = last.max(first.0.saturating_add(count).saturating_sub(1));
            if self.header.next_table.0 != 0 {
                let next = self.header.next_table.0;
                last = last.max(next.saturating_add(count.saturating_mul(2)).saturating_sub(1));
            }
        }
        let free = last.saturating_add(1);
        if free < self.header.free_block.0 {
            self.header.free_block = BlockId(free);
            let end = blocks.block_count().map_err(ZapError::Blocks)?;
            if free < end {
                blocks.free_blocks(free..end).map_err(ZapError::Blocks)?;
            }
        }
        Ok(())
    }
}
