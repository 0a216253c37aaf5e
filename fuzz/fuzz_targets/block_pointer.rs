//! Any 128 bytes are a block pointer whose accessors answer, in both byte orders, and whose
//! encoding gives the bytes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::{BlockPointer, ByteOrder};

fuzz_target!(|data: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let Ok(bp) = BlockPointer::decode(data, order) else { continue };
        assert_eq!(bp.encode(order), data[..BlockPointer::SIZE]);
        let _ = (bp.allocated_size(), bp.fill(), bp.crypt_params(), bp.embedded_payload());
        let _ = format!("{bp:?}");
        if bp.validate().is_ok() && !bp.is_hole() {
            assert!(bp.logical_size() <= 16 << 20);
            assert!(
                bp.is_embedded() || bp.physical_size() <= bp.logical_size() || bp.is_redacted()
            );
        }
    }
});
