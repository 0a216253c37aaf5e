//! Any bytes are a block of dnodes that can be walked; what decodes is consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::dnode::{self, SLOT_SIZE};
use rzfs_format::{BlockId, ByteOrder};

fuzz_target!(|data: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for (slot, dnode) in dnode::slots(data, order) {
            assert!(dnode::starts_at(data, slot));
            let Ok(Some(dnode)) = dnode else { continue };
            assert!(dnode.bonus.len() + 64 <= usize::from(dnode.slots) * SLOT_SIZE);
            assert!(dnode.max_block_id.0 < dnode.capacity_blocks());
            for level in 0..dnode.levels {
                let ancestor = dnode.ancestor(dnode.max_block_id, level);
                let _ = dnode.index_in_parent(level, ancestor);
            }
            let _ = (dnode.extent(), dnode.ancestor(BlockId(u64::MAX), 11));
        }
    }
});
