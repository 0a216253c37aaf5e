//! Any bytes are the header, counters and counts of a block reference table or errors; a header
//! encodes to what it was decoded from.
//!
//! Input: a byte (1 = big-endian), the header, counters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::brt::{self, BrtHeader};

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    let order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let counters = data.get(BrtHeader::SIZE..).unwrap_or_default();
    if let Ok(header) = BrtHeader::decode(data, order) {
        assert_eq!(BrtHeader::decode(&header.encode(order), order), Ok(header));
        let last = brt::counters(counters, header.counter_order).count() as u64;
        let _ = (header.range_of(u64::MAX), header.range_of(last));
    }
    assert_eq!(brt::counters(counters, order).count(), counters.len() / 2);
    let _ = brt::classic_count(counters, order);
});
