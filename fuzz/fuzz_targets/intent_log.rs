//! Any bytes are a block of the intent log or an error; all its records can be looked at.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::zil::{BlockForm, Chain};

fuzz_target!(|data: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for form in [BlockForm::Leader, BlockForm::Trailer] {
            let Ok(chain) = Chain::decode(data, form, order) else { continue };
            assert!(chain.record_bytes <= data.len());
            for record in chain.records(data).flatten() {
                let _ = record.body();
            }
        }
    }
});
