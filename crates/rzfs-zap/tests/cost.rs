//! What an insertion writes, counted, against what was foretold.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;

use bytes::Bytes;
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{
    BlockMut, MemoryBlocks, NewZap, Tunables, Zap, ZapBlocks, ZapBlocksMut, ZapFlags, ZapForm,
    ZapStatistics, ZapValue,
};

/// Blocks in memory that note which of them are written.
struct Counted {
    blocks: MemoryBlocks,
    written: BTreeSet<BlockId>,
}

impl ZapBlocks for Counted {
    type Error = Infallible;

    fn block_size(&self) -> usize {
        self.blocks.block_size()
    }

    fn block_count(&self) -> Result<u64, Infallible> {
        self.blocks.block_count()
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Infallible> {
        self.blocks.read_block(id)
    }
}

impl ZapBlocksMut for Counted {
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, Infallible> {
        self.written.insert(id);
        self.blocks.modify_block(id, edit)
    }

    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), Infallible> {
        self.written.insert(id);
        self.blocks.write_block(id, contents)
    }

    fn set_block_size(&mut self, size: usize) -> Result<(), Infallible> {
        self.blocks.set_block_size(size)
    }

    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Infallible> {
        self.blocks.free_blocks(blocks)
    }
}

fn leaves(zap: &Zap<MemoryBlocks>) -> u64 {
    match zap.statistics().unwrap() {
        ZapStatistics::Fat(statistics) => statistics.header.leaves,
        ZapStatistics::Micro(_) => 0,
    }
}

/// Adds names one by one; how many insertions wrote more than is usual.
fn count(new: &NewZap, names: u64) -> (u64, Zap<MemoryBlocks>) {
    let mut zap = Zap::create(MemoryBlocks::empty(), new).unwrap();
    let mut unusual = 0;
    for number in 0..names {
        let (name, value) = (format!("entry-number-{number}"), ZapValue::from(number));
        let cost = zap.insert_cost(&name, &value, &Tunables::default());
        let before = leaves(&zap);
        let was = zap.form();
        let blocks = zap.blocks().clone();
        let mut counted = Counted { blocks, written: BTreeSet::new() };
        zap.writer(&mut counted).insert(&name, value).unwrap();
        zap = Zap::open(counted.blocks).unwrap();
        let splits = leaves(&zap).saturating_sub(before).saturating_sub(1);
        let again = if was == ZapForm::Micro { 0 } else { 2 * splits };
        let written = counted.written.len() as u64;
        assert!(written <= cost.most + again, "{number}: {cost:?}, wrote {written}");
        assert_eq!(zap.blocks().block_size(), cost.block_size);
        unusual += u64::from(written > cost.usual);
    }
    (unusual, zap)
}

#[test]
fn an_insertion_writes_no_more_blocks_than_was_foretold() {
    let (unusual, zap) = count(&NewZap::new(1), 2100);
    assert_eq!((unusual, zap.form()), (0, ZapForm::Fat));
    let (unusual, zap) = count(&NewZap::new(1).fat(ZapFlags::NONE, 512), 900);
    assert!(unusual < 20, "{unusual} of 900");
    assert!(leaves(&zap) > 150);
}
