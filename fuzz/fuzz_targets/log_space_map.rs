//! Any bytes are the logs of unflushed metaslabs or an error: replaying them ends, and what they
//! change lies inside of the metaslabs.
//!
//! Input: for each log a length (two bytes), then a space map as the target `space_map` has it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::{ObjectId, Txg, VdevId};
use rzfs_fuzz::words::WordObjects;
use rzfs_metaslab::{LogMap, LoggedVdev, PoolMetaslabs, VdevGeometry, VdevMetaslabs};
use std::collections::BTreeMap;

/// Logs of an input.
const LOGS: u64 = 4;

fn geometry(vdev: u32) -> VdevGeometry {
    VdevGeometry {
        vdev: VdevId(vdev),
        asize: 64 << 20,
        ashift: 12,
        metaslab_shift: 24,
        row_size: None,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut store = WordObjects::default();
    let mut logs = Vec::new();
    let mut rest = data;
    for number in 1..=LOGS {
        let Some((len, after)) = rest.split_first_chunk::<2>() else { break };
        let (map, after) = after.split_at(usize::from(u16::from_le_bytes(*len)).min(after.len()));
        rest = after;
        if store.take_space_map(ObjectId(number), map).is_some() {
            logs.push(LogMap { txg: Txg(number), object: ObjectId(number) });
        }
    }
    let vdev = VdevMetaslabs::open(&store, geometry(0), None, None).expect("no maps of their own");
    let vdevs =
        BTreeMap::from([(VdevId(0), LoggedVdev::Concrete(vdev)), (VdevId(1), LoggedVdev::Gone)]);
    let mut pool = PoolMetaslabs::new(vdevs);
    if pool.replay(&store, &logs).is_err() {
        return;
    }
    assert!(pool.logs().iter().all(|log| log.valid <= log.entries));
    let _ = pool.unflushed_net();
    for vdev in pool.vdevs() {
        let _ = (vdev.allocated(), vdev.fragmentation());
        for metaslab in vdev.metaslabs() {
            let (Ok(free), Ok(used)) =
                (metaslab.load_free(&store), metaslab.load_allocated(&store))
            else {
                continue;
            };
            assert_eq!(free.space() + used.space(), metaslab.size());
        }
    }
});
