//! Any bytes are a ZAP of either form or an error: opening, looking up and listing end, and what
//! is listed is found.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_zap::{MemoryBlocks, Zap, ZapForm};

fuzz_target!(|data: &[u8]| {
    let Some((&shape, data)) = data.split_first() else { return };
    let order = if shape & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let block_size = 512 << (shape >> 1 & 3);
    let blocks: Vec<_> = data
        .chunks(block_size)
        .map(|chunk| {
            let mut block = chunk.to_vec();
            block.resize(block_size, 0);
            block.into()
        })
        .collect();
    let Ok(zap) = Zap::open(MemoryBlocks::new(block_size, order, blocks)) else { return };
    let _ = zap.statistics();
    let mut entries = 0;
    for entry in zap.entries() {
        entries += 1;
        assert!(entries <= data.len() / 24 + 1, "entries without end");
        let Ok(entry) = entry else { continue };
        if zap.form() == ZapForm::Micro {
            assert!(zap.lookup(entry.name()).is_ok_and(|found| found.is_some()));
        }
        let _ = zap.lookup(entry.name());
        let _ = zap.entries_from(entry.next).next();
    }
});
