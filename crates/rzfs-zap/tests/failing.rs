//! Insertions into blocks of which some cannot be changed.

use std::ops::Range;

use bytes::Bytes;
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{
    BlockMut, MemoryBlocks, NewZap, Zap, ZapBlocks, ZapBlocksMut, ZapError, ZapFlags, ZapValue,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the block cannot be changed")]
struct Refused;

/// Blocks in memory that take so many changes.
struct Failing {
    blocks: MemoryBlocks,
    left: usize,
}

impl Failing {
    fn take(&mut self) -> Result<&mut MemoryBlocks, Refused> {
        self.left = self.left.checked_sub(1).ok_or(Refused)?;
        Ok(&mut self.blocks)
    }
}

impl ZapBlocks for Failing {
    type Error = Refused;

    fn block_size(&self) -> usize {
        self.blocks.block_size()
    }

    fn block_count(&self) -> Result<u64, Refused> {
        let Ok(count) = self.blocks.block_count();
        Ok(count)
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), Refused> {
        let Ok(block) = self.blocks.read_block(id);
        Ok(block)
    }
}

impl ZapBlocksMut for Failing {
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, Refused> {
        let Ok(result) = self.take()?.modify_block(id, edit);
        Ok(result)
    }

    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), Refused> {
        let Ok(()) = self.take()?.write_block(id, contents);
        Ok(())
    }

    fn set_block_size(&mut self, size: usize) -> Result<(), Refused> {
        let Ok(()) = self.take()?.set_block_size(size);
        Ok(())
    }

    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Refused> {
        let Ok(()) = self.take()?.free_blocks(blocks);
        Ok(())
    }
}

fn name(number: u64) -> String {
    format!("entry-number-{number}")
}

#[test]
fn an_insertion_that_fails_at_any_change_loses_no_entry() {
    let new = NewZap::new(1).fat(ZapFlags::NONE, 512);
    let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
    let mut failures = 0;
    for number in 0..200 {
        for left in 0.. {
            let mut failing = Failing { blocks: zap.blocks().clone(), left };
            let mut before = Zap::open(zap.blocks().clone()).unwrap();
            let value = ZapValue::from(number);
            let inserted = before.writer(&mut failing).insert(&name(number), value);
            let after = Zap::open(failing.blocks).unwrap();
            for known in 0..number {
                let found = after.lookup(name(known)).unwrap();
                assert_eq!(found, Some(ZapValue::from(known)), "{known} of {number}, {left}");
            }
            match inserted {
                Ok(()) => {
                    zap = after;
                    break;
                }
                Err(error) => assert!(matches!(error, ZapError::Blocks(Refused)), "{error}"),
            }
            failures += 1;
        }
    }
    assert!(failures > 300, "{failures}");
}

#[test]
fn nobody_can_tell_whether_a_spoilt_entry_is_there() {
    let new = NewZap::new(1).fat(ZapFlags::NONE, 512);
    let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
    let mut blocks = zap.blocks().clone();
    for number in 0..200 {
        zap.writer(&mut blocks).insert(&name(number), ZapValue::from(number)).unwrap();
    }
    zap.writer(&mut blocks).spoil(&name(7)).unwrap();
    let after = Zap::open(blocks).unwrap();
    let mut lost = Vec::new();
    for number in 0..200 {
        match after.lookup(name(number)) {
            Err(ZapError::Corrupt { .. }) => lost.push(number),
            found => assert_eq!(found, Ok(Some(ZapValue::from(number))), "{number}"),
        }
    }
    assert!(lost.contains(&7) && lost.len() < 50, "{lost:?}");
}
