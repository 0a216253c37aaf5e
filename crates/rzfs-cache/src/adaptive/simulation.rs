//! The balance for programs whose access patterns change.

use super::{AdaptiveCache, ArcOptions, Lookup, Purpose};
use crate::{BlockKey, BlockKind, Weighted};
use rzfs_clock::{Clock, Passing, Simulation};
use std::time::Duration;

/// Blocks that the cache has room for, nearly.
const ROOM: u64 = 512;
const BLOCK: usize = 4096;

#[derive(Debug, Clone)]
struct Block;

impl Weighted for Block {
    fn weight(&self) -> usize {
        BLOCK
    }
}

/// A cache and a program that reads a block through it each millisecond.
struct Reader {
    cache: AdaptiveCache<Block>,
    time: Simulation,
    chance: u64,
}

impl Reader {
    fn new() -> Self {
        let (clock, time) = Clock::simulated(Passing::ByHand);
        let options = ArcOptions {
            arc_max: ROOM * BLOCK as u64,
            shards: Some(1),
            clock,
            ..ArcOptions::default()
        };
        Self { cache: AdaptiveCache::with_options(options), time, chance: 14 }
    }

    /// Reads a block; returns whether it was cached.
    fn read(&self, kind: BlockKind, number: u64) -> bool {
        self.time.advance(Duration::from_millis(1));
        let birth = u64::from(kind == BlockKind::Metadata);
        let key = BlockKey { vdev: 0, offset: number << 12, birth };
        match self.cache.get_or_begin(key, kind, Purpose::Demand) {
            Lookup::Hit(_) => true,
            Lookup::Miss(ticket) => {
                ticket.complete(Block);
                false
            }
            Lookup::Pending(_) => panic!("nobody else reads"),
        }
    }

    /// Reads random blocks of the first `among`; returns the hit rate in percent.
    fn wander(&mut self, kind: BlockKind, among: u64, reads: u64) -> u64 {
        let mut hits = 0;
        for _ in 0..reads {
            self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (self.chance >> 33) % among;
            hits += u64::from(self.read(kind, number));
        }
        hits * 100 / reads
    }

    fn metadata_share(&self) -> u64 {
        (self.cache.stats().meta * 100) >> 32
    }
}

#[test]
fn the_share_of_metadata_follows_what_is_read_and_stays() {
    let mut reader = Reader::new();
    reader.wander(BlockKind::Data, 2 * ROOM, 8 * ROOM);
    assert!(reader.metadata_share() < 15, "{}", reader.metadata_share());
    // What is read now has room in the cache, but not in what metadata had of it.
    let working_set = ROOM * 2 / 3;
    reader.wander(BlockKind::Metadata, working_set, 5 * ROOM);
    for _ in 0..10 {
        let found = reader.wander(BlockKind::Metadata, working_set, ROOM);
        assert!(found >= 97, "{found} % found, share {}", reader.metadata_share());
    }
    // And back, which takes longer, as data count less.
    reader.wander(BlockKind::Data, working_set, 20 * ROOM);
    let found = reader.wander(BlockKind::Data, working_set, 4 * ROOM);
    assert!(found >= 97, "{found} % found, share {}", reader.metadata_share());
}

#[test]
fn what_is_read_once_takes_nothing_from_what_is_read_often() {
    let mut reader = Reader::new();
    let often = ROOM / 3;
    reader.wander(BlockKind::Data, often, 8 * ROOM);
    let before = reader.cache.stats();
    for number in 0..20 * ROOM {
        reader.read(BlockKind::Data, often + number);
    }
    assert_eq!(reader.cache.stats().pd, before.pd);
    let found = reader.wander(BlockKind::Data, often, ROOM);
    assert_eq!(found, 100);
}
