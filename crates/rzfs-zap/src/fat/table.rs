//! The pointer table of a fat ZAP while it changes (spec 03, section 12.8).
//!
//! ```text
//! embedded:  block 0 [ header | a b ]       grows in one step to   block n [ a a b b ]
//! external:  old [ a b | c d | ... ]        is copied block by block to
//!            next [ a a b b | c c d d | ... ]
//! ```
//! Until all of an external table is copied the old one counts, and what is stored in it is
//! stored in the next one too.

use std::ops::Range;

use bytes::Bytes;
use rzfs_format::zap::fat::PointerTable;
use rzfs_format::{BlockId, ByteOrder, FormatError};

use super::{Fat, LeafBlock, read};
use crate::blocks::edit_block;
use crate::{ZapBlocks, ZapBlocksMut, ZapError};

/// Pointers that lie in one block of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    block: BlockId,
    /// Their bytes in the block.
    bytes: Range<usize>,
}

fn wrong(what: &'static str) -> FormatError {
    FormatError::invalid("ZAP pointer table", what)
}

impl Fat {
    /// Where the pointers `range` of a table are that begins in block `first`, or in the second
    /// half of block 0.
    fn runs(&self, first: BlockId, range: Range<u64>) -> impl Iterator<Item = Run> + use<> {
        let size = self.header.geometry.block_size();
        let (base, per_block) =
            if first.0 == 0 { (size / 2, size as u64 / 16) } else { (0, size as u64 / 8) };
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            let (block, start) = (next / per_block, next % per_block);
            let end = (range.end - block * per_block).min(per_block);
            next = block * per_block + end;
            let bytes = base + start as usize * 8..base + end as usize * 8;
            Some(Run { block: BlockId(first.0.saturating_add(block)), bytes })
        })
    }

    /// Block in which the table begins; 0 when it is embedded.
    const fn first_table_block(&self) -> BlockId {
        match self.header.table {
            PointerTable::Embedded => BlockId(0),
            PointerTable::External { first, .. } => first,
        }
    }

    /// The pointers of a leaf with this prefix.
    pub(super) const fn pointers_of(&self, prefix: u64, prefix_len: u32) -> Range<u64> {
        let spread = self.header.table_shift.saturating_sub(prefix_len);
        prefix << spread..(prefix + 1) << spread
    }

    /// The pointers of a leaf, by what its header says.
    pub(crate) fn pointers_of_leaf(&self, leaf: &LeafBlock) -> Range<u64> {
        match leaf.view() {
            Ok(view) if view.prefix_len() <= self.header.table_shift => {
                self.pointers_of(view.prefix(), view.prefix_len())
            }
            _ => 0..0,
        }
    }

    /// Whether a block of the table and its copies in the next table are the same.
    pub(crate) fn is_copied<B: ZapBlocks>(
        &self,
        blocks: &B,
        copied: u64,
    ) -> Result<bool, ZapError<B::Error>> {
        let size = self.header.geometry.block_size();
        let next = after::<B>(self.header.next_table, copied.saturating_mul(2))?;
        let (old, order) = read(blocks, after::<B>(self.first_table_block(), copied)?)?;
        let wanted: Option<[Bytes; 2]> = doubled(&old, order, 0, size);
        let mut found = Vec::with_capacity(2);
        for block in [next, after::<B>(next, 1)?] {
            let (bytes, order) = read(blocks, block)?;
            let words = bytes.as_chunks::<8>().0.iter().map(|word| order.u64(*word));
            found.push(words.flat_map(|word| ByteOrder::NATIVE.bytes64(word)).collect::<Bytes>());
        }
        Ok(wanted.is_some_and(|wanted| wanted[..] == found[..]))
    }

    /// Whether all of these pointers refer to this leaf.
    pub(crate) fn all_point_to<B: ZapBlocks>(
        &self,
        blocks: &B,
        range: Range<u64>,
        leaf: BlockId,
    ) -> Result<bool, ZapError<B::Error>> {
        for run in self.runs(self.first_table_block(), range) {
            let (bytes, order) = read(blocks, run.block)?;
            let pointers = bytes
                .get(run.bytes)
                .ok_or_else(|| ZapError::corrupt(run.block)(wrong("it is too short")))?;
            let mut words = pointers.as_chunks::<8>().0.iter().map(|word| order.u64(*word));
            if words.any(|pointer| pointer != leaf.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The largest block that a pointer of the table refers to.
    pub(super) fn largest_pointer<B: ZapBlocks>(
        &self,
        blocks: &B,
    ) -> Result<u64, ZapError<B::Error>> {
        let mut largest = 0;
        for run in self.runs(self.first_table_block(), 0..1 << self.header.table_shift) {
            let (bytes, order) = read(blocks, run.block)?;
            let pointers = bytes.get(run.bytes).unwrap_or_default();
            let words = pointers.as_chunks::<8>().0.iter().map(|word| order.u64(*word));
            largest = largest.max(words.max().unwrap_or(0));
        }
        Ok(largest)
    }

    /// Makes these pointers refer to a leaf, in the next table too if there is one.
    pub(super) fn point<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        range: Range<u64>,
        leaf: BlockId,
    ) -> Result<(), ZapError<B::Error>> {
        self.block.release();
        let mut runs: Vec<_> = self.runs(self.first_table_block(), range.clone()).collect();
        if self.header.next_table.0 != 0 {
            runs.extend(self.runs(self.header.next_table, range.start * 2..range.end * 2));
        }
        for run in runs {
            edit_block(blocks, run.block, |bytes| {
                let pointers = bytes.get_mut(run.bytes).ok_or(wrong("it is too short"))?;
                for pointer in pointers.as_chunks_mut::<8>().0 {
                    *pointer = ByteOrder::NATIVE.bytes64(leaf.0);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Grows the table until it has twice as many pointers.
    pub(super) fn double_table<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
    ) -> Result<(), ZapError<B::Error>> {
        let shift = self.header.table_shift;
        if shift >= self.max_table_shift() {
            return Err(ZapError::Full);
        }
        // One block is copied with each step, so this ends.
        while self.header.table_shift == shift {
            self.grow_table(blocks)?;
        }
        Ok(())
    }

    /// One step of the growth of the table.
    pub(super) fn grow_table<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
    ) -> Result<(), ZapError<B::Error>> {
        let size = self.header.geometry.block_size();
        let replaced = match self.header.table {
            PointerTable::Embedded => {
                let contents = self.block.get(blocks)?;
                let [table] = doubled(&contents.bytes, contents.order, size / 2, size)
                    .ok_or_else(|| ZapError::corrupt(BlockId(0))(wrong("it is too short")))?;
                drop(contents);
                let first = self.header.free_block;
                self.header.free_block = after::<B>(first, 1)?;
                blocks.write_block(first, table).map_err(ZapError::Blocks)?;
                self.header.table = PointerTable::External { first, blocks: 1 };
                self.header.table_shift += 1;
                None
            }
            PointerTable::External { first, blocks: count } => {
                self.copy_block(blocks, first, count)?
            }
        };
        self.write_header(blocks)?;
        replaced.map_or(Ok(()), |old| blocks.free_blocks(old).map_err(ZapError::Blocks))
    }

    /// Copies the next block of an external table; after the last, the copy becomes the table, and
    /// the blocks of the old one are the answer.
    fn copy_block<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        first: BlockId,
        count: u64,
    ) -> Result<Option<Range<u64>>, ZapError<B::Error>> {
        let size = self.header.geometry.block_size();
        let copied = self.header.blocks_copied;
        let old = after::<B>(first, copied)?;
        let (bytes, order) = read(blocks, old)?;
        let [lower, upper] = doubled(&bytes, order, 0, size)
            .ok_or_else(|| ZapError::corrupt(old)(wrong("it is too short")))?;
        let (next_table, free_block) = match self.header.next_table {
            BlockId(0) => {
                let start = self.header.free_block;
                (start, after::<B>(start, count.saturating_mul(2))?)
            }
            begun => (begun, self.header.free_block),
        };
        let next = after::<B>(next_table, copied.saturating_mul(2))?;
        let (after_next, end) = (after::<B>(next, 1)?, after::<B>(first, count)?);
        blocks.write_block(next, lower).map_err(ZapError::Blocks)?;
        blocks.write_block(after_next, upper).map_err(ZapError::Blocks)?;
        self.header.free_block = free_block;
        self.header.next_table = next_table;
        self.header.blocks_copied = copied + 1;
        let is_whole = self.header.blocks_copied >= count;
        if is_whole {
            self.header.table = PointerTable::External { first: next_table, blocks: count * 2 };
            self.header.table_shift += 1;
            self.header.next_table = BlockId(0);
            self.header.blocks_copied = 0;
        }
        Ok(is_whole.then_some(first.0..end.0))
    }
}

/// The block `count` blocks after another.
fn after<B: ZapBlocks>(block: BlockId, count: u64) -> Result<BlockId, ZapError<B::Error>> {
    let after = block.0.checked_add(count).map(BlockId);
    after.ok_or_else(|| ZapError::corrupt(BlockId(0))(wrong("it lies beyond all blocks")))
}

/// `N` blocks with each pointer in `start..end` of a block twice; `None` if it is too short.
fn doubled<const N: usize>(
    bytes: &Bytes,
    order: ByteOrder,
    start: usize,
    end: usize,
) -> Option<[Bytes; N]> {
    let pointers = bytes.get(start..end)?.as_chunks::<8>().0;
    let mut doubled = Vec::with_capacity(pointers.len() * 16);
    for pointer in pointers {
        let native = ByteOrder::NATIVE.bytes64(order.u64(*pointer));
        doubled.extend_from_slice(&native);
        doubled.extend_from_slice(&native);
    }
    let doubled = Bytes::from(doubled);
    let size = doubled.len() / N;
    Some(std::array::from_fn(|part| doubled.slice(part * size..(part + 1) * size)))
}
