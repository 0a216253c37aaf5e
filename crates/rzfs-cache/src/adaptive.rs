//! The block cache.

use crate::{BlockKey, BlockKind, Weighted};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A cache of blocks by identity, bounded by the bytes that it keeps alive.
pub struct AdaptiveCache<V> {
    arc_max: u64,
    state: Mutex<State<V>>,
}

struct State<V> {
    entries: HashMap<BlockKey, (u64, V)>,
    order: BTreeMap<u64, BlockKey>,
    clock: u64,
    size: u64,
}

impl<V: Weighted> AdaptiveCache<V> {
    /// An empty cache that holds at most `arc_max` bytes.
    #[must_use]
    pub fn new(arc_max: u64) -> Self {
        let state = State { entries: HashMap::new(), order: BTreeMap::new(), clock: 0, size: 0 };
        Self { arc_max, state: Mutex::new(state) }
    }

    /// The cached block.
    pub fn get(&self, key: &BlockKey) -> Option<V> {
        let state = &mut *self.state.lock();
        let (used, value) = state.entries.get_mut(key)?;
        state.order.remove(used);
        state.clock += 1;
        *used = state.clock;
        state.order.insert(state.clock, *key);
        Some(value.clone())
    }

    /// Puts a block into the cache; one that is larger than the cache stays out.
    pub fn insert(&self, key: BlockKey, _kind: BlockKind, value: V) {
        let state = &mut *self.state.lock();
        let weight = value.weight() as u64;
        if let Some((used, old)) = state.entries.remove(&key) {
            state.order.remove(&used);
            state.size -= old.weight() as u64;
        }
        while state.size + weight > self.arc_max {
            let Some((_, oldest)) = state.order.pop_first() else { return };
            if let Some((_, old)) = state.entries.remove(&oldest) {
                state.size -= old.weight() as u64;
            }
        }
        state.clock += 1;
        state.size += weight;
        state.order.insert(state.clock, key);
        state.entries.insert(key, (state.clock, value));
    }
}

impl<V> fmt::Debug for AdaptiveCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "AdaptiveCache({} of {} bytes)", state.size, self.arc_max)
    }
}
