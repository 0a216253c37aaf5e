//! Tunables of predictive prefetch.

use rzfs_tunables::Tunables;
use std::time::Duration;

/// Tunables of predictive prefetch, with OpenZFS's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchTunables {
    /// The most streams of an object.
    pub zfetch_max_streams: usize,
    /// The distance, in bytes, up to which every hit doubles it.
    pub zfetch_min_distance: u64,
    /// The largest distance, in bytes.
    pub zfetch_max_distance: u64,
    /// The largest distance of indirect blocks, in bytes of what they point to.
    pub zfetch_max_idistance: u64,
    /// How far, in bytes, an access may be ahead of a stream and still belong to it.
    pub zfetch_max_reorder: u64,
    /// A stream jumps forward when holes are at most this power of two's part of the way.
    pub zfetch_hole_shift: u32,
    /// How long a stream has to be idle to be replaced by another.
    pub zfetch_min_sec_reap: Duration,
    /// How long a stream has to be idle to be deleted.
    pub zfetch_max_sec_reap: Duration,
}

impl From<&Tunables> for PrefetchTunables {
    fn from(tunables: &Tunables) -> Self {
        Self {
            zfetch_max_streams: tunables.zfetch_max_streams,
            zfetch_min_distance: tunables.zfetch_min_distance,
            zfetch_max_distance: tunables.zfetch_max_distance,
            zfetch_max_idistance: tunables.zfetch_max_idistance,
            zfetch_max_reorder: tunables.zfetch_max_reorder,
            zfetch_hole_shift: tunables.zfetch_hole_shift,
            zfetch_min_sec_reap: tunables.zfetch_min_sec_reap,
            zfetch_max_sec_reap: tunables.zfetch_max_sec_reap,
        }
    }
}

impl Default for PrefetchTunables {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}
