//! What all streams of a pool share: tunables, counters, and how much is being prefetched.

use super::access::Prefetch;
use super::tunables::PrefetchTunables;
use crate::counters::counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

counters! {
    /// Counters of predictive prefetch at one moment, with the names of OpenZFS's kstat
    /// `zfetchstats`.
    pub struct ZfetchStats {
        /// Accesses that a stream expected.
        hits,
        /// Accesses a little ahead of a stream.
        future,
        /// Jumps of a stream over small holes.
        stride,
        /// Accesses a little behind a stream.
        past,
        /// Accesses that belonged to no stream.
        misses,
        /// Streams that could not begin because there were too many.
        max_streams,
        /// Blocks that were to be prefetched.
        io_issued,
        /// Blocks that are being prefetched.
        io_active,
    }
}

/// What all streams of a pool share.
#[derive(Debug)]
pub struct PrefetchActivity {
    tunables: PrefetchTunables,
    /// The most bytes that may be on their way before streams stop to reach further.
    pressure: u64,
    hits: AtomicU64,
    future: AtomicU64,
    stride: AtomicU64,
    past: AtomicU64,
    misses: AtomicU64,
    max_streams: AtomicU64,
    io_issued: AtomicU64,
    active_blocks: AtomicU64,
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
            hits: AtomicU64::new(0),
            future: AtomicU64::new(0),
            stride: AtomicU64::new(0),
            past: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            max_streams: AtomicU64::new(0),
            io_issued: AtomicU64::new(0),
            active_blocks: AtomicU64::new(0),
            active_bytes: AtomicU64::new(0),
        })
    }

    /// The tunables.
    #[must_use]
    pub const fn tunables(&self) -> &PrefetchTunables {
        &self.tunables
    }

    /// Notes that blocks are being prefetched, until the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, blocks: u64, bytes: u64) -> ActivePrefetch {
        self.active_blocks.fetch_add(blocks, Ordering::Relaxed);
        self.active_bytes.fetch_add(bytes, Ordering::Relaxed);
        ActivePrefetch { activity: Arc::clone(self), blocks, bytes }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ZfetchStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ZfetchStats {
            hits: read(&self.hits),
            future: read(&self.future),
            stride: read(&self.stride),
            past: read(&self.past),
            misses: read(&self.misses),
            max_streams: read(&self.max_streams),
            io_issued: read(&self.io_issued),
            io_active: read(&self.active_blocks),
        }
    }

    pub(super) fn count(&self, event: Event) {
        let counter = match event {
            Event::Hit => &self.hits,
            Event::Future => &self.future,
            Event::Stride => &self.stride,
            Event::Past => &self.past,
            Event::Miss => &self.misses,
            Event::TooMany => &self.max_streams,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_issued(&self, prefetch: &Prefetch) {
        let Prefetch { data, indirect } = prefetch;
        let blocks = (data.end - data.start) + (indirect.end - indirect.start);
        self.io_issued.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Whether so much is on its way that streams must not reach further.
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
        self.activity.active_blocks.fetch_sub(self.blocks, Ordering::Relaxed);
        self.activity.active_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
