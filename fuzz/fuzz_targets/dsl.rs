//! Any bytes are a DSL directory or dataset or too short; what decodes encodes to the same fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::dsl::{DslDataset, DslDir};

fuzz_target!(|data: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if let Ok(dir) = DslDir::decode(data, order) {
            assert_eq!(DslDir::decode(&dir.encode(order), order).as_ref(), Ok(&dir));
        }
        if let Ok(dataset) = DslDataset::decode(data, order) {
            assert_eq!(DslDataset::decode(&dataset.encode(order), order).as_ref(), Ok(&dataset));
        }
    }
});
