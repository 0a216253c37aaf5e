//! Tunables of the cache besides its size.

use super::entry::Purpose;
use rzfs_tunables::Tunables;
use std::time::Duration;

/// Tunables of the cache besides its size.
#[derive(Clone, Copy, Debug)]
pub struct ArcTunables {
    /// How much more a ghost hit of metadata counts than one of data, in percent.
    pub meta_balance: u64,
    /// Blocks examined under one lock before eviction moves on.
    pub evict_batch_limit: usize,
    /// How long eviction looks for other blocks after one was read ahead because of a pattern ...
    pub min_prefetch: Duration,
    /// ... or because it is known to be wanted.
    pub min_prescient_prefetch: Duration,
}

impl From<&Tunables> for ArcTunables {
    fn from(tunables: &Tunables) -> Self {
        Self {
            meta_balance: tunables.zfs_arc_meta_balance,
            evict_batch_limit: tunables.zfs_arc_evict_batch_limit,
            min_prefetch: tunables.zfs_arc_min_prefetch_ms,
            min_prescient_prefetch: tunables.zfs_arc_min_prescient_prefetch_ms,
        }
    }
}

impl Default for ArcTunables {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

impl ArcTunables {
    /// For how long after a read with this purpose eviction looks for other blocks first.
    pub(super) const fn min_age(&self, purpose: Purpose) -> Duration {
        match purpose {
            Purpose::Demand => Duration::ZERO,
            Purpose::PredictivePrefetch => self.min_prefetch,
            Purpose::PrescientPrefetch => self.min_prescient_prefetch,
        }
    }
}
