//! Predictive prefetch: which blocks an object's reader will want next (spec 03, section 11).
//!
//! Each open object has up to eight *streams*. A stream expects a block; an access that meets the
//! expectation is a hit, and has blocks ahead of it prefetched, at a distance that doubles from
//! hit to hit. Accesses a little ahead are remembered, since readers in parallel come in disorder;
//! when the holes between them are small, the stream jumps.
//!
//! ```text
//!            read         expected           data_end                indirect_end
//!    ---------|##############|..................|- - - - - - - - - - - - - |-----> blocks
//!                             data, prefetched    indirect blocks only
//! ```
//!
//! Nothing is prefetched before the stream has a miss: readers of cached data need no help.
//!
//! The detector is pure logic: it gets accesses with times, and returns what to prefetch.

mod access;
mod activity;
mod stream;
mod tunables;

pub use access::{AccessOutcome, ObjectShape, Prefetch};
pub use activity::{ActivePrefetch, PrefetchActivity, ZfetchStats};
pub use tunables::PrefetchTunables;

use activity::Event;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stream::{Stream, Verdict};

/// The streams of one open object.
#[derive(Debug)]
pub struct PrefetchStreams {
    activity: Arc<PrefetchActivity>,
    streams: Vec<Stream>,
}

impl PrefetchStreams {
    /// No streams; counts with others in `activity`.
    #[must_use]
    pub const fn new(activity: Arc<PrefetchActivity>) -> Self {
        Self { activity, streams: Vec::new() }
    }

    /// Records an access, and returns what to prefetch.
    ///
    /// To be called in the order of accesses, once it is known what is cached and before waiting
    /// for what is not. `now` must not go backwards.
    pub fn access(
        &mut self,
        shape: &ObjectShape,
        blocks: Range<u64>,
        outcome: AccessOutcome,
        now: Duration,
    ) -> Prefetch {
        let worthwhile = shape.blocks > 2 || (shape.blocks == 2 && !self.streams.is_empty());
        if blocks.is_empty() || !worthwhile {
            return Prefetch::default();
        }
        let activity = Arc::clone(&self.activity);
        let tunables = activity.tunables();
        let idle_too_long = tunables.zfetch_max_sec_reap;
        self.streams.retain(|stream| stream.idle(now) <= idle_too_long);
        let expecting = self.streams.iter_mut().find(|stream| stream.expects(&blocks));
        if let Some(stream) = expecting {
            stream.follow(tunables, &blocks);
            activity.count(Event::Hit);
            return proceed(stream, &activity, shape, &blocks, outcome, now);
        }
        for stream in &mut self.streams {
            let event = match stream.meet(tunables, shape, &blocks) {
                Verdict::Other => continue,
                Verdict::Past => Event::Past,
                Verdict::Future => {
                    stream.touch(outcome, now);
                    Event::Future
                }
                Verdict::Stride => {
                    activity.count(Event::Stride);
                    return proceed(stream, &activity, shape, &blocks, outcome, now);
                }
            };
            activity.count(event);
            return Prefetch::default();
        }
        activity.count(Event::Miss);
        if blocks.end < shape.blocks {
            self.begin_stream(shape, blocks.end, outcome, now);
        }
        Prefetch::default()
    }

    /// How many streams there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are no streams.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    fn begin_stream(
        &mut self,
        shape: &ObjectShape,
        expected: u64,
        outcome: AccessOutcome,
        now: Duration,
    ) {
        let tunables = self.activity.tunables();
        let stream = Stream::new(expected, outcome, now);
        // Each stream may have its full distance in the object.
        let by_size =
            shape.blocks.saturating_mul(shape.block_size) / tunables.zfetch_max_distance.max(1);
        let by_size = usize::try_from(by_size).unwrap_or(usize::MAX);
        if self.streams.len() < by_size.min(tunables.zfetch_max_streams).max(1) {
            self.streams.push(stream);
            return;
        }
        let oldest = self.streams.iter_mut().max_by_key(|stream| stream.idle(now));
        match oldest.filter(|oldest| oldest.idle(now) > tunables.zfetch_min_sec_reap) {
            Some(oldest) => *oldest = stream,
            None => self.activity.count(Event::TooMany),
        }
    }
}

/// Makes a stream that was moved by an access reach further.
fn proceed(
    stream: &mut Stream,
    activity: &PrefetchActivity,
    shape: &ObjectShape,
    blocks: &Range<u64>,
    outcome: AccessOutcome,
    now: Duration,
) -> Prefetch {
    stream.touch(outcome, now);
    let count = blocks.end - blocks.start;
    let prefetch = stream.advance(activity.tunables(), shape, count, activity.is_pressed());
    activity.count_issued(&prefetch);
    prefetch
}
