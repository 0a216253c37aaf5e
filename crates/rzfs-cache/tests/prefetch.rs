//! Predictive prefetch for typical readers.

use proptest::prelude::*;
use rzfs_cache::{
    AccessOutcome, ObjectShape, Prefetch, PrefetchActivity, PrefetchStreams, PrefetchTunables,
};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = 128 << 10;

/// A file of 10 GiB with 128 KiB blocks and indirect blocks of 1024 pointers.
const LARGE: ObjectShape = ObjectShape { block_size: BLOCK, blocks: 80_000, indirect_shift: 10 };

fn activity() -> Arc<PrefetchActivity> {
    PrefetchActivity::new(PrefetchTunables::default(), 4 << 30)
}

/// Streams with a clock that moves a millisecond with each access.
struct Reader {
    streams: PrefetchStreams,
    activity: Arc<PrefetchActivity>,
    now: Duration,
    shape: ObjectShape,
}

impl Reader {
    fn new(shape: ObjectShape) -> Self {
        let activity = activity();
        Self {
            streams: PrefetchStreams::new(Arc::clone(&activity)),
            activity,
            now: Duration::ZERO,
            shape,
        }
    }

    fn read(&mut self, start: u64, count: u64, outcome: AccessOutcome) -> Prefetch {
        self.now += Duration::from_millis(1);
        self.streams.access(&self.shape, start..start + count, outcome, self.now)
    }

    fn miss(&mut self, start: u64, count: u64) -> Prefetch {
        self.read(start, count, AccessOutcome::Missed)
    }
}

#[test]
fn the_distance_doubles_to_4_mib() {
    let mut reader = Reader::new(LARGE);
    assert!(reader.miss(0, 1).is_empty());
    let ends: Vec<_> = (1..10).map(|block| reader.miss(block, 1).data).collect();
    // The distance in blocks: 1, 2, 4, 8, 16, 32, and then no more.
    assert_eq!(ends, [2..3, 3..5, 5..8, 8..13, 13..22, 22..39, 39..40, 40..41, 41..42]);
    assert_eq!(reader.activity.stats().hits, 9);
    assert_eq!(reader.activity.stats().misses, 1);
}

#[test]
fn prefetch_that_comes_late_reaches_further_up_to_64_mib() {
    let mut reader = Reader::new(LARGE);
    for block in 0..10 {
        reader.miss(block, 1);
    }
    let mut reach = Vec::new();
    for block in 10..60 {
        let prefetch = reader.read(block, 1, AccessOutcome::Late);
        reach.push(prefetch.data.end - block - 1);
    }
    assert_eq!(reach[..3], [36, 40, 45]);
    assert_eq!(*reach.last().unwrap(), 512);
    // In time again: no further.
    let prefetch = reader.read(60, 1, AccessOutcome::Cached);
    assert_eq!(prefetch.data.end, 61 + 512);
}

#[test]
fn who_finds_everything_cached_needs_no_prefetch() {
    let mut reader = Reader::new(LARGE);
    for block in 0..50 {
        assert!(reader.read(block, 1, AccessOutcome::Cached).is_empty());
    }
    assert_eq!(reader.activity.stats().io_issued, 0);
    // The first miss makes up for it at once: the distance has grown meanwhile.
    assert_eq!(reader.miss(50, 1).data, 51..83);
}

#[test]
fn large_requests_are_met_by_a_distance_as_large() {
    let mut reader = Reader::new(LARGE);
    reader.miss(0, 64);
    assert_eq!(reader.miss(64, 64).data, 128..192);
    // More than is ever prefetched at once.
    assert_eq!(reader.miss(128, 1000).data, 1128..1640);
}

#[test]
fn every_block_is_prefetched_once_and_in_time() {
    let mut reader = Reader::new(LARGE);
    let mut next = None;
    for block in 0..2000 {
        let data = reader.miss(block, 1).data;
        if data.is_empty() {
            continue;
        }
        assert!(next.is_none_or(|next| data.start == next), "{data:?}");
        assert!(data.start > block);
        next = Some(data.end);
    }
}

#[test]
fn indirect_blocks_run_ahead_of_the_data() {
    let mut reader = Reader::new(LARGE);
    let mut indirect = Vec::new();
    for block in 0..3000 {
        indirect.extend(reader.miss(block, 1).indirect);
    }
    // One indirect block for 1024 data blocks, each once; 128 MiB are 1024 blocks ahead.
    assert_eq!(indirect, [1, 2, 3]);
}

#[test]
fn nothing_beyond_the_end_is_prefetched() {
    let shape = ObjectShape { block_size: BLOCK, blocks: 20, indirect_shift: 10 };
    let mut reader = Reader::new(shape);
    let mut last = 0;
    for block in 0..20 {
        let Prefetch { data, indirect } = reader.miss(block, 1);
        last = last.max(data.end);
        assert!(data.end <= 20 && indirect.end <= 1);
    }
    assert_eq!(last, 20);
}

#[test]
fn objects_of_one_or_two_blocks_are_left_alone() {
    for blocks in [1, 2] {
        let mut reader = Reader::new(ObjectShape { block_size: BLOCK, blocks, indirect_shift: 10 });
        for block in 0..blocks {
            assert!(reader.miss(block, 1).is_empty());
        }
        assert!(reader.streams.is_empty());
    }
}

#[test]
fn accesses_that_are_not_aligned_are_one_sequence() {
    let mut reader = Reader::new(LARGE);
    reader.miss(0, 2);
    // Begins in the middle of block 1.
    assert!(!reader.miss(1, 2).is_empty());
    assert!(!reader.miss(2, 2).is_empty());
    assert_eq!(reader.activity.stats().hits, 2);
    // The tail of the same block again is nothing new.
    assert!(reader.miss(3, 1).is_empty());
    assert_eq!(reader.activity.stats().past, 1);
}

