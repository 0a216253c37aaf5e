//! Normalising a name is total, and normalising case away twice changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::zap::Normalization;

fuzz_target!(|data: &[u8]| {
    for flags in [0x02, 0x10, 0x20, 0x50, 0x60, 0x12, 0x22, 0x52, 0x62] {
        let rules = Normalization::from_flags(flags).expect("a known form");
        let normalized = rules.normalize(data);
        if flags == 0x02 {
            assert_eq!(rules.normalize(&normalized), normalized);
        }
    }
});
