//! How fast memory is: the measure for everything that passes over data once.

use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;

/// A buffer that no cache holds, in bytes.
pub const BEYOND_CACHES: usize = 512 << 20;

/// Measures reading and copying from the caches and from memory.
pub fn bandwidth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    for size in [32 << 10, 1 << 20, BEYOND_CACHES] {
        let source: Vec<u64> = (0..size as u64 / 8).collect();
        let mut target = vec![0; source.len()];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("read", size), |bencher| {
            bencher.iter(|| sum(black_box(&source)));
        });
        group.bench_function(BenchmarkId::new("copy", size), |bencher| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
        });
    }
    group.finish();
}

/// Reads all of `words`; with eight sums, so that the additions do not wait for each other.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    for chunk in words.as_chunks::<8>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}
