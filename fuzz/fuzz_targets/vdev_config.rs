//! Any name-value list is a vdev configuration or an error, and any configuration a tree or an
//! error; what is asked of a tree is answered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::nvlist::NvList;
use rzfs_format::{Dva, Txg, VdevId};
use rzfs_vdev::{BlockRead, TreeOptions, VdevConfig, VdevTree};
use std::collections::HashMap;

fuzz_target!(|input: (u32, u64, u64, u64, u64, &[u8])| {
    let (vdev, offset, asize, size, birth, bytes) = input;
    let Ok(list) = NvList::decode(bytes) else { return };
    let Ok(config) = VdevConfig::from_nvlist(&list) else { return };
    if let Ok(list) = config.to_nvlist() {
        assert_eq!(VdevConfig::from_nvlist(&list).as_ref(), Ok(&config));
    }
    let Ok(tree) = VdevTree::open(config, &HashMap::new(), TreeOptions::default()) else { return };
    let dva = Dva::new(VdevId(vdev), offset, asize, false);
    assert!(!tree.contains(dva) || tree.allocated_size(dva.vdev(), size, Txg(birth)).is_some());
    let read = BlockRead { dva, size, birth: Txg(birth), verify: &|_| true };
    // Without devices there is nothing to read.
    assert!(tree.read(vec![read]).iter().all(Result::is_err));
});