#[test]
fn readers_in_parallel_may_come_in_disorder() {
    let mut reader = Reader::new(LARGE);
    reader.miss(0, 1);
    assert!(reader.miss(2, 1).is_empty());
    assert!(reader.miss(3, 1).is_empty());
    assert_eq!(reader.activity.stats().future, 2);
    // The missing one joins them all.
    let prefetch = reader.miss(1, 1);
    assert_eq!(prefetch.data, 4..5);
    assert_eq!(reader.streams.len(), 1);
}

#[test]
fn small_holes_are_jumped_over() {
    let mut reader = Reader::new(LARGE);
    reader.miss(0, 1);
    // Expected is 1: block 1 is a hole of a quarter of the way to 5.
    let prefetch = reader.miss(2, 3);
    assert_eq!(prefetch.data.start, 5);
    assert_eq!(reader.activity.stats().stride, 1);
    // A larger hole is only remembered.
    assert!(reader.miss(8, 1).is_empty());
    assert_eq!(reader.activity.stats().future, 1);
}

#[test]
fn interleaved_readers_have_their_own_streams() {
    let mut reader = Reader::new(LARGE);
    for step in 0..20 {
        for start in [0, 20_000, 40_000, 60_000] {
            let prefetch = reader.miss(start + step, 1);
            assert_eq!(prefetch.is_empty(), step == 0);
        }
    }
    assert_eq!(reader.streams.len(), 4);
}

#[test]
fn readers_close_to_each_other_do_not_disturb_each_other() {
    let mut reader = Reader::new(LARGE);
    // Another reader, so far away at first that it gets a stream of its own, comes near.
    reader.miss(1000, 1);
    for step in 0..990 {
        reader.miss(step, 1);
    }
    reader.miss(1001, 1);
    let hits = reader.activity.stats().hits;
    for step in 0..9 {
        reader.miss(990 + step, 1);
        reader.miss(1002 + step, 1);
    }
    assert_eq!(reader.activity.stats().hits, hits + 18);
}

#[test]
fn random_reads_begin_at_most_eight_streams_and_prefetch_nothing() {
    let mut reader = Reader::new(LARGE);
    for step in 0..200_u64 {
        assert!(reader.miss((step * 31_337) % 79_999, 1).is_empty());
    }
    assert_eq!(reader.streams.len(), 8);
    assert!(reader.activity.stats().max_streams > 0);
}

#[test]
fn a_small_object_has_fewer_streams() {
    // 128 MiB have room for two full distances.
    let shape = ObjectShape { block_size: BLOCK, blocks: 1024, indirect_shift: 10 };
    let mut reader = Reader::new(shape);
    for start in [0, 300, 600, 900] {
        reader.miss(start, 1);
    }
    assert_eq!(reader.streams.len(), 2);
}

#[test]
fn idle_streams_give_way_and_go() {
    let mut reader = Reader::new(LARGE);
    for stream in 0..8 {
        reader.miss(stream * 5000, 1);
    }
    reader.miss(50_000, 1);
    assert_eq!(reader.activity.stats().max_streams, 1);
    // After a second the oldest gives way.
    reader.now += Duration::from_millis(1100);
    reader.miss(50_000, 1);
    assert_eq!(reader.activity.stats().max_streams, 1);
    assert!(!reader.miss(50_001, 1).is_empty());
    assert!(reader.miss(1, 1).is_empty());
    // After two all go.
    reader.now += Duration::from_millis(2100);
    reader.miss(70_000, 1);
    assert_eq!(reader.streams.len(), 1);
}

#[test]
fn under_pressure_the_distance_does_not_double() {
    let mut reader = Reader::new(LARGE);
    let active = reader.activity.begin(3000, 300 << 20);
    assert_eq!(reader.activity.stats().io_active, 3000);
    reader.miss(0, 1);
    assert_eq!(reader.miss(1, 1).data, 2..3);
    assert_eq!(reader.miss(2, 1).data, 3..4);
    drop(active);
    assert_eq!(reader.miss(3, 1).data, 4..6);
    assert_eq!(reader.activity.stats().io_active, 0);
}

proptest! {
    #[test]
    fn any_accesses_give_sane_answers(
        block_size in prop_oneof![Just(0_u64), Just(512), Just(BLOCK), Just(u64::MAX), any::<u64>()],
        blocks in prop_oneof![0..5000_u64, any::<u64>()],
        indirect_shift in 0..80_u32,
        accesses in prop::collection::vec(
            (
                prop_oneof![0..6000_u64, any::<u64>()],
                prop_oneof![0..100_u64, any::<u64>()],
                0..3_u8,
                0..3_000_u64,
            ),
            0..60,
        ),
    ) {
        let shape = ObjectShape { block_size, blocks, indirect_shift };
        let mut reader = Reader::new(shape);
        for (start, count, outcome, wait) in accesses {
            let outcome = [AccessOutcome::Cached, AccessOutcome::Late, AccessOutcome::Missed]
                [usize::from(outcome)];
            reader.now += Duration::from_millis(wait);
            let range = start..start.saturating_add(count);
            let prefetch = reader.streams.access(&shape, range, outcome, reader.now);
            prop_assert!(prefetch.data.start <= prefetch.data.end);
            prop_assert!(prefetch.indirect.start <= prefetch.indirect.end);
            prop_assert!(prefetch.data.is_empty() || prefetch.data.end <= blocks);
            let bytes = (prefetch.data.end - prefetch.data.start).saturating_mul(block_size);
            prop_assert!(bytes <= 64 << 20 || prefetch.data.is_empty());
            prop_assert!(reader.streams.len() <= 8);
        }
    }
}
