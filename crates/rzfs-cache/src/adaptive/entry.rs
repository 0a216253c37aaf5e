//! What the cache knows about one block.

use crate::hashed::Hashed;
use crate::slab::Slab;
use crate::{BlockKey, BlockKind};
use std::time::Duration;

/// Why a block is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Purpose {
    /// A caller waits for it.
    #[default]
    Demand,
    /// A pattern of accesses suggests that it will be wanted.
    PredictivePrefetch,
    /// It is known that it will be wanted.
    PrescientPrefetch,
}

/// Whether a block stays after its use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Retention {
    /// As long as there is no better use for the memory.
    #[default]
    Cache,
    /// No: `primarycache` says so. A demand read is not kept at all, a prefetched block until its
    /// first use.
    UseOnce,
}

/// The lists that a block can be in (spec 03, section 10.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum State {
    /// Used once lately.
    Mru,
    /// Used at least twice.
    Mfu,
    /// Was in [`Self::Mru`], and is not in memory.
    MruGhost,
    /// Was in [`Self::Mfu`], and is not in memory.
    MfuGhost,
    /// Removed on use.
    Uncached,
}

/// A state for a kind: the name of one list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Class {
    pub(super) state: State,
    pub(super) kind: BlockKind,
}

/// How many classes there are.
pub(super) const CLASSES: usize = 10;

impl Class {
    /// Its index in an array of all classes.
    pub(super) const fn index(self) -> usize {
        let state = match self.state {
            State::Mru => 0,
            State::Mfu => 2,
            State::MruGhost => 4,
            State::MfuGhost => 6,
            State::Uncached => 8,
        };
        state
            + match self.kind {
                BlockKind::Data => 0,
                BlockKind::Metadata => 1,
            }
    }

    /// The state after eviction from here; none for the last states.
    pub(super) const fn after_eviction(self) -> Option<Self> {
        let state = match self.state {
            State::Mru => State::MruGhost,
            State::Mfu => State::MfuGhost,
            State::MruGhost | State::MfuGhost | State::Uncached => return None,
        };
        Some(Self { state, kind: self.kind })
    }
}

/// A block that is, or lately was, in the cache.
#[derive(Debug)]
pub(super) struct Entry<V> {
    pub(super) key: Hashed<BlockKey>,
    pub(super) class: Class,
    /// None for ghosts.
    pub(super) value: Option<V>,
    /// Bytes of the value, even after eviction.
    pub(super) weight: u64,
    /// Why it was read, until it is used.
    pub(super) purpose: Purpose,
    /// The last use that mattered.
    pub(super) used: Duration,
    /// Whether it was missed since it became a ghost.
    pub(super) missed: bool,
}

/// Most bytes that the cache itself needs for an entry, whether its block is in memory or not:
/// what holds entries grows by doubling.
pub(super) const fn header_size<V>() -> u64 {
    let entry = Slab::<Entry<V>>::ENTRY_SIZE;
    let table = size_of::<(Hashed<BlockKey>, u32)>() + 1;
    2 * (entry + table) as u64
}
