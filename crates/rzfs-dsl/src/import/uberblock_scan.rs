//! Finding the uberblocks of a pool (spec 01, sections 3.2 and 3.3).

use super::device_reads::{DeviceRead, read_all};
use rzfs_blockdev::BlockDevice;
use rzfs_format::label::{LABELS, LabelIndex, LeafSize, RING_OFFSET, RING_SIZE, UberblockRing};
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};
use rzfs_vdev::VdevTree;
use rzfs_vdev::label::{RingSlot, decode_ring};
use std::sync::Arc;

/// Leaves whose rings are read together; bounds the memory of a scan to 16 MiB.
const LEAVES_AT_ONCE: usize = 32;

/// Reads all uberblocks of a device, label by label; empty slots and unreadable labels are skipped.
#[must_use]
pub fn read_rings(device: &Arc<dyn BlockDevice>, ring: UberblockRing) -> Vec<RingSlot> {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return Vec::new() };
    let blocks = read_all(&ring_reads(device, size));
    let mut found = Vec::new();
    for (label, block) in LabelIndex::ALL.into_iter().zip(blocks) {
        if let Ok(block) = block {
            found.extend(decode_ring(&block, size, label, ring));
        }
    }
    found
}

fn ring_reads(device: &Arc<dyn BlockDevice>, size: LeafSize) -> [DeviceRead; LABELS] {
    LabelIndex::ALL.map(|label| DeviceRead {
        device: Arc::clone(device),
        offset: size.label_offset(label) + RING_OFFSET,
        len: RING_SIZE,
    })
}

/// An uberblock and the leaves that have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundUberblock {
    pub(super) uberblock: Uberblock,
    pub(super) leaves: Vec<Guid>,
}

/// All different uberblocks of a pool, the best first.
#[derive(Debug, Default)]
pub(super) struct UberblockScan {
    found: Vec<FoundUberblock>,
}

impl UberblockScan {
    /// Reads the rings of all leaves that are open.
    pub(super) fn of_tree(tree: &VdevTree) -> Self {
        let leaves: Vec<_> = tree
            .leaves()
            .filter(|leaf| leaf.health().is_usable())
            .filter_map(|leaf| {
                let device = leaf.device()?;
                let size = LeafSize::of_device(device.geometry().size)?;
                let ashift = leaf.top_level()?.ashift()?;
                let ring = UberblockRing::of_ashift(u64::from(ashift));
                Some((leaf.guid(), device, size, ring))
            })
            .collect();
        let mut all: Vec<(Uberblock, Guid)> = Vec::new();
        for batch in leaves.chunks(LEAVES_AT_ONCE) {
            let reads: Vec<DeviceRead> =
                batch.iter().flat_map(|(_, device, size, _)| ring_reads(device, *size)).collect();
            let mut blocks = read_all(&reads).into_iter();
            for (guid, _, size, ring) in batch {
                for label in LabelIndex::ALL {
                    if let Some(Ok(block)) = blocks.next() {
                        let slots = decode_ring(&block, *size, label, *ring);
                        all.extend(slots.map(|slot| (slot.uberblock, *guid)));
                    }
                }
            }
        }
        Self::new(all)
    }

    fn new(mut all: Vec<(Uberblock, Guid)>) -> Self {
        all.retain(|(uberblock, _)| uberblock.txg > Txg(0));
        all.sort_by_cached_key(|(uberblock, guid)| {
            (std::cmp::Reverse(uberblock.precedence()), uberblock.to_words(), *guid)
        });
        let mut found: Vec<FoundUberblock> = Vec::new();
        for (uberblock, leaf) in all {
            match found.last_mut().filter(|last| last.uberblock == uberblock) {
                Some(last) if last.leaves.last() == Some(&leaf) => {}
                Some(last) => last.leaves.push(leaf),
                None => found.push(FoundUberblock { uberblock, leaves: vec![leaf] }),
            }
        }
        Self { found }
    }

    /// The best uberblock whose txg is not above `limit`.
    pub(super) fn best(&self, limit: Option<Txg>) -> Option<&FoundUberblock> {
        let allowed =
            |found: &&FoundUberblock| limit.is_none_or(|limit| found.uberblock.txg <= limit);
        self.found.iter().find(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::uberblock::{Multihost, MultihostConfig};

    fn uberblock(txg: u64, timestamp: u64) -> Uberblock {
        let mut words = [0; 27];
        words[0] = 0x00ba_b10c;
        words[2] = txg;
        words[4] = timestamp;
        Uberblock::from_words(&words).unwrap()
    }

    #[test]
    fn the_best_has_the_highest_txg_below_the_limit_then_the_latest_time() {
        let mut heartbeat = uberblock(9, 20);
        heartbeat.multihost = Some(Multihost { delay: 1, config: MultihostConfig::new(1, 3, 1) });
        let scan = UberblockScan::new(vec![
            (uberblock(0, 99), Guid(1)),
            (uberblock(8, 30), Guid(1)),
            (uberblock(9, 20), Guid(1)),
            (uberblock(9, 10), Guid(1)),
            (heartbeat.clone(), Guid(2)),
            (uberblock(8, 30), Guid(2)),
            (uberblock(8, 30), Guid(2)),
        ]);
        assert_eq!(scan.best(None).unwrap().uberblock, heartbeat);
        let rewound = scan.best(Some(Txg(8))).unwrap();
        assert_eq!(rewound.uberblock, uberblock(8, 30));
        assert_eq!(rewound.leaves, [Guid(1), Guid(2)]);
        assert_eq!(scan.best(Some(Txg(7))), None);
    }
}
