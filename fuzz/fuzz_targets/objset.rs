//! Any bytes are an objset block or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::objset::ObjsetBlock;

fuzz_target!(|data: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let _ = ObjsetBlock::decode(data, order);
    }
});
