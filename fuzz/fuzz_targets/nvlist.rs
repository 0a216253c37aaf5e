//! Any bytes are an nvlist or an error; what decodes encodes, and decodes to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::nvlist::NvList;

fuzz_target!(|data: &[u8]| {
    let Ok((list, encoding)) = NvList::decode_with_encoding(data) else { return };
    for pair in list.iter() {
        assert!(list.contains(pair.name()));
    }
    let bytes = list.encode(encoding).expect("what was decoded can be encoded");
    let again = NvList::decode(&bytes).expect("what was encoded can be decoded");
    assert_eq!(list, again);
});
