//! What all streams of a pool share: tunables, counters, and how much is being prefetched.

use super::access::Prefetch;
use super::tunables::PrefetchTunables;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

rzfs_kstat::kstat! {
    /// Counters of predictive prefetch at one moment, with the names of OpenZFS's kstat
    /// `zfetchstats`.
    pub struct ZfetchStats = "zfetchstats", counted by pub(super) struct ZfetchCounters {
        /// Accesses that a stream expected.
        hits: Counter Count,
        /// Accesses a little ahead of a stream.
        future: Counter Count,
        /// Jumps of a stream over small holes.
        stride: Counter Count,
        /// Accesses a little behind a stream.
        past: Counter Count,
        /// Accesses that belonged to no stream.
        misses: Counter Count,
        /// Streams that could not begin because there were too many.
        max_streams: Counter Count,
        /// Blocks that were to be prefetched.
        io_issued: Counter Count,
        /// Blocks that are being prefetched.
        io_active: Gauge Count,
    }
}

/// State shared by all streams of a pool.
#[derive(Debug)]
pub struct PrefetchActivity {
    tunables: PrefetchTunables,
    /// Bytes in flight at which streams stop reaching further.
    pressure: u64,
    counters: ZfetchCounters,
    active_bytes: AtomicU64,
}

/// What has happened to a stream.
#[derive(Clone, Copy)]
pub(super) enum Event {
    Hit,
    Future,
    Stride,
    Past,
    Miss,
    TooMany,
}

impl PrefetchActivity {
    /// No activity, for a pool whose block cache may have `arc_c_max` bytes.
    #[must_use]
    pub fn new(tunables: PrefetchTunables, arc_c_max: u64) -> Arc<Self> {
        Arc::new(Self {
            tunables,
            pressure: arc_c_max / 16,
            counters: ZfetchCounters::default(),
            active_bytes: AtomicU64::new(0),
        })
    }

    /// The tunables.
    #[must_use]
    pub const fn tunables(&self) -> &PrefetchTunables {
        &self.tunables
    }

    /// Records that blocks are being prefetched, until the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, blocks: u64, bytes: u64) -> ActivePrefetch {
        self.counters.io_active.fetch_add(blocks, Ordering::Relaxed);
        self.active_bytes.fetch_add(bytes, Ordering::Relaxed);
        ActivePrefetch { activity: Arc::clone(self), blocks, bytes }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ZfetchStats {
        self.counters.read()
    }

    pub(super) fn count(&self, event: Event) {
        let counter = match event {
            Event::Hit => &self.counters.hits,
            Event::Future => &self.counters.future,
            Event::Stride => &self.counters.stride,
            Event::Past => &self.counters.past,
            Event::Miss => &self.counters.misses,
            Event::TooMany => &self.counters.max_streams,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_issued(&self, prefetch: &Prefetch) {
        let Prefetch { data, indirect } = prefetch;
        let blocks = (data.end - data.start) + (indirect.end - indirect.start);
        self.counters.io_issued.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Whether so much is in flight that streams must not reach further.
    pub(super) fn is_pressed(&self) -> bool {
        self.active_bytes.load(Ordering::Relaxed) > self.pressure
    }
}

/// Blocks that are being prefetched.
#[derive(Debug)]
pub struct ActivePrefetch {
    activity: Arc<PrefetchActivity>,
    blocks: u64,
    bytes: u64,
}

impl Drop for ActivePrefetch {
    fn drop(&mut self) {
        self.activity.counters.io_active.fetch_sub(self.blocks, Ordering::Relaxed);
        self.activity.active_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
