//! What a tree of datasets needs from the pool around it.

use super::keyring::Keyring;
use super::readers::View;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// State that trees share with other users of the same open pool.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// Loaded keys.
    pub(crate) keyring: Arc<Keyring>,
    /// The txg that the tree shows.
    pub(super) view: View,
}

impl SharedState {
    pub(crate) const fn new(keyring: Arc<Keyring>, view: View) -> Self {
        Self { keyring, view }
    }
}

/// Bytes in a pool for datasets: computed on demand, since it takes the space maps of all
/// metaslabs. Resources of the computation are held as long as this exists.
pub(crate) struct UsableSpace {
    bytes: OnceLock<u64>,
    compute: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl UsableSpace {
    pub(crate) fn new(compute: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { bytes: OnceLock::new(), compute: Box::new(compute) }
    }

    pub(super) fn get(&self) -> u64 {
        *self.bytes.get_or_init(&self.compute)
    }
}

impl fmt::Debug for UsableSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UsableSpace").field(&self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn space_is_computed_once_and_what_that_holds_stays_held() {
        let held = Arc::new(AtomicU64::new(7));
        let counting = Arc::clone(&held);
        let space = UsableSpace::new(move || counting.fetch_add(1, Ordering::Relaxed));
        assert_eq!((space.get(), space.get()), (7, 7));
        assert_eq!(Arc::strong_count(&held), 2);
        drop(space);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
