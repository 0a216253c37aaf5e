//! How fast blocks are checksummed, compared with how fast memory can be read.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_benches::memory;
use rzfs_codec::checksum::{self, Salt, fletcher::Kernel};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use std::hint::black_box;
use std::time::Duration;

/// First-level cache, a record in the second-level cache, a large record there, memory.
const SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, memory::BEYOND_CACHES];

fn data(size: usize) -> Vec<u8> {
    (0..size as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// fletcher4 and fletcher2 by every kernel, in both byte orders.
fn fletcher(criterion: &mut Criterion) {
    for size in SIZES {
        let data = data(size);
        for kernel in Kernel::available() {
            let mut group = criterion.benchmark_group(format!("fletcher/{}", kernel.name()));
            group.throughput(Throughput::Bytes(size as u64));
            for (name, order) in
                [("4", ByteOrder::NATIVE), ("4-swapped", ByteOrder::NATIVE.swapped())]
            {
                group.bench_function(BenchmarkId::new(name, size), |bencher| {
                    bencher.iter(|| kernel.fletcher4(black_box(&data), order));
                });
            }
            group.bench_function(BenchmarkId::new("2", size), |bencher| {
                bencher.iter(|| kernel.fletcher2(black_box(&data), ByteOrder::NATIVE));
            });
            group.finish();
        }
    }
}

/// Every function that a dataset can have, over a record of 128 KiB and one of 4 KiB.
fn functions(criterion: &mut Criterion) {
    let salt = Salt::new([7; Salt::SIZE]);
    let mut group = criterion.benchmark_group("checksum");
    for size in [4 << 10, 128 << 10] {
        let data = data(size);
        group.throughput(Throughput::Bytes(size as u64));
        for function in [
            ChecksumFunction::Fletcher2,
            ChecksumFunction::Fletcher4,
            ChecksumFunction::Sha256,
            ChecksumFunction::Sha512,
            ChecksumFunction::Skein,
            ChecksumFunction::EdonR,
            ChecksumFunction::Blake3,
        ] {
            group.bench_function(BenchmarkId::new(function.name(), size), |bencher| {
                bencher.iter(|| {
                    checksum::checksum(function, ByteOrder::NATIVE, black_box(&data), &salt)
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = memory::bandwidth, fletcher, functions
}
criterion_main!(benches);
