//! Any bytes are a label's configuration, boot environment or uberblock, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::label::{self, BootEnvironment};
use rzfs_format::uberblock::Uberblock;

fuzz_target!(|data: &[u8]| {
    let _ = label::decode_config(data);
    let _ = BootEnvironment::decode(data);
    if let Ok((uberblock, order)) = Uberblock::decode(data) {
        let words = uberblock.to_words();
        assert_eq!(uberblock.encode(order)[..8], data[..8]);
        assert_eq!(Uberblock::from_words(&words).expect("its own words"), uberblock);
    }
});
