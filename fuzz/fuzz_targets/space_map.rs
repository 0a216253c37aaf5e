//! Any bytes are a space map or an error: its entries encode to the same words, and a map that
//! loads has as much allocated as its header says.
//!
//! Input: a byte (1 = big-endian, 2 = a short header), the header, words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::{self, Entry, Geometry};
use rzfs_fuzz::words::WordObjects;
use rzfs_metaslab::SpaceMap;

/// The map's area: 64 MiB in units of 4 KiB.
const AREA: Geometry = Geometry { start: 0, size: 64 << 20, shift: 12 };

fuzz_target!(|data: &[u8]| {
    let mut store = WordObjects::default();
    let map = ObjectId(1);
    let Some(rest) = store.take_space_map(map, data) else { return };
    assert!(rest.is_empty());
    let Some(object) = store.get(map) else { return };
    for entry in space_map::entries(&object.data, object.order) {
        let Ok((_, entry)) = entry else { break };
        let (first, second) = entry.to_words();
        assert_eq!(Entry::from_words(first, second).as_ref(), Ok(&entry));
    }
    assert_eq!(object.object_type, ObjectType::SPACE_MAP);
    let Ok(map) = SpaceMap::open(&store, map, AREA) else { return };
    let Ok(tree) = map.load_allocated(&store) else { return };
    assert_eq!(i64::try_from(tree.space()), Ok(map.header().allocated));
    assert!(tree.iter().all(|range| range.end <= AREA.size));
});
