//! What the threads that change files know of shared blocks.

use super::sync::SyncState;
use rzfs_format::features::Feature;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether blocks can be shared, and what that saves, as of the last txg on disk.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    saved: AtomicU64,
    can_clone: AtomicBool,
}

impl Sharing {
    /// Of a pool that is on disk.
    pub(crate) fn of_state(state: &SyncState) -> Self {
        let this = Self::default();
        this.follow(state);
        this
    }

    /// Takes over what a txg has made of it.
    pub(crate) fn follow(&self, state: &SyncState) {
        let saved = state.clones.saved().saturating_add(state.dedup.saved());
        self.saved.store(saved, Ordering::Relaxed);
        state.dedup.follow(&state.features);
        self.can_clone.store(state.features.is_enabled(Feature::BlockCloning), Ordering::Relaxed);
    }

    /// Bytes that datasets have more than the pool has allocated for them.
    pub(crate) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Whether blocks can be cloned.
    pub(crate) fn can_clone(&self) -> bool {
        self.can_clone.load(Ordering::Relaxed)
    }
}
