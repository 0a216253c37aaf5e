//! Any bytes are a list of block pointers, a list of destroyed datasets or a dead list, or an
//! error; headers encode to what they were decoded from.
//!
//! Input: a byte (1 = big-endian), the bonus's length, the bonus, entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::bpobj::{self, BpobjHeader, BptreeEntry, BptreeHeader, list_mark, stored_form};
use rzfs_format::deadlist::{self, DeadlistHeader};

fuzz_target!(|data: &[u8]| {
    let [flags, length, rest @ ..] = data else { return };
    let order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let Some((bonus, entries)) = rest.split_at_checked(usize::from(*length)) else { return };
    let extent = entries.len() as u64;
    if let Ok(header) = BpobjHeader::decode(bonus, order) {
        let again = BpobjHeader::decode(&header.encode(order), order);
        assert!(bonus.len() > 56 || again.as_ref() == Ok(&header));
        let fits = header.check_extent(extent).is_ok();
        assert!(!fits || header.entries <= extent);
        let _ = (header.check_subobject_extent(extent), header.is_empty());
    }
    if let Ok(header) = BptreeHeader::decode(bonus, order) {
        assert_eq!(BptreeHeader::decode(&header.encode(order), order).as_ref(), Ok(&header));
        let _ = header.check_extent(extent);
    }
    if let Ok(header) = DeadlistHeader::decode(bonus, order) {
        assert_eq!(DeadlistHeader::decode(&header.encode(order), order), Ok(header));
    }
    let _ = deadlist::parse_key(bonus);
    for pointer in bpobj::entries(entries, order).flatten() {
        let mark = list_mark(&pointer);
        assert_eq!(list_mark(&stored_form(&pointer, mark)), mark);
        let _ = bpobj::accounted_logical_size(&pointer);
    }
    for chunk in entries.chunks(BptreeEntry::SIZE) {
        if let Ok(entry) = BptreeEntry::decode(chunk, order) {
            assert_eq!(BptreeEntry::decode(&entry.encode(order), order), Ok(entry));
        }
    }
});
