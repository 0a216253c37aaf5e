//! Any bytes are a ZAP of either form or an error: opening, looking up and listing end, and what
//! is listed is found. Changing it ends too, and a sound one stays sound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_zap::{MemoryBlocks, Zap, ZapForm, verify};

fuzz_target!(|data: &[u8]| {
    let Some((&shape, data)) = data.split_first() else { return };
    let order = if shape & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let block_size = 512 << (shape >> 1 & 7).min(5);
    let blocks: Vec<_> = data
        .chunks(block_size)
        .map(|chunk| {
            let mut block = chunk.to_vec();
            block.resize(block_size, 0);
            block.into()
        })
        .collect();
    let blocks = MemoryBlocks::new(block_size, order, blocks);
    let Ok(violations) = verify(&blocks);
    let Ok(mut zap) = Zap::open(blocks) else { return };
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
    let names: Vec<_> = zap.entries().flatten().map(|entry| entry.key).take(20).collect();
    for key in &names {
        let _ = zap.edit().update(key, 7);
        let _ = zap.edit().remove(key);
        let _ = zap.edit().insert(key, "a value");
    }
    for number in 0..20 {
        let _ = zap.edit().insert(&format!("name {number}"), number);
    }
    let Ok(after) = verify(zap.blocks());
    assert!(!violations.is_empty() || after.is_empty(), "{after:?}");
});
