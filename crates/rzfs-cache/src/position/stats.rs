//! What the cache of positions counts: OpenZFS's `dbufstats`.

use super::{Stay, level_place};
use rzfs_format::units::Bookmark;

/// Levels that are counted apart.
pub(super) const LEVELS: usize = 12;

/// The names of the counts of each level.
const LEVEL_NAMES: [(&str, &str); LEVELS] = [
    ("cache_level_0", "cache_level_0_bytes"),
    ("cache_level_1", "cache_level_1_bytes"),
    ("cache_level_2", "cache_level_2_bytes"),
    ("cache_level_3", "cache_level_3_bytes"),
    ("cache_level_4", "cache_level_4_bytes"),
    ("cache_level_5", "cache_level_5_bytes"),
    ("cache_level_6", "cache_level_6_bytes"),
    ("cache_level_7", "cache_level_7_bytes"),
    ("cache_level_8", "cache_level_8_bytes"),
    ("cache_level_9", "cache_level_9_bytes"),
    ("cache_level_10", "cache_level_10_bytes"),
    ("cache_level_11", "cache_level_11_bytes"),
];

/// Counters and sizes of a [`PositionCache`](super::PositionCache) at one moment, with the names
/// of OpenZFS's kstat `dbufstats` (spec 03, section 9.6). Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DbufStats {
    /// Blocks in the LRU part.
    pub cache_count: u64,
    /// Size of the LRU part.
    pub cache_size_bytes: u64,
    /// The most that the LRU part has ever had.
    pub cache_size_bytes_max: u64,
    /// The limit of the LRU part.
    pub cache_target_bytes: u64,
    /// Ten percent less.
    pub cache_lowater_bytes: u64,
    /// Ten percent more: never reached, since room is made before a block enters.
    pub cache_hiwater_bytes: u64,
    /// Blocks evicted from the LRU part.
    pub cache_total_evicts: u64,
    /// Blocks in the LRU part by level.
    pub cache_level: [u64; LEVELS],
    /// Sizes in the LRU part by level.
    pub cache_level_bytes: [u64; LEVELS],
    /// Blocks found.
    pub hash_hits: u64,
    /// Blocks not found.
    pub hash_misses: u64,
    /// Blocks in both parts.
    pub hash_elements: u64,
    /// Blocks that took the place of another.
    pub hash_insert_race: u64,
    /// Shards.
    pub hash_mutex_count: u64,
    /// Blocks in the metadata part.
    pub metadata_cache_count: u64,
    /// Size of the metadata part.
    pub metadata_cache_size_bytes: u64,
    /// The most that the metadata part has ever had.
    pub metadata_cache_size_bytes_max: u64,
    /// Blocks for which the metadata part had no room.
    pub metadata_cache_overflow: u64,
}

impl DbufStats {
    /// The names and values, in the order of the kstat.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let levels = self.cache_level.into_iter().zip(self.cache_level_bytes).zip(LEVEL_NAMES);
        [
            ("cache_count", self.cache_count),
            ("cache_size_bytes", self.cache_size_bytes),
            ("cache_size_bytes_max", self.cache_size_bytes_max),
            ("cache_target_bytes", self.cache_target_bytes),
            ("cache_lowater_bytes", self.cache_lowater_bytes),
            ("cache_hiwater_bytes", self.cache_hiwater_bytes),
            ("cache_total_evicts", self.cache_total_evicts),
        ]
        .into_iter()
        .chain(levels.flat_map(|((count, bytes), names)| [(names.0, count), (names.1, bytes)]))
        .chain([
            ("hash_hits", self.hash_hits),
            ("hash_misses", self.hash_misses),
            ("hash_elements", self.hash_elements),
            ("hash_insert_race", self.hash_insert_race),
            ("hash_mutex_count", self.hash_mutex_count),
            ("metadata_cache_count", self.metadata_cache_count),
            ("metadata_cache_size_bytes", self.metadata_cache_size_bytes),
            ("metadata_cache_size_bytes_max", self.metadata_cache_size_bytes_max),
            ("metadata_cache_overflow", self.metadata_cache_overflow),
        ])
    }
}

/// What one shard counts.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) replaced: u64,
    pub(super) evicts: u64,
    pub(super) metadata_count: u64,
    pub(super) level_count: [u64; LEVELS],
    pub(super) level_bytes: [u64; LEVELS],
}

impl Events {
    pub(super) fn entered(&mut self, position: &Bookmark, charge: u64, stay: Stay) {
        match stay {
            Stay::WhileOpen => self.metadata_count += 1,
            Stay::WhileUsed => {
                let level = level_place(position);
                self.level_count[level] += 1;
                self.level_bytes[level] += charge;
            }
        }
    }

    pub(super) fn left(&mut self, position: &Bookmark, charge: u64, stay: Stay) {
        match stay {
            Stay::WhileOpen => self.metadata_count -= 1,
            Stay::WhileUsed => {
                let level = level_place(position);
                self.level_count[level] -= 1;
                self.level_bytes[level] -= charge;
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.replaced += other.replaced;
        self.evicts += other.evicts;
        self.metadata_count += other.metadata_count;
        for level in 0..LEVELS {
            self.level_count[level] += other.level_count[level];
            self.level_bytes[level] += other.level_bytes[level];
        }
    }
}
