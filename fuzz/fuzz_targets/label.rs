//! Any bytes are a label's configuration, boot environment or uberblock, or an error. What is
//! shorter than these is padded with zeros.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::config::LabelConfig;
use rzfs_format::label::{self, BOOT_ENV_SIZE, BootEnvironment, CONFIG_SIZE};
use rzfs_format::uberblock::Uberblock;

fuzz_target!(|data: &[u8]| {
    let mut padded = data.to_vec();
    padded.resize(CONFIG_SIZE, 0);
    if let Ok(config) = label::decode_config(&padded) {
        let _ = LabelConfig::from_list(&config);
    }
    let _ = BootEnvironment::decode(&padded[..BOOT_ENV_SIZE]);
    if let Ok((uberblock, order)) = Uberblock::decode(data) {
        let words = uberblock.to_words();
        assert_eq!(uberblock.encode(order)[..8], data[..8]);
        assert_eq!(Uberblock::from_words(&words).expect("its own words"), uberblock);
    }
});
