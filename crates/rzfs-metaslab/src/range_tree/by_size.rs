//! The companion of a range tree that orders its segments by length (spec 06, section 3.3).
//!
//! It holds the segments of at least a floor, so that a tree of many small ones does not take
//! twice the memory. Keys are a segment's length and start packed into one number: eight bytes
//! where the tree is narrow.

use super::segments::Segment;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Keys {
    /// Units have 32 bits.
    Narrow(BTreeSet<u64>),
    /// Units have 64 bits.
    Wide(BTreeSet<u128>),
}

/// Segments of at least `floor` units, by length and then by start.
#[derive(Clone, Debug)]
pub(super) struct BySize {
    keys: Keys,
    floor: u64,
}

const fn narrow(length: u64, start: u64) -> u64 {
    length << 32 | start
}

const fn wide(length: u64, start: u64) -> u128 {
    (length as u128) << 64 | start as u128
}

const fn from_narrow(key: u64) -> Segment {
    let start = key & 0xffff_ffff;
    Segment { start, end: start + (key >> 32) }
}

const fn from_wide(key: u128) -> Segment {
    let start = key as u64;
    Segment { start, end: start + (key >> 64) as u64 }
}

impl BySize {
    /// An empty index; `narrow` if all units of the tree fit into 32 bits.
    pub(super) const fn new(is_narrow: bool, floor: u64) -> Self {
        let keys =
            if is_narrow { Keys::Narrow(BTreeSet::new()) } else { Keys::Wide(BTreeSet::new()) };
        Self { keys, floor }
    }

    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn insert(&mut self, segment: Segment) {
        let length = segment.end - segment.start;
        if length < self.floor {
            return;
        }
        match &mut self.keys {
            Keys::Narrow(keys) => keys.insert(narrow(length, segment.start)),
            Keys::Wide(keys) => keys.insert(wide(length, segment.start)),
        };
    }

    pub(super) fn remove(&mut self, segment: Segment) {
        let length = segment.end - segment.start;
        if length < self.floor {
            return;
        }
        match &mut self.keys {
            Keys::Narrow(keys) => keys.remove(&narrow(length, segment.start)),
            Keys::Wide(keys) => keys.remove(&wide(length, segment.start)),
        };
    }

    /// The longest segment, the last one of them.
    pub(super) fn longest(&self) -> Option<Segment> {
        match &self.keys {
            Keys::Narrow(keys) => keys.last().copied().map(from_narrow),
            Keys::Wide(keys) => keys.last().copied().map(from_wide),
        }
    }

    /// The shortest segment of at least `length` units, the first one of them.
    pub(super) fn at_least(&self, length: u64) -> Option<Segment> {
        match &self.keys {
            Keys::Narrow(_) if length > u64::from(u32::MAX) => None,
            Keys::Narrow(keys) => keys.range(narrow(length, 0)..).next().copied().map(from_narrow),
            Keys::Wide(keys) => keys.range(wide(length, 0)..).next().copied().map(from_wide),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.keys {
            Keys::Narrow(keys) => keys.is_empty(),
            Keys::Wide(keys) => keys.is_empty(),
        }
    }
}
