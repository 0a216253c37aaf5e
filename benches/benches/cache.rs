//! What does a cached read cost, alone and with another thread beside it; and what a miss?

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rzfs_cache::{
    AccessOutcome, AdaptiveCache, BlockKey, BlockKind, Lookup, ObjectShape, PrefetchActivity,
    PrefetchStreams, PrefetchTunables, Purpose,
};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 10_000;

fn key(number: u64) -> BlockKey {
    BlockKey { vdev: 0, offset: number << 17, birth: 1000 + (number & 15) }
}

/// Numbers below a bound in an order that a processor does not guess.
fn scattered(step: u64, below: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % below
}

/// The time that `threads` threads take for `iterations` operations each.
fn timed(threads: u64, iterations: u64, operation: impl Fn(u64) + Sync) -> Duration {
    let start = Barrier::new(threads as usize);
    let elapsed: Vec<Duration> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, operation) = (&start, &operation);
                scope.spawn(move || {
                    start.wait();
                    let begun = Instant::now();
                    for step in 0..iterations {
                        operation(step + thread * 7919);
                    }
                    begun.elapsed()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    elapsed.into_iter().max().unwrap_or_default()
}

fn cached_reads(criterion: &mut Criterion) {
    let block = Bytes::from(vec![0; 4096]);
    let adaptive = AdaptiveCache::new(1 << 30);
    for number in 0..BLOCKS {
        adaptive.insert(key(number), BlockKind::Data, block.clone());
    }
    // From recently used to frequently used, as a block is that is read often.
    thread::sleep(Duration::from_millis(100));
    for number in 0..BLOCKS {
        black_box(adaptive.get(&key(number)));
    }
    let mut group = criterion.benchmark_group("cache/cached read");
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| {
                timed(threads, iterations, |step| {
                    black_box(adaptive.get(&key(scattered(step, BLOCKS))));
                })
            });
        });
    }
    group.finish();
}

fn misses(criterion: &mut Criterion) {
    let block = Bytes::from(vec![0; 4096]);
    let cache = AdaptiveCache::new(16 << 20);
    let mut group = criterion.benchmark_group("cache/miss, insertion and eviction");
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|iterations| {
                timed(threads, iterations, |step| {
                    let key = key(scattered(step, 1 << 40));
                    match cache.get_or_begin(key, BlockKind::Data, Purpose::Demand) {
                        Lookup::Miss(ticket) => ticket.complete(block.clone()),
                        found => drop(black_box(found)),
                    }
                })
            });
        });
    }
    group.finish();
}

fn prefetch(criterion: &mut Criterion) {
    let shape = ObjectShape { block_size: 128 << 10, blocks: u64::MAX, indirect_shift: 10 };
    let activity = PrefetchActivity::new(PrefetchTunables::default(), 1 << 30);
    let mut streams = PrefetchStreams::new(activity);
    let mut block = 0;
    criterion.bench_function("cache/prefetch decision in a sequential read", |bencher| {
        bencher.iter(|| {
            block += 1;
            let now = Duration::from_micros(block);
            black_box(streams.access(&shape, block..block + 1, AccessOutcome::Missed, now))
        });
    });
}

criterion_group!(benches, cached_reads, misses, prefetch);
criterion_main!(benches);
